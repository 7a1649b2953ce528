// All commands of the agent: those that run, background jobs until they are forgotten, and ended ones for as
// long as a late reader of their outputs may come.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "exec.h"

namespace anchorhold::guest {

// Belongs to the loop's thread.
class ExecTable {
 public:
  static constexpr std::size_t most_running = 1024;
  static constexpr std::size_t most_ended = 512;
  static constexpr std::size_t most_ended_background = 64;
  static constexpr std::chrono::seconds kept_after_end{30};

  explicit ExecTable(const Machinery& machinery) : machinery_(machinery) {}
  ~ExecTable();

  // Chooses an id where the plan has none.
  Result<std::shared_ptr<Exec>> add(ExecPlan plan);
  void start(const std::shared_ptr<Exec>& exec, Exec::Watcher watcher);
  // not_found names the id.
  Result<std::shared_ptr<Exec>> find(const std::string& id) const;
  // Calls back once: at once when it is known, later when it is added, or with null when it did not come in
  // time.
  void when_known(const std::string& id, std::function<void(std::shared_ptr<Exec>)> callback);
  void forget(const std::string& id);
  std::vector<std::shared_ptr<Exec>> all() const;
  // Calls back when none of them runs any more.
  void kill_all(std::string why, std::function<void()> done);

 private:
  void on_ended(const std::string& id);
  void drop_old();
  void check_all_ended();

  struct Waiting {
    std::function<void(std::shared_ptr<Exec>)> callback;
    Timers::Id timer = 0;
  };
  struct Ended {
    std::string id;
    std::chrono::steady_clock::time_point time;
  };
  const Machinery& machinery_;
  std::map<std::string, std::shared_ptr<Exec>> execs_;
  std::multimap<std::string, std::shared_ptr<Waiting>> waiting_;
  std::deque<Ended> ended_;
  std::deque<std::string> ended_background_;
  std::size_t running_ = 0;
  Timers::Id sweep_ = 0;
  std::function<void()> all_ended_;
};

}  // namespace anchorhold::guest
