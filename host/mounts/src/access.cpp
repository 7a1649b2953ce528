#include "mounts/access.h"

#include <algorithm>
#include <cerrno>
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <set>
#include <sys/stat.h>
#include <unistd.h>

#include "base/id.h"
#include "place.h"

namespace anchorhold::mounts {
namespace {

constexpr unsigned new_file_mode = 0644;
constexpr unsigned new_folder_mode = 0755;

FileInfo info_of(const struct stat& status) {
  FileInfo info;
  info.kind = S_ISREG(status.st_mode)   ? FileKind::file
              : S_ISDIR(status.st_mode) ? FileKind::directory
              : S_ISLNK(status.st_mode) ? FileKind::symlink
                                        : FileKind::other;
  info.size = static_cast<std::uint64_t>(status.st_size);
  auto since_epoch =
      std::chrono::seconds(status.st_mtim.tv_sec) + std::chrono::nanoseconds(status.st_mtim.tv_nsec);
  info.modified = std::chrono::system_clock::time_point(
      std::chrono::duration_cast<std::chrono::system_clock::duration>(since_epoch));
  return info;
}

Result<struct stat> status_of(const Place& place, int fd) {
  struct stat status;
  if (fstat(fd, &status) != 0) return fail_errno(errno, place.shown);
  return status;
}

Status check_regular(const Place& place, const struct stat& status) {
  if (S_ISREG(status.st_mode)) return {};
  if (S_ISDIR(status.st_mode))
    return fail(ErrorCode::invalid_argument, fmt::format("{} is a folder", place.shown));
  return fail(ErrorCode::invalid_argument, fmt::format("{} is not a regular file", place.shown));
}

// An O_PATH descriptor as one to read from; what it is of was checked before.
Result<UniqueFd> reopen(const Place& place, int fd, int flags) {
  UniqueFd opened(
      open(fmt::format("/proc/self/fd/{}", fd).c_str(), flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!opened) return fail_errno(errno, place.shown);
  return opened;
}

// What a keeper's refusal means to whoever asked for the path.
Status answered(const Place& place, const KeeperAnswer& answer) {
  if (answer.error == 0) return {};
  if (answer.error == EIO && place.grant->keeper->broken())
    return fail(ErrorCode::unavailable, fmt::format("{}: the keeper of this folder is gone", place.shown),
                "start a new session");
  std::string hint;
  if (answer.error == EACCES && place.grant->mode == Mode::rw_no_delete)
    hint = "the folder was granted so that nothing that was there before can be removed";
  if (answer.error == EDQUOT)
    hint = "a quota of the folder is used up: see what was kept, or end the session";
  return fail_errno(answer.error, place.shown, std::move(hint));
}

class Writer {
 public:
  explicit Writer(const Place& place) : place_(place), keeper_(*place.grant->keeper) {}

  Status write(std::string_view bytes) {
    if (place_.parts.empty())
      return fail(ErrorCode::invalid_argument, fmt::format("{} is a folder", place_.shown));
    auto existing = open_place(place_);
    if (existing) return replace(existing->get(), bytes);
    if (existing.error().code != ErrorCode::not_found) return fail(existing.error());
    UniqueFd folder = ANCHORHOLD_TRY(parent());
    struct stat status;
    if (fstatat(folder.get(), place_.parts.back().c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0)
      return fail(ErrorCode::invalid_argument,
                  fmt::format("{} is a symlink that leads nowhere", place_.shown));
    return put(folder.get(), place_.parts.back(), new_file_mode, bytes);
  }

 private:
  Status replace(int existing, std::string_view bytes) {
    auto status = ANCHORHOLD_TRY(status_of(place_, existing));
    ANCHORHOLD_CHECK(check_regular(place_, status));
    if (place_.grant->only_file) return overwrite(existing, bytes);
    // Where the symlinks on the way led to.
    Place real{place_.grant, ANCHORHOLD_TRY(parts_of(place_, existing)), place_.shown};
    if (real.parts.empty())
      return fail(ErrorCode::unavailable, fmt::format("{} is being moved", place_.shown));
    UniqueFd folder = ANCHORHOLD_TRY(open_place(real, real.parts.size() - 1));
    return put(folder.get(), real.parts.back(), status.st_mode & 0777, bytes);
  }

  Status overwrite(int existing, std::string_view bytes) {
    auto request = make_request(Verb::open_for_write);
    request.flags = open_flag::truncate;
    auto opened = ask(request, {existing});
    ANCHORHOLD_CHECK(answered(place_, opened));
    return fill(opened.descriptor.get(), bytes);
  }

  // Under another name first, then renamed into place.
  Status put(int folder, const std::string& name, unsigned mode, std::string_view bytes) {
    std::string temporary = fmt::format("anchorhold-{}.tmp", random_hex(6));
    auto request = make_request(Verb::create, temporary);
    request.flags = open_flag::exclusive;
    request.mode = mode;
    auto made = ask(request, {folder});
    ANCHORHOLD_CHECK(answered(place_, made));
    auto written = fill(made.descriptor.get(), bytes);
    if (written)
      written = answered(place_, ask(make_request(Verb::rename, temporary, name), {folder, folder}));
    if (!written) ask(make_request(Verb::unlink, temporary), {folder});
    return written;
  }

  Status fill(int file, std::string_view bytes) {
    auto request = make_request(Verb::account);
    request.size = bytes.size();
    ANCHORHOLD_CHECK(answered(place_, ask(request, {})));
    auto written = write_all(file, std::as_bytes(std::span(bytes)));
    if (written && fsync(file) != 0) written = fail_errno(errno, "writing");
    if (!written) return fail(with_context(written.error(), place_.shown));
    return {};
  }

  // The folder the file is to be in; what is missing is made.
  Result<UniqueFd> parent() {
    UniqueFd folder = ANCHORHOLD_TRY(open_place(place_, 0));
    for (std::size_t count = 1; count < place_.parts.size(); ++count) {
      auto next = open_place(place_, count);
      if (!next && next.error().code == ErrorCode::not_found) {
        auto request = make_request(Verb::make_directory, place_.parts[count - 1]);
        request.mode = new_folder_mode;
        auto made = ask(request, {folder.get()});
        if (made.error != EEXIST) ANCHORHOLD_CHECK(answered(place_, made));
        next = open_place(place_, count);
      }
      if (!next) return fail(next.error());
      folder = std::move(*next);
    }
    auto status = ANCHORHOLD_TRY(status_of(place_, folder.get()));
    if (!S_ISDIR(status.st_mode))
      return fail(ErrorCode::invalid_argument, fmt::format("{}: a part of the path is a file", place_.shown));
    return folder;
  }

  KeeperAnswer ask(const RequestHeader& request, std::initializer_list<int> descriptors) {
    return keeper_.ask(request, std::span(descriptors.begin(), descriptors.size()));
  }

  const Place& place_;
  KeeperClient& keeper_;
};

// The first names in order, never more than max + 1 of them in memory.
Result<std::set<std::string>> names_in(const Place& place, UniqueFd folder, std::size_t max) {
  std::unique_ptr<DIR, int (*)(DIR*)> stream(fdopendir(folder.get()), closedir);
  if (!stream) return fail_errno(errno, place.shown);
  folder.release();
  std::set<std::string> names;
  for (;;) {
    errno = 0;
    dirent* entry = readdir(stream.get());
    if (!entry && errno != 0) return fail_errno(errno, place.shown);
    if (!entry) return names;
    std::string name = entry->d_name;
    bool shown = name != "." && name != ".." && !place.grant->hidden.hides(name) &&
                 (!place.grant->only_file || name == *place.grant->only_file);
    if (!shown) continue;
    names.insert(std::move(name));
    if (names.size() > max + 1) names.erase(std::prev(names.end()));
  }
}

}  // namespace

void FileAccess::add(AccessibleGrant grant) {
  auto shared = std::make_shared<const AccessibleGrant>(std::move(grant));
  std::lock_guard lock(mutex_);
  std::erase_if(grants_, [&](const auto& old) { return old->name == shared->name; });
  grants_.push_back(std::move(shared));
}

void FileAccess::remove(const std::string& name) {
  std::lock_guard lock(mutex_);
  std::erase_if(grants_, [&](const auto& grant) { return grant->name == name; });
}

std::vector<std::shared_ptr<const AccessibleGrant>> FileAccess::grants() const {
  std::lock_guard lock(mutex_);
  return grants_;
}

Result<FileInfo> FileAccess::stat(const std::string& path) const {
  auto words = ANCHORHOLD_TRY(split_path(path));
  if (words == std::vector<std::string>{"mnt"}) return FileInfo{.kind = FileKind::directory};
  auto place = ANCHORHOLD_TRY(find_place(grants(), path));
  UniqueFd object = ANCHORHOLD_TRY(open_place(place));
  return info_of(ANCHORHOLD_TRY(status_of(place, object.get())));
}

Result<std::string> FileAccess::read(const std::string& path, std::uint64_t offset,
                                     std::size_t max_bytes) const {
  auto place = ANCHORHOLD_TRY(find_place(grants(), path));
  UniqueFd object = ANCHORHOLD_TRY(open_place(place));
  auto status = ANCHORHOLD_TRY(status_of(place, object.get()));
  ANCHORHOLD_CHECK(check_regular(place, status));
  UniqueFd file = ANCHORHOLD_TRY(reopen(place, object.get(), O_RDONLY));
  std::string bytes;
  constexpr std::size_t chunk = 1 << 20;
  while (bytes.size() < max_bytes) {
    std::size_t used = bytes.size();
    bytes.resize(used + std::min(chunk, max_bytes - used));
    ssize_t got =
        pread(file.get(), bytes.data() + used, bytes.size() - used, static_cast<off_t>(offset + used));
    if (got < 0 && errno != EINTR) return fail_errno(errno, place.shown);
    bytes.resize(used + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0) break;
  }
  return bytes;
}

Status FileAccess::write(const std::string& path, std::string_view bytes) const {
  auto place = ANCHORHOLD_TRY(find_place(grants(), path));
  if (!place.grant->keeper)
    return fail(ErrorCode::permission_denied,
                fmt::format("{} is in a folder that was granted read-only", path));
  return Writer(place).write(bytes);
}

Result<DirectoryListing> FileAccess::list(const std::string& path, std::size_t max_entries) const {
  DirectoryListing listing;
  auto words = ANCHORHOLD_TRY(split_path(path));
  if (words == std::vector<std::string>{"mnt"}) {
    for (const auto& grant : grants())
      listing.entries.push_back({grant->name, {.kind = FileKind::directory}});
    std::sort(listing.entries.begin(), listing.entries.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
  } else {
    auto place = ANCHORHOLD_TRY(find_place(grants(), path));
    UniqueFd object = ANCHORHOLD_TRY(open_place(place));
    auto status = ANCHORHOLD_TRY(status_of(place, object.get()));
    if (!S_ISDIR(status.st_mode))
      return fail(ErrorCode::invalid_argument, fmt::format("{} is not a folder", path));
    UniqueFd folder = ANCHORHOLD_TRY(reopen(place, object.get(), O_RDONLY | O_DIRECTORY));
    for (const auto& name : ANCHORHOLD_TRY(names_in(place, std::move(folder), max_entries))) {
      struct stat entry;
      if (fstatat(object.get(), name.c_str(), &entry, AT_SYMLINK_NOFOLLOW) == 0)
        listing.entries.push_back({name, info_of(entry)});
    }
  }
  listing.truncated = listing.entries.size() > max_entries;
  if (listing.truncated) listing.entries.resize(max_entries);
  return listing;
}

}  // namespace anchorhold::mounts
