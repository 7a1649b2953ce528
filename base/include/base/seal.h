// Sealing: giving up, for good, every right a process does not need. A process that parses hostile bytes
// builds a SealPolicy, calls seal() before it reads its first byte, and ends if that fails. Linux:
// no_new_privs, Landlock (landlock(7)), seccomp (seccomp(2)), rlimits, closed descriptors, not dumpable. Call
// it while single-threaded.
#pragma once

#include <cstdint>
#include <string>
#include <sys/resource.h>
#include <vector>

#include "base/error.h"

namespace anchorhold {

// Files the process may still reach by path. Everything not named is gone.
struct FileRight {
  enum class Access { read, read_write };
  int directory_fd;  // an O_PATH or ordinary descriptor; the right holds for everything beneath it
  Access access = Access::read;
};

// One system call that stays; all others answer EPERM, or kill the process when policy.kill_on_violation is
// set.
struct SyscallRule {
  struct Argument {
    unsigned index;      // 0 to 5
    std::uint64_t mask;  // allowed when (argument & mask) == value
    std::uint64_t value;
  };
  std::string name;                 // "read"; a name unknown on this architecture is ignored
  std::vector<Argument> arguments;  // all must hold; empty: always allowed
  bool refused = false;             // answers EPERM after all, where a library asks and takes a no
};

struct ResourceLimit {
  __rlimit_resource resource;
  std::uint64_t value;
};

struct SealPolicy {
  std::vector<FileRight> files;
  std::vector<SyscallRule> syscalls;  // see base_syscalls()
  std::vector<ResourceLimit> limits;
  std::vector<int> kept_descriptors;  // besides 0, 1, 2; all others are closed
  bool kill_on_violation = true;
  // TCP connections to anywhere, where Landlock could refuse them; whether there are sockets at all is up to
  // the system calls. Listening on a port stays refused.
  bool may_connect = false;
  // Goes on when the kernel has no Landlock. Only for tests of machines without it: what is lost is the file
  // boundary.
  bool allow_weak = false;
};

struct SealReport {
  int landlock_abi = 0;  // 0: none
  bool seccomp = false;
};

Result<SealReport> seal(const SealPolicy& policy);

// What any event loop needs: reading, writing and polling open descriptors, memory, time, threads, exit.
// No opening of files, no sockets, no exec, no signals to others.
std::vector<SyscallRule> base_syscalls();
// Adds unconditional rules by name.
void allow(SealPolicy& policy, std::initializer_list<const char*> names);

// The kernel's Landlock version; 0 when it has none or it is switched off.
int landlock_abi();

}  // namespace anchorhold
