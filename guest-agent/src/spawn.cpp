#include "spawn.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <linux/close_range.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"

namespace anchorhold::guest {
namespace {

enum class Step { none, group, session, terminal, descriptors, user, directory, program };

// Shared with the child: it runs in our memory, so it only reads this and writes the two last fields.
struct ChildPlan {
  const char* const* candidates;
  char* const* argv;
  char* const* shell_argv;  // sh, the program, its arguments: for scripts without "#!"
  char* const* environment;
  const char* working_directory;
  const int* standard;
  bool controlling_terminal;
  int group_procs;  // >= 0: the child moves itself there, where clone3 could not
  bool change_user;
  uid_t uid;
  gid_t gid;
  const gid_t* groups;
  std::size_t group_count;
  rlim_t open_files;

  int error = 0;
  Step step = Step::none;
};

// The raw calls: the C library's set*id would change all threads of the agent, whose memory the child still
// shares.
bool become_user(const ChildPlan& plan) {
  if (!plan.change_user) return true;
  return syscall(SYS_setgroups, plan.group_count, plan.groups) == 0 &&
         syscall(SYS_setresgid, plan.gid, plan.gid, plan.gid) == 0 &&
         syscall(SYS_setresuid, plan.uid, plan.uid, plan.uid) == 0;
}

// Gives back what the agent holds for itself: its protection from the memory killer, its descriptors limit.
void shed_privileges_of_agent(const ChildPlan& plan) {
  int file = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (file >= 0) (void)!write(file, "0", 1);
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur > plan.open_files) {
    files.rlim_cur = plan.open_files;
    setrlimit(RLIMIT_NOFILE, &files);
  }
}

int run_candidates(const ChildPlan& plan) {
  int worst = ENOENT;
  for (const char* const* path = plan.candidates; *path != nullptr; ++path) {
    execve(*path, plan.argv, plan.environment);
    if (errno == ENOEXEC) {
      const_cast<char**>(plan.shell_argv)[1] = const_cast<char*>(*path);
      execve("/bin/sh", plan.shell_argv, plan.environment);
    }
    if (errno == EACCES) worst = EACCES;
    if (errno != ENOENT && errno != ENOTDIR && errno != EACCES) return errno;
  }
  return worst;
}

// Everything here runs between birth and exec, in the agent's memory: system calls only.
[[noreturn]] void run_child(ChildPlan& plan) {
  auto check = [&plan](Step step, bool ok) {
    if (ok) return;
    plan.error = errno;
    plan.step = step;
    _exit(127);
  };
  struct sigaction ignore_none {};
  ignore_none.sa_handler = SIG_DFL;
  for (int number = 1; number < 65; ++number) sigaction(number, &ignore_none, nullptr);
  if (plan.group_procs >= 0) check(Step::group, write(plan.group_procs, "0", 1) == 1);
  check(Step::session, setsid() >= 0);
  for (int i = 0; i < 3; ++i) check(Step::descriptors, dup2(plan.standard[i], i) == i);
  if (plan.controlling_terminal) check(Step::terminal, ioctl(0, TIOCSCTTY, 0) == 0);
  shed_privileges_of_agent(plan);
  check(Step::descriptors, syscall(SYS_close_range, 3u, ~0u, CLOSE_RANGE_CLOEXEC) == 0);
  check(Step::user, become_user(plan));
  umask(022);
  check(Step::directory, chdir(plan.working_directory) == 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  errno = run_candidates(plan);
  check(Step::program, false);
  __builtin_unreachable();
}

// clone3(2) and clone(2) by hand: the C library has no wrapper that may share memory without a stack of its
// own. The child runs on the caller's stack below this frame while the caller waits, which is what vfork(2)
// does, too.
__attribute__((always_inline)) inline long raw_call(long number, long first, long second, long third) {
  long result;
  register long r10 __asm__("r10") = 0;
  register long r8 __asm__("r8") = 0;
#if defined(__x86_64__)
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "0"(number), "D"(first), "S"(second), "d"(third), "r"(r10), "r"(r8)
                   : "rcx", "r11", "memory");
#else
#error "add this architecture's system call here"
#endif
  return result;
}

__attribute__((noinline)) long give_birth(ChildPlan& plan, int group_directory, int group_procs) {
  clone_args args{};
  args.flags = CLONE_VM | CLONE_VFORK | (group_directory >= 0 ? CLONE_INTO_CGROUP : 0);
  args.exit_signal = SIGCHLD;
  args.cgroup = group_directory >= 0 ? static_cast<std::uint64_t>(group_directory) : 0;
  long pid = raw_call(SYS_clone3, reinterpret_cast<long>(&args), sizeof args, 0);
  if (pid == 0) run_child(plan);
  if (pid != -ENOSYS && pid != -EPERM && pid != -EINVAL) return pid;
  // A sandbox around us that does not know clone3: the older call, and the child enters its group by itself.
  plan.group_procs = group_procs;
  pid = raw_call(SYS_clone, CLONE_VM | CLONE_VFORK | SIGCHLD, 0, 0);
  if (pid == 0) run_child(plan);
  return pid;
}

std::vector<char*> c_strings(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (const auto& text : strings) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

std::string explain(const ProgramSpec& spec, Step step, int error) {
  switch (step) {
    case Step::group:
      return fmt::format("entering the command's control group: {}", strerror(error));
    case Step::session:
      return fmt::format("starting a session: {}", strerror(error));
    case Step::terminal:
      return fmt::format("taking the terminal: {}", strerror(error));
    case Step::descriptors:
      return fmt::format("passing the standard streams: {}", strerror(error));
    case Step::user:
      return fmt::format("becoming user {}: {}", spec.uid, strerror(error));
    case Step::directory:
      return fmt::format("working directory {}: {}", spec.working_directory, strerror(error));
    case Step::none:
    case Step::program:
      break;
  }
  if (error == E2BIG)
    return "the arguments and the environment are too long: the kernel takes 2 MiB in all and 128 KiB in one "
           "string";
  if (error == ENOENT && spec.argv[0].find('/') == std::string::npos)
    return fmt::format("{}: command not found", spec.argv[0]);
  return fmt::format("{}: {}", spec.argv[0], strerror(error));
}

}  // namespace

std::vector<std::string> candidates_for(const std::string& name, const std::string& path) {
  if (name.find('/') != std::string::npos) return {name};
  std::vector<std::string> found;
  std::size_t start = 0;
  while (!name.empty() && start <= path.size() && found.size() < 64) {
    std::size_t end = std::min(path.find(':', start), path.size());
    std::string folder = path.substr(start, end - start);
    found.push_back(folder.empty() ? name : folder + "/" + name);
    start = end + 1;
  }
  return found;
}

SpawnResult spawn_program(const ProgramSpec& spec) {
  auto argv = c_strings(spec.argv);
  auto environment = c_strings(spec.environment);
  auto candidates = c_strings(spec.candidates);
  std::vector<char*> shell_argv{const_cast<char*>("sh"), nullptr};
  shell_argv.insert(shell_argv.end(), argv.begin() + 1, argv.end());
  constexpr rlim_t usual_open_files = 1024;
  ChildPlan plan{candidates.data(),
                 argv.data(),
                 shell_argv.data(),
                 environment.data(),
                 spec.working_directory.c_str(),
                 spec.standard,
                 spec.controlling_terminal,
                 -1,
                 spec.change_user,
                 spec.uid,
                 spec.gid,
                 spec.groups.data(),
                 spec.groups.size(),
                 usual_open_files};
  UniqueFd procs;
  if (spec.group_directory >= 0)
    procs.reset(openat(spec.group_directory, "cgroup.procs", O_WRONLY | O_CLOEXEC));
  // No signal may run a handler of ours in the child.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  long pid = give_birth(plan, spec.group_directory, procs.get());
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) {
    int error = static_cast<int>(-pid);
    return {-1,
            {error, error == EAGAIN ? "no more processes are possible in the guest"
                                    : fmt::format("making a process: {}", strerror(error))}};
  }
  SpawnResult result{static_cast<pid_t>(pid), {}};
  if (plan.step != Step::none) result.error = {plan.error, explain(spec, plan.step, plan.error)};
  return result;
}

}  // namespace anchorhold::guest
