// A standard stream that we are started without is given to whatever is opened first, and our input and
// output would go there. Libraries open descriptors before main() (gRPC 1.51 takes descriptor 0 for "none"
// and keeps it), so the gaps are closed before their constructors run: System V ABI, "Initialization and
// Termination Functions". Nothing of the C library's is used but the system calls.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

void close_gaps(int, char**, char**) {
  for (long fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd)
    if (syscall(SYS_fcntl, fd, F_GETFD) < 0) (void)syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR);
}

[[gnu::section(".preinit_array"), gnu::used]] void (*const before_all)(int, char**, char**) = close_gaps;

}  // namespace
