// What the guest changes itself: inotify(7) does not say who changed something, and most changes of a granted
// folder are the guest's own, made by this process or by the keeper. Names the guest makes and removes are
// announced here before they are, and their events are known by that. What it writes is compared a moment
// later: a file that is as the guest's last change left it was changed by nobody else.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "reader/node_table.h"

namespace anchorhold::mounts {

// Safe from any thread.
class OwnChanges {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // The guest is about to make or remove a name. For as long as this lives, and a moment longer, the event of
  // it is the guest's own.
  enum class Names { appearing, vanishing, both };
  class Name {
   public:
    Name() = default;
    // Without changes to note it in, nothing is noted.
    Name(OwnChanges* changes, std::uint64_t folder, std::string_view name, Names names);
    Name(Name&& other) noexcept;
    Name& operator=(Name&&) = delete;
    ~Name();
    // It was not done: nothing is to come.
    void failed();

   private:
    OwnChanges* changes_ = nullptr;
    std::uint64_t folder_ = 0;
    std::string name_;
    Names names_ = Names::appearing;
  };
  // The guest is about to change an object; says how it is afterwards with done().
  class Change {
   public:
    Change() = default;
    Change(OwnChanges* changes, NodeRef node);
    Change(Change&& other) noexcept
        : changes_(std::exchange(other.changes_, nullptr)), node_(std::move(other.node_)) {}
    Change& operator=(Change&&) = delete;
    ~Change();
    void done(const Statx& info);

   private:
    OwnChanges* changes_ = nullptr;
    NodeRef node_;
  };

  // Whether the event of a name that came or went is one of the guest's own; each is so once.
  bool is_own(std::uint64_t folder, const std::string& name, bool appearing);
  // Whether the guest changes the object right now, or did a moment ago.
  bool recently_changed(const NodeRef& node);
  // Who made the object what it is. `unclear`: the guest changes it right now, or makes it, and it may be as
  // somebody else left it once that is done.
  enum class Maker { guest, unclear, somebody_else };
  Maker maker(const Statx& info, std::uint64_t folder, const std::string& name);

  // What can have no event any more.
  void sweep(Time now);
  void forget_names();
  void clear();
  bool has_objects();

 private:
  struct Expected {
    int appearing = 0;
    int vanishing = 0;
    int under_way = 0;
    Time last{};
  };
  struct Object {
    int under_way = 0;
    Time last{};
    bool known = false;
    Statx info{};
  };

  std::mutex mutex_;
  std::map<std::pair<std::uint64_t, std::string>, Expected> names_;
  // By what they are and not by node: the guest may forget a file before the events of its changes come.
  std::unordered_map<NodeIdentity, Object, NodeIdentityHash> objects_;
};

// Of two changes to a file within this time it is not asked who made them.
inline constexpr std::chrono::milliseconds settling{100};
// How late the event of an own change may come.
inline constexpr std::chrono::milliseconds own_time{2000};

}  // namespace anchorhold::mounts
