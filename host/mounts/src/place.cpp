#include "place.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "open_path.h"

namespace anchorhold::mounts {
namespace {

constexpr std::string_view mount_root = "mnt";
constexpr int open_attempts = 16;

tl::unexpected<Error> not_there(const Place& place) {
  return fail(ErrorCode::not_found, fmt::format("{} does not exist", place.shown));
}

std::vector<std::string> words_of(std::string_view path) {
  std::vector<std::string> words;
  while (!path.empty()) {
    auto slash = path.find('/');
    if (slash != 0) words.emplace_back(path.substr(0, slash));
    path = slash == std::string_view::npos ? std::string_view{} : path.substr(slash + 1);
  }
  return words;
}

bool exists_for_guest(const AccessibleGrant& grant, std::span<const std::string> parts) {
  if (grant.only_file && !parts.empty() && (parts.size() != 1 || parts[0] != *grant.only_file)) return false;
  return std::none_of(parts.begin(), parts.end(),
                      [&](const std::string& part) { return grant.hidden.hides(part); });
}

}  // namespace

Result<std::vector<std::string>> split_path(const std::string& path) {
  if (!path.starts_with('/') || path.find('\0') != std::string::npos)
    return fail(ErrorCode::invalid_argument, fmt::format("'{}' is not an absolute path", path),
                "paths begin with /mnt/ and the name of a granted folder");
  std::vector<std::string> words;
  for (auto& word : words_of(path)) {
    if (word == ".") continue;
    if (word != "..") {
      words.push_back(std::move(word));
    } else if (!words.empty()) {
      words.pop_back();
    }
  }
  return words;
}

Result<Place> find_place(std::span<const std::shared_ptr<const AccessibleGrant>> grants,
                         const std::string& path) {
  auto words = ANCHORHOLD_TRY(split_path(path));
  auto outside = [&] {
    return fail(ErrorCode::invalid_argument, fmt::format("{} is not in a granted folder", path),
                "only what is below /mnt/<name of a granted folder> can be reached");
  };
  if (words.size() < 2 || words[0] != mount_root) return outside();
  auto grant = std::find_if(grants.begin(), grants.end(), [&](const auto& g) { return g->name == words[1]; });
  if (grant == grants.end()) return outside();
  Place place{*grant, {words.begin() + 2, words.end()}, path};
  if (!exists_for_guest(**grant, place.parts)) return not_there(place);
  return place;
}

Result<UniqueFd> open_place(const Place& place) {
  return open_place(place, place.parts.size());
}

Result<UniqueFd> open_place(const Place& place, std::size_t count) {
  std::string path = count == 0 ? "." : place.parts[0];
  for (std::size_t i = 1; i < count; ++i) path += "/" + place.parts[i];
  open_how how{};
  how.flags = O_PATH | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  for (int attempt = 1;; ++attempt) {
    UniqueFd fd(
        static_cast<int>(syscall(SYS_openat2, place.grant->root.get(), path.c_str(), &how, sizeof how)));
    if (!fd && errno == EAGAIN && attempt < open_attempts) continue;
    if (!fd && (errno == ENOENT || errno == ENOTDIR)) return not_there(place);
    if (!fd && errno == EXDEV)
      return fail(ErrorCode::permission_denied,
                  fmt::format("{} leads out of the granted folder", place.shown));
    if (!fd) return fail_errno(errno, place.shown);
    // A symlink of a harmless name may have led to a hidden one.
    auto parts = ANCHORHOLD_TRY(parts_of(place, fd.get()));
    if (!exists_for_guest(*place.grant, parts)) return not_there(place);
    return fd;
  }
}

Result<std::vector<std::string>> parts_of(const Place& place, int object) {
  for (int attempt = 0; attempt < open_attempts; ++attempt) {
    auto root = ANCHORHOLD_TRY(path_of(place.grant->root.get(), "finding an open file"));
    auto path = ANCHORHOLD_TRY(path_of(object, "finding an open file"));
    if (path == root) return std::vector<std::string>{};
    if (path.starts_with(root + "/")) return words_of(std::string_view(path).substr(root.size() + 1));
  }
  return fail(ErrorCode::unavailable, fmt::format("{} is being moved", place.shown), "try again");
}

}  // namespace anchorhold::mounts
