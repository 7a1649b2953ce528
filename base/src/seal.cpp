#include "base/seal.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/landlock.h>
#include <malloc.h>
#include <memory>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"

namespace anchorhold {
namespace {

// Rights by Landlock version (linux/landlock.h of newer kernels than the headers we build with).
constexpr std::uint64_t rights_abi1 = (1ull << 13) - 1;
constexpr std::uint64_t right_refer = 1ull << 13;       // 2
constexpr std::uint64_t right_truncate = 1ull << 14;    // 3
constexpr std::uint64_t right_ioctl_dev = 1ull << 15;   // 5
constexpr std::uint64_t net_bind = 1, net_connect = 2;  // 4
constexpr std::uint64_t scope_all = 3;                  // 6: abstract unix sockets, signals

struct RulesetAttributes {
  std::uint64_t handled_access_fs;
  std::uint64_t handled_access_net;
  std::uint64_t scoped;
};

std::uint64_t file_rights(int abi) {
  std::uint64_t rights = rights_abi1;
  if (abi >= 2) rights |= right_refer;
  if (abi >= 3) rights |= right_truncate;
  if (abi >= 5) rights |= right_ioctl_dev;
  return rights;
}

constexpr std::uint64_t read_rights = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
constexpr std::uint64_t file_only_rights = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_WRITE_FILE |
                                           LANDLOCK_ACCESS_FS_READ_FILE | right_truncate | right_ioctl_dev;

Status restrict_files(const SealPolicy& policy, int abi) {
  std::uint64_t net_rights = policy.may_connect ? net_bind : net_bind | net_connect;
  RulesetAttributes attributes{file_rights(abi), abi >= 4 ? net_rights : 0, abi >= 6 ? scope_all : 0};
  std::size_t size = abi >= 6 ? 24 : abi >= 4 ? 16 : 8;
  UniqueFd ruleset(static_cast<int>(syscall(SYS_landlock_create_ruleset, &attributes, size, 0)));
  if (!ruleset) return fail_errno(errno, "landlock_create_ruleset");
  for (const auto& right : policy.files) {
    struct stat info;
    if (fstat(right.directory_fd, &info) != 0) return fail_errno(errno, "sealing: a granted file");
    landlock_path_beneath_attr rule{};
    rule.parent_fd = right.directory_fd;
    std::uint64_t access = read_rights;
    if (right.access == FileRight::Access::read_write)
      access = file_rights(abi) & ~(LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_MAKE_CHAR |
                                    LANDLOCK_ACCESS_FS_MAKE_BLOCK | right_ioctl_dev);
    if (!S_ISDIR(info.st_mode)) access &= file_only_rights;
    rule.allowed_access = access;
    if (syscall(SYS_landlock_add_rule, ruleset.get(), LANDLOCK_RULE_PATH_BENEATH, &rule, 0) != 0)
      return fail_errno(errno, "landlock_add_rule");
  }
  if (syscall(SYS_landlock_restrict_self, ruleset.get(), 0) != 0)
    return fail_errno(errno, "landlock_restrict_self");
  return {};
}

Status restrict_syscalls(const SealPolicy& policy) {
  auto action = policy.kill_on_violation ? SCMP_ACT_KILL_PROCESS : SCMP_ACT_ERRNO(EPERM);
  std::unique_ptr<void, void (*)(void*)> context(seccomp_init(action), [](void* c) { seccomp_release(c); });
  if (!context) return fail(ErrorCode::internal, "seccomp_init failed");
  for (const auto& rule : policy.syscalls) {
    int number = seccomp_syscall_resolve_name(rule.name.c_str());
    if (number == __NR_SCMP_ERROR) continue;
    std::vector<scmp_arg_cmp> comparisons;
    for (const auto& argument : rule.arguments)
      comparisons.push_back({argument.index, SCMP_CMP_MASKED_EQ, argument.mask, argument.value});
    int error = seccomp_rule_add_array(context.get(), rule.refused ? SCMP_ACT_ERRNO(EPERM) : SCMP_ACT_ALLOW,
                                       number, static_cast<unsigned>(comparisons.size()), comparisons.data());
    if (error != 0) return fail_errno(-error, fmt::format("seccomp rule for {}", rule.name));
  }
  // glibc falls back to clone, whose flags a filter can see, when clone3 does not exist.
  if (int error = seccomp_rule_add(context.get(), SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0); error != 0)
    return fail_errno(-error, "seccomp rule for clone3");
  if (int error = seccomp_load(context.get()); error != 0) return fail_errno(-error, "seccomp_load");
  return {};
}

Status close_others(std::vector<int> kept) {
  kept.insert(kept.end(), {0, 1, 2});
  std::sort(kept.begin(), kept.end());
  kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
  unsigned next = 0;
  for (int fd : kept) {
    if (fd < 0) continue;
    auto number = static_cast<unsigned>(fd);
    if (number > next && syscall(SYS_close_range, next, number - 1, 0) != 0)
      return fail_errno(errno, "close_range");
    next = number + 1;
  }
  if (syscall(SYS_close_range, next, ~0u, 0) != 0) return fail_errno(errno, "close_range");
  return {};
}

}  // namespace

int landlock_abi() {
  long version = syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  return version > 0 ? static_cast<int>(version) : 0;
}

Result<SealReport> seal(const SealPolicy& policy) {
  SealReport report;
  std::vector<int> kept = policy.kept_descriptors;
  for (const auto& right : policy.files) kept.push_back(right.directory_fd);
  ANCHORHOLD_CHECK(close_others(std::move(kept)));
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return fail_errno(errno, "no_new_privs");
  if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return fail_errno(errno, "PR_SET_DUMPABLE");
  for (const auto& limit : policy.limits) {
    rlimit value{limit.value, limit.value};
    if (setrlimit(limit.resource, &value) != 0) return fail_errno(errno, "setrlimit");
  }
  report.landlock_abi = landlock_abi();
  if (report.landlock_abi > 0) {
    ANCHORHOLD_CHECK(restrict_files(policy, report.landlock_abi));
  } else if (!policy.allow_weak) {
    return fail(ErrorCode::unsupported, "this kernel has no Landlock, so files cannot be walled off",
                "boot a kernel with CONFIG_SECURITY_LANDLOCK and 'landlock' in its lsm= list");
  }
  // With an arena for each thread, glibc opens a file of /proc when the first of them shrinks.
#ifndef ANCHORHOLD_SANITIZED  // whose allocator is another one
  if (mallopt(M_ARENA_MAX, 1) != 1) return fail(ErrorCode::internal, "mallopt");
#endif
  ANCHORHOLD_CHECK(restrict_syscalls(policy));
  report.seccomp = true;
  return report;
}

void allow(SealPolicy& policy, std::initializer_list<const char*> names) {
  for (const char* name : names) policy.syscalls.push_back({name, {}});
}

std::vector<SyscallRule> base_syscalls() {
  SealPolicy collected;
  allow(collected, {"read",
                    "readv",
                    "pread64",
                    "preadv",
                    "write",
                    "writev",
                    "close",
                    "dup",
                    "fcntl",
                    "fstat",
                    "newfstatat",
                    "lseek",
                    "poll",
                    "ppoll",
                    "epoll_create1",
                    "epoll_ctl",
                    "epoll_wait",
                    "epoll_pwait",
                    "epoll_pwait2",
                    "eventfd2",
                    "timerfd_create",
                    "timerfd_settime",
                    "timerfd_gettime",
                    "brk",
                    "munmap",
                    "mremap",
                    "madvise",
                    "futex",
                    "set_robust_list",
                    "get_robust_list",
                    "rseq",
                    "clock_gettime",
                    "clock_getres",
                    "clock_nanosleep",
                    "nanosleep",
                    "gettimeofday",
                    "time",
                    "getpid",
                    "gettid",
                    "getuid",
                    "geteuid",
                    "getgid",
                    "getegid",
                    "getrandom",
                    "sched_yield",
                    "sched_getaffinity",
                    "restart_syscall",
                    "rt_sigreturn",
                    "rt_sigaction",
                    "rt_sigprocmask",
                    "sigaltstack",
                    "exit",
                    "exit_group",
                    "recvmsg",
                    "sendmsg",
                    "recvfrom",
                    "sendto",
                    "shutdown",
                    "getsockopt",
                    "membarrier",
                    "prlimit64",
                    "uname",
                    "sysinfo"});
  // No page becomes executable again, and none is made so.
  collected.syscalls.push_back({"mprotect", {{2, PROT_EXEC, 0}}});
  collected.syscalls.push_back({"mmap", {{2, PROT_EXEC, 0}}});
  // New threads, never new processes: CLONE_THREAD must be set.
  constexpr std::uint64_t clone_thread = 0x00010000;
  collected.syscalls.push_back({"clone", {{0, clone_thread, clone_thread}}});
  // Our own threads may be signalled (abort).
  allow(collected, {"tgkill"});
#ifdef ANCHORHOLD_SANITIZED
  // The sanitizers read /proc and map shadow memory while the program runs.
  allow(collected, {"readlink", "readlinkat", "openat", "getdents64", "ptrace", "wait4", "prctl", "mmap",
                    "mprotect", "clone", "pipe", "pipe2"});
#endif
  return collected.syscalls;
}

}  // namespace anchorhold
