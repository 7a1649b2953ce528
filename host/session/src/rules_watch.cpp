#include "rules_watch.h"

#include <cerrno>
#include <sys/eventfd.h>
#include <unistd.h>

#include "policy/answers.h"

namespace anchorhold::session {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds writing_step(20), writing_limit(1000);
// Between two looks when nothing is noticed: with a watch, without one.
constexpr milliseconds usual_step(10'000), blind_step(1000);

}  // namespace

Result<std::unique_ptr<RulesWatch>> RulesWatch::start(std::filesystem::path folder, Hooks hooks,
                                                      std::vector<std::filesystem::path> also) {
  std::unique_ptr<RulesWatch> watch(new RulesWatch(std::move(folder), std::move(hooks), std::move(also)));
  watch->stop_.reset(eventfd(0, EFD_CLOEXEC));
  if (!watch->stop_) return fail_errno(errno, "eventfd");
  watch->thread_ = std::thread([self = watch.get()] { self->run(); });
  return watch;
}

RulesWatch::~RulesWatch() {
  if (!thread_.joinable()) return;
  const std::uint64_t one = 1;
  (void)!write(stop_.get(), &one, sizeof one);
  thread_.join();
}

void RulesWatch::run() {
  FileWatch watch;
  for (;;) {
    auto followed = files();
    watch.follow(followed);
    auto step = look();
    if (files() != followed) continue;
    if (!watch.watches()) step = std::min(step, blind_step);
    if (watch.wait(step, stop_.get()) == FileWatch::Woken::stopped) return;
  }
}

void RulesWatch::refresh() {
  (void)look();
}

std::vector<std::filesystem::path> RulesWatch::files() {
  std::lock_guard lock(mutex_);
  std::vector<std::filesystem::path> all{folder_ / policy::configuration_file,
                                         folder_ / policy::answers_file};
  all.insert(all.end(), also_.begin(), also_.end());
  all.insert(all.end(), certificates_.begin(), certificates_.end());
  return all;
}

milliseconds RulesWatch::look() {
  std::lock_guard lock(mutex_);
  auto rules = policy::read_person_rules(folder_);
  if (rules) {
    certificates_ = rules->configured.extra_ca;
    if (auto checked = hooks_.check(*rules); !checked) rules = fail(std::move(checked).error());
  }
  const auto now = std::chrono::steady_clock::now();
  if (!rules && rules.error().code == ErrorCode::unavailable) {
    if (!written_since_) written_since_ = now;
    if (now - *written_since_ < writing_limit) return writing_step;
  } else {
    written_since_.reset();
  }
  if (rules) {
    told_.clear();
    hooks_.good(*rules);
    return usual_step;
  }
  if (std::exchange(told_, rules.error().message) != rules.error().message) hooks_.broken(rules.error());
  return written_since_ ? milliseconds(100) : usual_step;
}

}  // namespace anchorhold::session
