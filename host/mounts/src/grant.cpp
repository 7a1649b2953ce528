#include "mounts/grant.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/paths.h"
#include "open_path.h"

namespace anchorhold::mounts {
namespace {

constexpr std::size_t max_grant_name = 100;
constexpr std::size_t max_tag = 36;

// Not these themselves, but what a person keeps in them.
const char* const refused_themselves[] = {
    "/",    "/home",  "/root", "/usr",       "/usr/local", "/usr/share", "/var",     "/opt",       "/srv",
    "/mnt", "/media", "/tmp",  "/run/media", "/var/tmp",   "/usr/src",   "/var/log", "/lost+found"};
// Not these, and nothing in them.
const char* const refused_whole[] = {"/etc",       "/proc",      "/sys",         "/dev",        "/boot",
                                     "/bin",       "/sbin",      "/lib",         "/lib32",      "/lib64",
                                     "/libx32",    "/run",       "/usr/bin",     "/usr/sbin",   "/usr/lib",
                                     "/usr/lib32", "/usr/lib64", "/usr/libexec", "/usr/etc",    "/var/lib",
                                     "/var/cache", "/var/spool", "/var/run",     "/var/backups"};
// Where removable disks are put.
const char* const allowed_within_refused[] = {"/run/media"};

// a is b or beneath it; both absolute and normal.
bool is_within(const std::filesystem::path& a, const std::filesystem::path& b) {
  auto end = std::mismatch(b.begin(), b.end(), a.begin(), a.end());
  return end.first == b.end();
}

tl::unexpected<Error> refuse(const std::filesystem::path& path, std::string_view why, std::string hint) {
  return fail(ErrorCode::permission_denied, fmt::format("{} cannot be granted: {}", path.string(), why),
              std::move(hint));
}

Error refusal(const std::filesystem::path& path, std::string_view why, std::string hint) {
  return refuse(path, why, std::move(hint)).value();
}

Status check_access(int fd, const struct stat& info, Mode mode, const std::filesystem::path& path) {
  auto allowed = [&](int wanted) {
    return faccessat(AT_FDCWD, fmt::format("/proc/self/fd/{}", fd).c_str(), wanted, AT_EACCESS) == 0;
  };
  int read = S_ISDIR(info.st_mode) ? R_OK | X_OK : R_OK;
  if (!allowed(read))
    return fail(ErrorCode::permission_denied, fmt::format("{} cannot be read by this user", path.string()),
                "change its permissions, or grant another folder");
  if (mode != Mode::ro && !allowed(W_OK))
    return fail(ErrorCode::permission_denied, fmt::format("{} cannot be written by this user", path.string()),
                fmt::format("grant it read-only: --ro {}", path.string()));
  return {};
}

Status judge_among_others(const Grant& grant, std::span<const Grant> others) {
  for (const Grant& other : others) {
    if (other.host_path == grant.host_path)
      return fail(
          ErrorCode::already_exists,
          fmt::format("{} is granted already, as {}", grant.host_path.string(), to_string(other.mode)),
          "name each folder once");
    bool above = is_within(other.host_path, grant.host_path);
    bool below = is_within(grant.host_path, other.host_path);
    const Grant& outer = above ? grant : other;
    const Grant& inner = above ? other : grant;
    if ((above || below) && strictness(inner.mode) > strictness(outer.mode))
      return refuse(
          grant.host_path,
          fmt::format("{} is granted {} and lies in {}, which would be {}", inner.host_path.string(),
                      to_string(inner.mode), outer.host_path.string(), to_string(outer.mode)),
          "what protects the inner folder would be undone through the outer one; give the outer one the "
          "stricter mode, or leave one out");
  }
  return {};
}

// The length of a valid UTF-8 sequence at the beginning, 0 when there is none (RFC 3629).
std::size_t utf8_length(std::string_view text) {
  auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  std::size_t length = byte(0) < 0x80                      ? 1
                       : byte(0) >= 0xc2 && byte(0) < 0xe0 ? 2
                       : (byte(0) & 0xf0) == 0xe0          ? 3
                       : byte(0) >= 0xf0 && byte(0) < 0xf5 ? 4
                                                           : 0;
  if (length == 0 || length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  if (length == 3 && ((byte(0) == 0xe0 && byte(1) < 0xa0) || (byte(0) == 0xed && byte(1) > 0x9f))) return 0;
  if (length == 4 && ((byte(0) == 0xf0 && byte(1) < 0x90) || (byte(0) == 0xf4 && byte(1) > 0x8f))) return 0;
  return length;
}

std::string clean_name(std::string_view name, std::size_t most) {
  std::string clean;
  while (!name.empty()) {
    std::size_t length = utf8_length(name);
    unsigned char first = static_cast<unsigned char>(name[0]);
    bool control = length == 1 && (first < 0x20 || first == 0x7f || first == '/');
    bool c1_control = length == 2 && first == 0xc2 && static_cast<unsigned char>(name[1]) < 0xa0;
    std::string_view next = length == 0 || control || c1_control ? "_" : name.substr(0, length);
    if (clean.size() + next.size() > most) break;
    clean += next;
    name.remove_prefix(std::max<std::size_t>(length, 1));
  }
  if (clean.empty() || clean == "." || clean == "..") return "folder";
  return clean;
}

}  // namespace

std::string Grant::guest_path() const {
  return "/mnt/" + name + (only_file ? "/" + *only_file : "");
}

Result<GrantRules> GrantRules::current() {
  GrantRules rules;
  std::vector<std::filesystem::path> folders = {
      ANCHORHOLD_TRY(config_directory()), ANCHORHOLD_TRY(state_directory()),
      ANCHORHOLD_TRY(cache_directory()), ANCHORHOLD_TRY(runtime_directory())};
  std::error_code error;
  for (const auto& folder : folders) {
    auto real = std::filesystem::canonical(folder, error);
    if (error)
      return fail(ErrorCode::failed_precondition, fmt::format("{}: {}", folder.string(), error.message()));
    rules.own_folders.push_back(std::move(real));
  }
  std::filesystem::path home;
  if (const char* value = std::getenv("HOME"); value && value[0] == '/') home = value;
  const passwd* entry = getpwuid(getuid());
  if (home.empty() && entry && entry->pw_dir) home = entry->pw_dir;
  if (!home.empty()) rules.home = std::filesystem::canonical(home, error);
  if (error) rules.home = home;
  return rules;
}

std::optional<Error> judge_path(const std::filesystem::path& path, const GrantRules& rules) {
  const std::string smaller = "grant the folder the task is about, not one that holds everything";
  if (!rules.home.empty() && rules.home != "/") {
    if (path == rules.home)
      return refusal(path, "it is the home folder itself, with everything of its owner",
                     "grant a folder in it");
    if (is_within(rules.home, path)) return refusal(path, "it holds the home folder", smaller);
  }
  for (const auto& own : rules.own_folders) {
    if (is_within(path, own))
      return refusal(path, "it is where Anchorhold keeps its own state", "grant another folder");
    if (is_within(own, path))
      return refusal(path, fmt::format("it holds Anchorhold's own state ({})", own.string()), smaller);
  }
  bool beneath_allowed = std::any_of(std::begin(allowed_within_refused), std::end(allowed_within_refused),
                                     [&](const char* allowed) { return is_within(path, allowed); });
  for (const char* folder : refused_themselves)
    if (path == folder) return refusal(path, "it is a system folder", smaller);
  for (const char* folder : refused_whole)
    if (!beneath_allowed && is_within(path, folder))
      return refusal(path, "it belongs to the system", "copy what is needed to a folder of your own");
  bool in_home = !rules.home.empty() && is_within(path, rules.home);
  auto relative = in_home ? path.lexically_relative(rules.home) : path.lexically_relative("/");
  for (const auto& part : relative)
    if (rules.hidden->hides(part.string()))
      return refusal(path, fmt::format("'{}' is a name under which secrets are kept", part.string()),
                     "copy what the task needs to a folder of another name");
  return std::nullopt;
}

std::string grant_name(std::string_view file_name, std::span<const std::string> taken) {
  auto is_taken = [&](const std::string& name) {
    return std::find(taken.begin(), taken.end(), name) != taken.end();
  };
  std::string name = clean_name(file_name, max_grant_name);
  for (int number = 2; is_taken(name); ++number) {
    std::string suffix = fmt::format("-{}", number);
    name = clean_name(file_name, max_grant_name - suffix.size()) + suffix;
  }
  return name;
}

std::string grant_tag(std::string_view name) {
  bool plain = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  });
  std::string tag = fmt::format("grant-{}", name);
  if (plain && tag.size() <= max_tag) return tag;
  std::uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a
  for (unsigned char c : name) hash = (hash ^ c) * 0x100000001b3ull;
  return fmt::format("grant.{:016x}", hash);
}

