// What an undo is going to do about each item, and what it leaves alone and why: decided from what is there,
// before anything is changed.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "items.h"
#include "restore.h"

namespace anchorhold::mounts {

struct Plan {
  Item* item = nullptr;
  bool in_scope = false;     // it belongs to what was asked for
  bool begun = false;        // an undo that was killed has begun with it
  bool times_too = false;    // of a folder
  std::string refusal = {};  // why it is left alone

  bool is_open() const { return in_scope && refusal.empty(); }
};

// Belongs to one thread. What it refers to outlives it.
class Plans {
 public:
  Plans(const RestoreSpec& spec, Situation& situation, int kept,
        const std::function<bool(const Identity&)>& begun);

  std::vector<Plan>& all() { return plans_; }
  const std::vector<Plan>& all() const { return plans_; }
  Plan* of(const Identity& identity);
  // What would be done, when nothing gets in the way.
  std::vector<Step> steps() const;

  void refuse(Plan& plan, const std::string& path, std::string reason);
  const std::vector<Refusal>& refused() const { return refused_; }

 private:
  void choose(const std::function<bool(const Identity&)>& begun);
  void judge(Plan& plan);
  std::optional<std::string> place_now(const std::string& path) const;
  std::string judge_missing(const Plan& plan, const std::string& path);

  const RestoreSpec& spec_;
  Situation& situation_;
  const int kept_;
  std::vector<Plan> plans_;
  std::unordered_map<const Item*, std::size_t> by_item_;
  std::unordered_map<std::string, std::size_t> by_missing_;
  std::vector<Refusal> refused_;
};

}  // namespace anchorhold::mounts
