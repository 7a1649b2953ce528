// Attributes, extended attributes, and the forms in which the guest gets them.
#include <algorithm>

#include "base/guest_numbers.h"
#include "dispatcher_call.h"

namespace anchorhold::mounts {
namespace {

struct FuseTime {
  std::uint64_t seconds;
  std::uint32_t nanoseconds;
};

FuseTime to_fuse_time(std::chrono::milliseconds time) {
  auto count = static_cast<std::uint64_t>(time.count());
  return {count / 1000, static_cast<std::uint32_t>(count % 1000 * 1'000'000)};
}

Timestamp timestamp(std::uint64_t seconds, std::uint32_t nanoseconds) {
  return {static_cast<std::int64_t>(seconds), nanoseconds, 0};
}

}  // namespace

fuse_attr Dispatcher::to_fuse(const Statx& info) const {
  fuse_attr attr{};
  attr.ino = info.stx_ino;
  attr.size = info.stx_size;
  attr.blocks = info.stx_blocks;
  attr.atime = static_cast<std::uint64_t>(info.stx_atime.tv_sec);
  attr.mtime = static_cast<std::uint64_t>(info.stx_mtime.tv_sec);
  attr.ctime = static_cast<std::uint64_t>(info.stx_ctime.tv_sec);
  attr.atimensec = info.stx_atime.tv_nsec;
  attr.mtimensec = info.stx_mtime.tv_nsec;
  attr.ctimensec = info.stx_ctime.tv_nsec;
  // A program of the host that lends its owner's rights lends nothing in the guest. A device's number means
  // another device there, so it is not told.
  attr.mode = info.stx_mode & ~static_cast<std::uint32_t>(S_ISUID | S_ISGID);
  attr.nlink = info.stx_nlink;
  attr.uid = owners_.guest_uid(info.stx_uid);
  attr.gid = owners_.guest_gid(info.stx_gid);
  attr.blksize = info.stx_blksize;
  return attr;
}

fuse_entry_out Dispatcher::to_fuse(const FileSystem::Entry& entry) const {
  auto name = to_fuse_time(entry.times.entry), attributes = to_fuse_time(entry.times.attributes);
  fuse_entry_out out{};
  out.nodeid = entry.node->id();
  out.entry_valid = name.seconds;
  out.entry_valid_nsec = name.nanoseconds;
  out.attr_valid = attributes.seconds;
  out.attr_valid_nsec = attributes.nanoseconds;
  out.attr = to_fuse(entry.info);
  return out;
}

int Dispatcher::answer_entry(Call& call, const Outcome<FileSystem::Entry>& entry) {
  if (!entry) return entry.error();
  call.answer(to_fuse(*entry));
  return 0;
}

int Dispatcher::answer_attributes(Call& call, const Outcome<FileSystem::Attributes>& attributes) {
  if (!attributes) return attributes.error();
  auto valid = to_fuse_time(attributes->valid);
  fuse_attr_out out{};
  out.attr_valid = valid.seconds;
  out.attr_valid_nsec = valid.nanoseconds;
  out.attr = to_fuse(attributes->info);
  call.answer(out);
  return 0;
}

int Dispatcher::lookup(Call& call) {
  auto name = call.arguments.take_name();
  if (!name) return call.bad("a name without an end");
  CacheTimes absence;
  auto entry = files_.lookup(call.header.nodeid, *name, absence);
  if (entry && call.header.gid == asking_anew_group) entry->times.attributes = {};
  if (entry || entry.error() != ENOENT) return answer_entry(call, entry);
  // "There is none" may be remembered for a while, too: an entry without a node.
  auto valid = to_fuse_time(absence.entry);
  fuse_entry_out none{};
  none.entry_valid = valid.seconds;
  none.entry_valid_nsec = valid.nanoseconds;
  call.answer(none);
  return 0;
}

int Dispatcher::get_attributes(Call& call) {
  auto in = call.arguments.take<fuse_getattr_in>();
  std::optional<std::uint64_t> handle;
  if (in.getattr_flags & FUSE_GETATTR_FH) handle = in.fh;
  return answer_attributes(call, files_.attributes(call.header.nodeid, handle));
}

bool Dispatcher::keeps_owner(const Statx& info, const fuse_setattr_in& in) const {
  return (!(in.valid & FATTR_UID) || in.uid == owners_.guest_uid(info.stx_uid)) &&
         (!(in.valid & FATTR_GID) || in.gid == owners_.guest_gid(info.stx_gid));
}

int Dispatcher::set_attributes(Call& call) {
  auto in = call.arguments.take<fuse_setattr_in>();
  FileSystem::AttributeChange change;
  if (in.valid & FATTR_FH) change.handle = in.fh;
  if (in.valid & (FATTR_UID | FATTR_GID)) {
    auto info = files_.attributes(call.header.nodeid, change.handle);
    if (!info) return info.error();
    if (!keeps_owner(info->info, in)) return EPERM;
  }
  if (in.valid & FATTR_SIZE) change.size = in.size;
  if (in.valid & FATTR_MODE) {
    change.valid |= valid_flag::mode;
    change.mode = in.mode & 07777;
  }
  if (in.valid & FATTR_ATIME_NOW) {
    change.valid |= valid_flag::access_time_now;
  } else if (in.valid & FATTR_ATIME) {
    change.valid |= valid_flag::access_time;
    change.access_time = timestamp(in.atime, in.atimensec);
  }
  if (in.valid & FATTR_MTIME_NOW) {
    change.valid |= valid_flag::modify_time_now;
  } else if (in.valid & FATTR_MTIME) {
    change.valid |= valid_flag::modify_time;
    change.modify_time = timestamp(in.mtime, in.mtimensec);
  }
  constexpr std::uint32_t second = 1'000'000'000;
  if (change.access_time.nanoseconds >= second || change.modify_time.nanoseconds >= second) return EINVAL;
  return answer_attributes(call, files_.set_attributes(call.header.nodeid, change));
}

int Dispatcher::statistics(Call& call) {
  auto info = files_.statistics(call.header.nodeid);
  if (!info) return info.error();
  fuse_statfs_out out{};
  out.st.blocks = info->f_blocks;
  out.st.bfree = info->f_bfree;
  out.st.bavail = info->f_bavail;
  out.st.files = info->f_files;
  out.st.ffree = info->f_ffree;
  out.st.bsize = static_cast<std::uint32_t>(info->f_bsize);
  out.st.namelen = static_cast<std::uint32_t>(std::min<std::uint64_t>(info->f_namelen, max_name_bytes));
  out.st.frsize = static_cast<std::uint32_t>(info->f_frsize);
  call.answer(out);
  return 0;
}

int Dispatcher::set_xattr(Call& call) {
  struct WithoutExtension {  // FUSE_SETXATTR_EXT is not offered
    std::uint32_t size;
    std::uint32_t flags;
  };
  static_assert(sizeof(WithoutExtension) == FUSE_COMPAT_SETXATTR_IN_SIZE);
  auto in = call.arguments.take<WithoutExtension>();
  auto name = call.arguments.take_name();
  if (!name) return call.bad("a name without an end");
  auto value = call.arguments.take_bytes(in.size);
  if (!value) return call.bad("a value shorter than it says");
  auto done = files_.set_xattr(call.header.nodeid, *name, *value, in.flags);
  return done ? 0 : done.error();
}

int Dispatcher::xattr_answer(Call& call, const Outcome<std::string>& value, std::uint32_t room) {
  if (!value) return value.error();
  if (room == 0) {
    if (call.room() < sizeof(fuse_getxattr_out)) return call.bad("no room for the answer");
    fuse_getxattr_out out{};
    out.size = static_cast<std::uint32_t>(value->size());
    call.answer(out);
    return 0;
  }
  if (value->size() > std::min<std::size_t>(room, call.room())) return ERANGE;
  call.answer(value->data(), value->size());
  return 0;
}

int Dispatcher::get_xattr(Call& call) {
  auto in = call.arguments.take<fuse_getxattr_in>();
  auto name = call.arguments.take_name();
  if (!name) return call.bad("a name without an end");
  return xattr_answer(call, files_.get_xattr(call.header.nodeid, *name), in.size);
}

int Dispatcher::list_xattrs(Call& call) {
  auto in = call.arguments.take<fuse_getxattr_in>();
  return xattr_answer(call, files_.list_xattrs(call.header.nodeid), in.size);
}

int Dispatcher::remove_xattr(Call& call) {
  auto name = call.arguments.take_name();
  if (!name) return call.bad("a name without an end");
  auto done = files_.remove_xattr(call.header.nodeid, *name);
  return done ? 0 : done.error();
}

}  // namespace anchorhold::mounts
