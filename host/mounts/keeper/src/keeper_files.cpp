// Verbs that change an object: content, attributes, user xattrs.
#include <cerrno>
#include <fcntl.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "keeper.h"

namespace anchorhold::mounts {
namespace {

// Others belong to the system: ACLs, capabilities, labels.
bool is_user_xattr(std::string_view name) {
  constexpr std::string_view prefix = "user.";
  return name.starts_with(prefix) && name.size() > prefix.size();
}

// Only what is a regular file is ever opened: a FIFO or a device on the host side would do something when it
// is.
int check_regular(const Located& file) {
  if (file.is_folder()) return EISDIR;
  if (file.is_symlink()) return ELOOP;
  return file.is_file() ? 0 : EACCES;
}

timespec wanted_time(std::uint32_t valid, std::uint32_t given, std::uint32_t now, const Timestamp& time) {
  if (valid & now) return {.tv_sec = 0, .tv_nsec = UTIME_NOW};
  if (valid & given) return {.tv_sec = time.seconds, .tv_nsec = time.nanoseconds};
  return {.tv_sec = 0, .tv_nsec = UTIME_OMIT};
}

}  // namespace

int Keeper::decide_and_keep(const Request& request, Operation operation, const Located& object) {
  Facts facts{.object = ledger_->subject(object), .target = {}};
  if (operation == Operation::write)
    if (int error = check_placeholder(request, object, facts.object); error != 0) return error;
  auto decision = decide_for(request, operation, object, facts);
  return decision ? keep(request, *decision, object) : decision.error();
}

Keeper::Outcome Keeper::open_located(const Located& file, std::uint32_t flags) {
  int open_flags = O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  open_flags |= flags & open_flag::read_too ? O_RDWR : O_WRONLY;
  if (flags & open_flag::append) open_flags |= O_APPEND;
  if (flags & open_flag::truncate) open_flags |= O_TRUNC;
  Done done;
  done.descriptor.reset(open(descriptor_path(file.fd.get()).c_str(), open_flags));
  if (!done.descriptor) return refuse_with(errno);
  return done;
}

Keeper::Outcome Keeper::open_for_write(const Request& request, int file) {
  std::shared_lock lock(names_);
  auto located = locate(request, file);
  if (!located) return refuse_with(located.error());
  if (int error = check_regular(*located); error != 0) return refuse_with(error);
  // The bytes flow without the keeper once the descriptor is handed out: what is there is kept now.
  if (int error = decide_and_keep(request, Operation::write, *located); error != 0) return refuse_with(error);
  return open_located(*located, request.header.flags);
}

Keeper::Outcome Keeper::truncate(const Request& request, int file) {
  std::shared_lock lock(names_);
  auto located = locate(request, file);
  if (!located) return refuse_with(located.error());
  if (int error = check_regular(*located); error != 0) return refuse_with(error);
  if (request.header.size > static_cast<std::uint64_t>(INT64_MAX)) return refuse_with(EFBIG);
  if (int error = decide_and_keep(request, Operation::write, *located); error != 0) return refuse_with(error);
  auto opened = open_located(*located, 0);
  // A descriptor that was handed out for writing stays good when the file's mode no longer allows opening it.
  int writable = opened ? opened->descriptor.get() : file;
  if (ftruncate(writable, static_cast<off_t>(request.header.size)) != 0)
    return refuse_with(opened ? errno : opened.error());
  return Done{};
}

Keeper::Outcome Keeper::allocate(const Request& request, int file) {
  std::shared_lock lock(names_);
  auto located = locate(request, file);
  if (!located) return refuse_with(located.error());
  if (int error = check_regular(*located); error != 0) return refuse_with(error);
  constexpr auto most = static_cast<std::uint64_t>(INT64_MAX);
  if (request.header.offset > most || request.header.size > most - request.header.offset)
    return refuse_with(EFBIG);
  if (int error = decide_and_keep(request, Operation::write, *located); error != 0) return refuse_with(error);
  constexpr std::uint32_t without_space =
      allocate_flag::punch_hole | allocate_flag::collapse_range | allocate_flag::insert_range;
  if ((request.header.flags & without_space) == 0)
    if (auto accounted = account(request.header.size); !accounted) {
      report(ReportKind::refused, request, located->path, EDQUOT, "the quota of written bytes is used up");
      return accounted;
    }
  auto offset = static_cast<off_t>(request.header.offset);
  auto size = static_cast<off_t>(request.header.size);
  if (fallocate(file, static_cast<int>(request.header.flags), offset, size) != 0) return refuse_with(errno);
  return Done{};
}

Keeper::Outcome Keeper::set_attributes(const Request& request, int object) {
  std::shared_lock lock(names_);
  const auto& header = request.header;
  auto located = locate_changeable(request, object);
  if (!located) return refuse_with(located.error());
  auto decision = decide_for(request, Operation::set_attributes, *located,
                             {.object = ledger_->subject(*located), .target = {}});
  if (!decision) return refuse_with(decision.error());
  constexpr std::uint32_t special_bits = S_ISUID | S_ISGID;
  if (header.valid & valid_flag::mode && header.mode & special_bits & ~located->attributes.mode) {
    report(ReportKind::refused, request, located->path, EPERM, "setuid and setgid bits cannot be set");
    return refuse_with(EPERM);
  }
  if (int error = keep(request, *decision, *located); error != 0) return refuse_with(error);
  std::string path = descriptor_path(located->fd.get());
  if (header.valid & valid_flag::mode) {
    if (located->is_symlink()) return refuse_with(EOPNOTSUPP);
    if (chmod(path.c_str(), header.mode) != 0) return refuse_with(errno);
  }
  if (header.valid & ~valid_flag::mode) {
    timespec times[2] = {
        wanted_time(header.valid, valid_flag::access_time, valid_flag::access_time_now, header.access_time),
        wanted_time(header.valid, valid_flag::modify_time, valid_flag::modify_time_now, header.modify_time)};
    if (utimensat(located->fd.get(), "", times, AT_EMPTY_PATH) != 0) return refuse_with(errno);
  }
  return Done{};
}

Keeper::Outcome Keeper::set_xattr(const Request& request, int object) {
  std::shared_lock lock(names_);
  if (!is_user_xattr(request.name)) return refuse_with(EOPNOTSUPP);
  auto located = locate_changeable(request, object);
  if (!located) return refuse_with(located.error());
  if (!located->is_file() && !located->is_folder()) return refuse_with(EPERM);
  if (int error = decide_and_keep(request, Operation::set_attributes, *located); error != 0)
    return refuse_with(error);
  if (setxattr(descriptor_path(located->fd.get()).c_str(), std::string(request.name).c_str(),
               request.payload.data(), request.payload.size(), static_cast<int>(request.header.flags)) != 0)
    return refuse_with(errno);
  return Done{};
}

Keeper::Outcome Keeper::remove_xattr(const Request& request, int object) {
  std::shared_lock lock(names_);
  if (!is_user_xattr(request.name)) return refuse_with(EOPNOTSUPP);
  auto located = locate_changeable(request, object);
  if (!located) return refuse_with(located.error());
  if (!located->is_file() && !located->is_folder()) return refuse_with(EPERM);
  if (int error = decide_and_keep(request, Operation::set_attributes, *located); error != 0)
    return refuse_with(error);
  if (removexattr(descriptor_path(located->fd.get()).c_str(), std::string(request.name).c_str()) != 0)
    return refuse_with(errno);
  return Done{};
}

}  // namespace anchorhold::mounts