Result<Grant> resolve_grant(const std::filesystem::path& path, Mode mode, std::span<const Grant> others,
                            const GrantRules& rules) {
  UniqueFd object(open(path.c_str(), O_PATH | O_CLOEXEC));
  if (!object) {
    std::string hint =
        errno == ENOENT ? "check the spelling; the folder must exist before it is granted" : "";
    return fail_errno(errno, path.string(), std::move(hint));
  }
  struct stat info;
  if (fstat(object.get(), &info) != 0) return fail_errno(errno, path.string());
  if (!S_ISDIR(info.st_mode) && !S_ISREG(info.st_mode))
    return fail(ErrorCode::invalid_argument, fmt::format("{} is neither a folder nor a file", path.string()),
                "grant a folder or a regular file");
  Grant grant;
  grant.mode = mode;
  grant.host_path = ANCHORHOLD_TRY(path_of(object.get(), path.string()));
  if (auto refused = judge_path(grant.host_path, rules)) return fail(std::move(*refused));
  ANCHORHOLD_CHECK(check_access(object.get(), info, mode, grant.host_path));
  ANCHORHOLD_CHECK(judge_among_others(grant, others));
  if (S_ISDIR(info.st_mode)) {
    grant.root = std::move(object);
  } else {
    grant.only_file = grant.host_path.filename().string();
    grant.root = UniqueFd(open(grant.host_path.parent_path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    struct stat again;
    if (!grant.root || fstatat(grant.root.get(), grant.only_file->c_str(), &again, AT_SYMLINK_NOFOLLOW) != 0)
      return fail_errno(errno, grant.host_path.string());
    if (again.st_dev != info.st_dev || again.st_ino != info.st_ino)
      return fail(ErrorCode::unavailable, fmt::format("{} changed while it was being granted", path.string()),
                  "try again");
  }
  std::vector<std::string> taken;
  for (const Grant& other : others) taken.push_back(other.name);
  grant.name = grant_name(grant.host_path.filename().string(), taken);
  grant.tag = grant_tag(grant.name);
  return grant;
}

}  // namespace anchorhold::mounts
