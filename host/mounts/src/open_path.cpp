#include "open_path.h"

#include <cerrno>
#include <climits>
#include <fmt/format.h>
#include <unistd.h>

namespace anchorhold::mounts {

Result<std::string> path_of(int fd, std::string_view what) {
  char buffer[PATH_MAX];
  ssize_t size = readlink(fmt::format("/proc/self/fd/{}", fd).c_str(), buffer, sizeof buffer);
  if (size < 0) return fail_errno(errno, what);
  if (size == sizeof buffer) return fail_errno(ENAMETOOLONG, what);
  return std::string(buffer, static_cast<std::size_t>(size));
}

}  // namespace anchorhold::mounts
