#include "reader/reader_seal.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace anchorhold::mounts {
namespace {

// The flags of an openat that may be any; all others are as they are in `value`.
SyscallRule openat_rule(unsigned any, unsigned value) {
  return {"openat", {{2, ~static_cast<std::uint64_t>(any), value}}};
}

}  // namespace

SealPolicy reader_policy(const ReaderSeal& seal) {
  SealPolicy policy;
  policy.syscalls = base_syscalls();
  // Landlock before its third version does not govern truncation, not even by O_RDONLY|O_TRUNC. So openat has
  // two forms only, a look at a name and an opening for reading; truncate, ftruncate and openat2 (whose flags
  // a filter cannot see) are not there at all.
  policy.syscalls.push_back(openat_rule(O_DIRECTORY, O_PATH | O_NOFOLLOW | O_CLOEXEC));
  policy.syscalls.push_back(openat_rule(O_DIRECTORY | O_NOFOLLOW, O_RDONLY | O_CLOEXEC));
  allow(policy, {"statx", "fstatfs", "readlinkat", "getdents64", "fgetxattr", "flistxattr", "fsync",
                 "fdatasync", "accept4"});
  if (seal.writes) allow(policy, {"pwritev", "pwritev2", "pwrite64", "copy_file_range"});

  policy.files = {{seal.root, FileRight::Access::read}};
  policy.kept_descriptors = seal.sockets;
  policy.kept_descriptors.push_back(seal.own_descriptors);
  policy.allow_weak = seal.allow_weak;
  policy.limits = {{RLIMIT_CORE, 0}, {RLIMIT_MEMLOCK, 0}};
  if (!seal.writes) policy.limits.push_back({RLIMIT_FSIZE, 0});
#ifndef ANCHORHOLD_SANITIZED  // whose shadow memory is larger than any machine
  policy.limits.push_back({RLIMIT_DATA, 2ull << 30});
#endif
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  constexpr rlim_t enough = 1u << 18;
  policy.limits.push_back({RLIMIT_NOFILE, std::min(files.rlim_max, enough)});
  return policy;
}

Status drop_capabilities() {
  if (geteuid() != 0) return {};
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  if (syscall(SYS_capget, &header, data) != 0) return fail_errno(errno, "capget");
  constexpr std::uint32_t kept = 1u << CAP_DAC_READ_SEARCH;
  data[0].effective &= kept;
  data[0].permitted &= kept;
  data[1].effective = data[1].permitted = 0;
  data[0].inheritable = data[1].inheritable = 0;
  if (syscall(SYS_capset, &header, data) != 0) return fail_errno(errno, "capset");
  return {};
}

}  // namespace anchorhold::mounts
