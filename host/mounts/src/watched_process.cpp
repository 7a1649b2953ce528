#include "watched_process.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <fmt/format.h>
#include <future>
#include <mutex>
#include <optional>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

namespace anchorhold::mounts {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds ready_limit{20};
constexpr std::chrono::seconds end_limit{5};

// Passes at most `most` reports in each second; a process that was taken over cannot fill a log.
class Throttle {
 public:
  bool pass() {
    auto now = steady_clock::now();
    if (now - window_ >= std::chrono::seconds(1)) {
      window_ = now;
      passed_ = 0;
    }
    if (passed_ < most) {
      ++passed_;
      return true;
    }
    ++suppressed_;
    return false;
  }
  std::uint32_t take_suppressed() { return std::exchange(suppressed_, 0); }

 private:
  static constexpr int most = 100;
  steady_clock::time_point window_{};
  int passed_ = 0;
  std::uint32_t suppressed_ = 0;
};

}  // namespace

struct WatchedProcess::State {
  explicit State(Spec given) : spec(std::move(given)) {}

  Spec spec;
  UniqueFd stop{eventfd(0, EFD_CLOEXEC)};
  std::promise<Status> ready;
  std::thread thread;
  std::atomic<pid_t> pid{-1};

  std::mutex answer_mutex;
  UniqueFd answers;  // the reports' socket, for the way back
  std::uint64_t open_question = 0;

  // Everything below belongs to the thread.
  UniqueFd reports;
  bool was_ready = false;
  std::string last_words;
  Throttle throttle;

  void run();
  bool take_report();
  bool take_question(const Report& report);
  void send_answer(const Answered& answer);
  void notify(ShareNotice notice);
  void end(Child& child, bool wanted);
};

Result<std::unique_ptr<WatchedProcess>> WatchedProcess::start(Spec spec) {
  auto state = std::make_shared<State>(std::move(spec));
  if (!state->stop) return fail_errno(errno, "eventfd");
  auto ready = state->ready.get_future();
  state->thread = std::thread([state] { state->run(); });
  std::unique_ptr<WatchedProcess> process(new WatchedProcess(state));
  if (ready.wait_for(ready_limit) != std::future_status::ready)
    return fail(ErrorCode::deadline_exceeded, fmt::format("the {} of {} did not get ready",
                                                          to_string(state->spec.process), state->spec.grant));
  ANCHORHOLD_CHECK(ready.get());
  return process;
}

WatchedProcess::~WatchedProcess() {
  std::uint64_t one = 1;
  (void)!write(state_->stop.get(), &one, sizeof one);
  state_->thread.join();
}

pid_t WatchedProcess::pid() const {
  return state_->pid;
}

void WatchedProcess::State::run() {
  auto sockets = socket_pair(SOCK_SEQPACKET);
  if (!sockets) return ready.set_value(fail(sockets.error()));
  reports = std::move(sockets->first);
  if (auto copy = duplicate(reports.get())) answers = std::move(*copy);
  spec.spawn.descriptors.push_back({sockets->second.get(), spec.reports_fd});
  auto child = Child::spawn(spec.spawn);
  if (!child) return ready.set_value(fail(child.error()));
  sockets->second.reset();
  pid = child->pid();
  for (;;) {
    pollfd entries[] = {{stop.get(), POLLIN, 0}, {child->pidfd(), POLLIN, 0}, {reports.get(), POLLIN, 0}};
    int count = poll(entries, reports ? 3 : 2, -1);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 || entries[0].revents) return end(*child, true);
    // Reports first: the last one says why it ended.
    if (reports && entries[2].revents) {
      if (!take_report()) reports.reset();
      // It said why it cannot begin: then it need not be waited for as one that begins.
      if (!was_ready && !last_words.empty()) return end(*child, false);
      continue;
    }
    if (entries[1].revents) return end(*child, false);
  }
}

bool WatchedProcess::State::take_report() {
  auto report = receive_report(reports.get());
  if (!report) {
    // Not one of ours: the process says something that its program cannot say.
    Report nonsense{.kind = ReportKind::violation, .operation = "report", .reason = report.error().message};
    if (throttle.pass()) notify({.kind = ShareNotice::Kind::report, .report = std::move(nonsense)});
    return true;
  }
  if (!*report) return false;
  if ((*report)->kind == ReportKind::ready) {
    if (!std::exchange(was_ready, true)) ready.set_value({});
    return true;
  }
  if ((*report)->kind == ReportKind::question && !take_question(**report)) return true;
  if ((*report)->kind == ReportKind::fatal) last_words = (*report)->reason;
  bool pass = throttle.pass();
  if (!pass) {
    if ((*report)->question != 0) send_answer({(*report)->question, Verdict::deny});
    return true;
  }
  if (auto suppressed = throttle.take_suppressed(); suppressed > 0)
    notify({.kind = ShareNotice::Kind::suppressed, .report = {.lost = suppressed}});
  auto kind =
      (*report)->kind == ReportKind::question ? ShareNotice::Kind::question : ShareNotice::Kind::report;
  notify({.kind = kind, .report = std::move(**report)});
  return true;
}

// One at a time: a process that was taken over cannot put a heap of questions before a person.
bool WatchedProcess::State::take_question(const Report& report) {
  {
    std::lock_guard lock(answer_mutex);
    if (open_question == 0) {
      open_question = report.question;
      return true;
    }
  }
  send_answer({report.question, Verdict::deny});
  return false;
}

void WatchedProcess::State::send_answer(const Answered& answer) {
  std::string bytes = encode_answer(answer);
  std::lock_guard lock(answer_mutex);
  if (open_question == answer.question) open_question = 0;
  // Whoever does not take an answer waits in vain, and then it is a no.
  (void)!::send(answers.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

void WatchedProcess::answer(const Answered& answer) {
  state_->send_answer(answer);
}

void WatchedProcess::State::notify(ShareNotice notice) {
  notice.process = spec.process;
  notice.grant = spec.grant;
  if (spec.on_notice) spec.on_notice(notice);
}

void WatchedProcess::State::end(Child& child, bool wanted) {
  // Whoever waits for a person need not wait any longer.
  if (wanted) send_answer({0, Verdict::deny});
  // A keeper ends by itself when its last client is gone, with its journal closed.
  if (wanted && spec.process != ShareProcess::keeper) child.kill(SIGTERM);
  if (!child.wait(end_limit)) child.kill(SIGKILL);
  auto status = child.wait();
  pid = -1;
  auto cause = fmt::format("{}{}{}", to_string(status), last_words.empty() ? "" : ": ", last_words);
  if (auto suppressed = throttle.take_suppressed(); suppressed > 0)
    notify({.kind = ShareNotice::Kind::suppressed, .report = {.lost = suppressed}});
  if (!was_ready)
    ready.set_value(fail(ErrorCode::failed_precondition,
                         fmt::format("the {} of {} could not start: {}", to_string(spec.process), spec.grant,
                                     last_words.empty() ? cause : last_words)));
  else if (!wanted)
    notify({.kind = ShareNotice::Kind::ended, .cause = std::move(cause)});
}

}  // namespace anchorhold::mounts
