#include "base/process.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace anchorhold {
namespace {

// Everything below runs between fork and exec: only async-signal-safe calls, no allocation.
struct ChildPlan {
  const char* program;
  char* const* argv;
  char* const* environment;
  const char* working_directory;
  int* sources;  // scratch copies, above every target
  const int* targets;
  std::size_t count;
  int lowest_free;  // first number above every target
  bool new_group;
  bool die_with_parent;
  pid_t parent;
  int error_fd;
};

[[noreturn]] void child_fail(int error_fd) {
  int error = errno;
  (void)!write(error_fd, &error, sizeof error);
  _exit(127);
}

[[noreturn]] void run_child(ChildPlan& plan) {
  if (plan.new_group && setpgid(0, 0) != 0) child_fail(plan.error_fd);
  if (plan.die_with_parent) {
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) child_fail(plan.error_fd);
    if (getppid() != plan.parent) _exit(127);
  }
  // Move everything out of the way of the targets first, then into place.
  int error_fd = fcntl(plan.error_fd, F_DUPFD_CLOEXEC, plan.lowest_free);
  if (error_fd < 0) child_fail(plan.error_fd);
  for (std::size_t i = 0; i < plan.count; ++i) {
    plan.sources[i] = fcntl(plan.sources[i], F_DUPFD_CLOEXEC, plan.lowest_free);
    if (plan.sources[i] < 0) child_fail(error_fd);
  }
  int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null_fd < 0) child_fail(error_fd);
  null_fd = fcntl(null_fd, F_DUPFD_CLOEXEC, plan.lowest_free);
  for (int standard = 0; standard < 3; ++standard)
    if (dup2(null_fd, standard) < 0) child_fail(error_fd);
  for (std::size_t i = 0; i < plan.count; ++i)
    if (dup2(plan.sources[i], plan.targets[i]) < 0) child_fail(error_fd);
  // What is not a target closes at exec: mark everything, then unmark the targets.
  if (syscall(SYS_close_range, 3u, ~0u, CLOSE_RANGE_CLOEXEC) != 0) child_fail(error_fd);
  for (std::size_t i = 0; i < plan.count; ++i)
    if (fcntl(plan.targets[i], F_SETFD, 0) != 0) child_fail(error_fd);
  if (plan.working_directory[0] != '\0' && chdir(plan.working_directory) != 0) child_fail(error_fd);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  execve(plan.program, plan.argv, plan.environment);
  child_fail(error_fd);
}

std::vector<char*> c_strings(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const auto& text : strings) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

std::string to_string(ExitStatus status) {
  if (status.signal != 0)
    return fmt::format("killed by signal {} ({})", status.signal, strsignal(status.signal));
  return fmt::format("exit status {}", status.code);
}

Result<Child> Child::spawn(const SpawnSpec& spec) {
  if (spec.argv.empty()) return fail(ErrorCode::invalid_argument, "no program to start");
  Pipe errors = ANCHORHOLD_TRY(make_pipe());
  auto argv = c_strings(spec.argv);
  auto environment = spec.environment ? c_strings(*spec.environment) : std::vector<char*>();
  std::vector<int> sources, targets;
  int lowest_free = 3;
  for (const auto& passed : spec.descriptors) {
    sources.push_back(passed.fd);
    targets.push_back(passed.target_fd);
    lowest_free = std::max(lowest_free, passed.target_fd + 1);
  }
  ChildPlan plan{spec.argv[0].c_str(),
                 argv.data(),
                 spec.environment ? environment.data() : environ,
                 spec.working_directory.c_str(),
                 sources.data(),
                 targets.data(),
                 sources.size(),
                 lowest_free,
                 spec.new_process_group,
                 spec.die_with_parent,
                 getpid(),
                 errors.write_end.get()};
  pid_t pid = fork();
  if (pid < 0) return fail_errno(errno, "fork");
  if (pid == 0) run_child(plan);
  errors.write_end.reset();
  int child_error = 0;
  auto got = read_full(errors.read_end.get(), std::as_writable_bytes(std::span(&child_error, 1)));
  if (got && *got == sizeof child_error) {
    waitpid(pid, nullptr, 0);
    return fail_errno(child_error, fmt::format("starting {}", spec.argv[0]));
  }
  UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd) {
    int error = errno;
    ::kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    return fail_errno(error, "pidfd_open");
  }
  return Child(pid, std::move(pidfd), spec.new_process_group);
}

Child::Child(Child&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      pidfd_(std::move(other.pidfd_)),
      group_(other.group_),
      status_(other.status_) {}

Child& Child::operator=(Child&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(pidfd_, other.pidfd_);
  std::swap(group_, other.group_);
  std::swap(status_, other.status_);
  return *this;
}

Child::~Child() {
  if (pid_ < 0 || status_) return;
  kill(SIGKILL);
  wait();
}

std::optional<ExitStatus> Child::wait(std::chrono::milliseconds limit) {
  if (status_ || pid_ < 0) return status_;
  auto deadline = std::chrono::steady_clock::now() + limit;
  for (;;) {
    auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd entry{.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
    int ready = poll(&entry, 1, static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1 << 30)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return std::nullopt;
    return wait();
  }
}

ExitStatus Child::wait() {
  if (status_) return *status_;
  int raw = 0;
  while (waitpid(pid_, &raw, 0) < 0 && errno == EINTR) {
  }
  status_ = WIFSIGNALED(raw) ? ExitStatus{0, WTERMSIG(raw)} : ExitStatus{WEXITSTATUS(raw), 0};
  return *status_;
}

void Child::kill(int signal) {
  if (pid_ < 0 || status_) return;
  // Until it is reaped the number cannot be given to another process.
  if (group_) ::kill(-pid_, signal);
  ::kill(pid_, signal);
}

void Child::release() {
  pid_ = -1;
}

}  // namespace anchorhold
