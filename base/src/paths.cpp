#include "base/paths.h"

#include <cstdlib>
#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"

namespace anchorhold {
namespace {

Result<std::filesystem::path> home_directory() {
  if (const char* home = std::getenv("HOME"); home && home[0] == '/') return std::filesystem::path(home);
  if (const passwd* entry = getpwuid(getuid()); entry && entry->pw_dir && entry->pw_dir[0] == '/')
    return std::filesystem::path(entry->pw_dir);
  return fail(ErrorCode::failed_precondition, "the home folder is not known", "set HOME to an absolute path");
}

Result<std::filesystem::path> xdg_directory(const char* variable, const char* fallback) {
  std::filesystem::path path;
  if (const char* value = std::getenv(variable); value && value[0] == '/') {
    path = std::filesystem::path(value) / "anchorhold";
  } else {
    path = ANCHORHOLD_TRY(home_directory()) / fallback / "anchorhold";
  }
  ANCHORHOLD_CHECK(make_directories(path));
  return path;
}

}  // namespace

Result<std::filesystem::path> config_directory() {
  return xdg_directory("XDG_CONFIG_HOME", ".config");
}
Result<std::filesystem::path> cache_directory() {
  return xdg_directory("XDG_CACHE_HOME", ".cache");
}
Result<std::filesystem::path> state_directory() {
  return xdg_directory("XDG_STATE_HOME", ".local/state");
}

Result<std::filesystem::path> runtime_directory() {
  std::filesystem::path path = fmt::format("/tmp/anchorhold-{}", getuid());
  if (const char* value = std::getenv("XDG_RUNTIME_DIR"); value && value[0] == '/')
    path = std::filesystem::path(value) / "anchorhold";
  ANCHORHOLD_CHECK(make_directories(path));
  struct stat info;
  if (lstat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != geteuid() ||
      (info.st_mode & 077) != 0)
    return fail(ErrorCode::permission_denied,
                fmt::format("{} is not a private folder of this user", path.string()),
                fmt::format("remove it, or set XDG_RUNTIME_DIR to a private folder"));
  return path;
}

Result<std::filesystem::path> own_program(std::string_view name) {
  std::error_code error;
  auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return fail(ErrorCode::failed_precondition, "/proc/self/exe cannot be read: " + error.message());
  for (const auto& folder : {self.parent_path(), self.parent_path().parent_path() / "libexec" / "anchorhold",
                             self.parent_path().parent_path() / "bin"}) {
    auto candidate = folder / name;
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return fail(ErrorCode::failed_precondition,
              fmt::format("the program {} is missing beside {}", name, self.string()),
              "install the whole package again, or build every target");
}

}  // namespace anchorhold
