#include "bulk_guard.h"

#include <fmt/format.h>
#include <utility>

namespace anchorhold::mounts {
namespace {

constexpr std::size_t max_remembered = 1u << 20;

}  // namespace

BulkGuard::Judgement BulkGuard::judge_locked(Time now) {
  if (off_ || limits_.changes == 0) return Judgement::go_on;
  if (refusing_) {
    if (now - std::exchange(last_try_, now) < limits_.window) return Judgement::refuse;
    refusing_ = false;
    counted_.clear();
  }
  while (!counted_.empty() && now - counted_.front() >= limits_.window) counted_.pop_front();
  if (counted_.size() >= limits_.changes) return Judgement::ask;
  counted_.push_back(now);
  return Judgement::go_on;
}

BulkGuard::Judgement BulkGuard::judge(Time now) {
  std::lock_guard lock(mutex_);
  return judge_locked(now);
}

BulkGuard::Judgement BulkGuard::judge_rewrite(const Identity& file, Time now) {
  std::lock_guard lock(mutex_);
  if (rewritten_.contains(file)) return Judgement::go_on;
  auto judgement = judge_locked(now);
  if (judgement == Judgement::go_on && file.is_certain() && rewritten_.size() < max_remembered)
    rewritten_.insert(file);
  return judgement;
}

bool BulkGuard::ask(std::string_view operation, const std::string& path) {
  std::unique_lock lock(mutex_);
  if (asking_) {
    auto mine = questions_;
    changed_.wait(lock, [&] { return !asking_ || questions_ != mine; });
    return allowed_;
  }
  asking_ = true;
  std::uint64_t question = ++questions_;
  lock.unlock();
  Report report{.kind = ReportKind::question, .question = question};
  report.operation = operation;
  report.path = path;
  report.reason =
      fmt::format("more than {} removals or rewrites of what was there before within {} seconds",
                  limits_.changes, std::chrono::ceil<std::chrono::seconds>(limits_.window).count());
  Verdict verdict = Verdict::deny;
  if (reporter_.send(std::move(report))) verdict = reporter_.wait_for_answer(question, limits_.patience);
  lock.lock();
  asking_ = false;
  allowed_ = verdict != Verdict::deny;
  off_ = verdict == Verdict::allow_for_session;
  refusing_ = !allowed_;
  last_try_ = std::chrono::steady_clock::now();
  counted_.clear();
  changed_.notify_all();
  return allowed_;
}

}  // namespace anchorhold::mounts
