#include "exec_table.h"

#include <fmt/format.h>
#include <utility>

#include "base/id.h"

namespace anchorhold::guest {

ExecTable::~ExecTable() {
  machinery_.timers.cancel(sweep_);
  for (auto& [id, waiting] : waiting_) machinery_.timers.cancel(waiting->timer);
}

Result<std::shared_ptr<Exec>> ExecTable::add(ExecPlan plan) {
  if (running_ >= most_running)
    return fail(ErrorCode::resource_exhausted, fmt::format("{} commands run already", running_),
                "wait for one to end, or kill one");
  if (all_ended_) return fail(ErrorCode::failed_precondition, "the guest is shutting down");
  if (plan.id.empty()) plan.id = "e-" + random_hex(8);
  drop_old();
  auto exec = std::make_shared<Exec>(std::move(plan), machinery_);
  if (!execs_.emplace(exec->id(), exec).second)
    return fail(ErrorCode::already_exists, fmt::format("there is a command {} already", exec->id()));
  ++running_;
  return exec;
}

void ExecTable::start(const std::shared_ptr<Exec>& exec, Exec::Watcher watcher) {
  exec->when_ended([this, id = exec->id()](const wire::ExecStatus&) { on_ended(id); });
  exec->start(std::move(watcher));
  auto [first, last] = waiting_.equal_range(exec->id());
  std::vector<std::shared_ptr<Waiting>> woken;
  for (auto it = first; it != last; ++it) woken.push_back(it->second);
  waiting_.erase(first, last);
  for (auto& waiting : woken) {
    machinery_.timers.cancel(waiting->timer);
    waiting->callback(exec);
  }
}

Result<std::shared_ptr<Exec>> ExecTable::find(const std::string& id) const {
  auto found = execs_.find(id);
  if (found == execs_.end()) return fail(ErrorCode::not_found, fmt::format("no command {} in the guest", id));
  return found->second;
}

void ExecTable::when_known(const std::string& id, std::function<void(std::shared_ptr<Exec>)> callback) {
  if (auto found = execs_.find(id); found != execs_.end()) return callback(found->second);
  auto waiting = std::make_shared<Waiting>();
  waiting->callback = std::move(callback);
  waiting->timer = machinery_.timers.after(std::chrono::seconds(10), [this, id, waiting] {
    std::erase_if(waiting_, [&](const auto& entry) { return entry.second == waiting; });
    waiting->callback(nullptr);
  });
  waiting_.emplace(id, waiting);
}

void ExecTable::on_ended(const std::string& id) {
  --running_;
  auto found = execs_.find(id);
  if (found != execs_.end()) {
    if (found->second->background())
      ended_background_.push_back(id);
    else
      ended_.push_back({id, std::chrono::steady_clock::now()});
  }
  // Not here and now: the command that has just ended is still in its own function.
  if (sweep_ == 0) {
    sweep_ = machinery_.timers.after(kept_after_end + std::chrono::seconds(1), [this] {
      sweep_ = 0;
      drop_old();
    });
  }
  check_all_ended();
}

// Ended commands go in order of their end, but not while somebody reads their output.
void ExecTable::drop_old() {
  auto now = std::chrono::steady_clock::now();
  std::deque<Ended> kept;
  while (!ended_.empty() && (ended_.size() > most_ended || now - ended_.front().time >= kept_after_end)) {
    auto found = execs_.find(ended_.front().id);
    if (found != execs_.end() && found->second->has_readers())
      kept.push_back(ended_.front());
    else if (found != execs_.end())
      execs_.erase(found);
    ended_.pop_front();
  }
  ended_.insert(ended_.begin(), kept.begin(), kept.end());
  while (ended_background_.size() > most_ended_background) {
    std::string oldest = ended_background_.front();
    forget(oldest);
  }
  if (sweep_ == 0 && !ended_.empty())
    sweep_ = machinery_.timers.after(kept_after_end, [this] {
      sweep_ = 0;
      drop_old();
    });
}

void ExecTable::forget(const std::string& id) {
  std::erase(ended_background_, id);
  std::erase_if(ended_, [&](const Ended& ended) { return ended.id == id; });
  auto node = execs_.extract(id);
  if (node.empty()) return;
  // Its readers get an end while it still exists.
  node.mapped()->forget();
}

std::vector<std::shared_ptr<Exec>> ExecTable::all() const {
  std::vector<std::shared_ptr<Exec>> execs;
  for (const auto& [id, exec] : execs_)
    if (exec->background() || !exec->ended()) execs.push_back(exec);
  return execs;
}

void ExecTable::kill_all(std::string why, std::function<void()> done) {
  all_ended_ = std::move(done);
  for (const auto& exec : all()) exec->kill(wire::ExecStatus::CAUSE_KILLED, why);
  check_all_ended();
}

void ExecTable::check_all_ended() {
  if (!all_ended_ || running_ > 0) return;
  machinery_.loop.post(std::exchange(all_ended_, [] {}));
}

}  // namespace anchorhold::guest
