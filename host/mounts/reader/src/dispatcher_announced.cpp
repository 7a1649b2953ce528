// Requests under the announcing groups (base/guest_numbers.h).
#include <atomic>

#include "base/guest_numbers.h"
#include "dispatcher_call.h"

namespace anchorhold::mounts {

bool Dispatcher::is_announcement(const fuse_in_header& header) {
  return header.gid == announcing_group || header.gid == announcing_folder_group;
}

int Dispatcher::announced(Call& call) {
  switch (call.header.opcode) {
    case FUSE_LOOKUP:
      return announced_lookup(call);
    case FUSE_MKNOD:
      call.arguments.take<fuse_mknod_in>();
      return announced_appearance(call, S_IFREG);
    case FUSE_MKDIR:
      call.arguments.take<fuse_mkdir_in>();
      return announced_appearance(call, S_IFDIR);
    case FUSE_SYMLINK:
      return announced_appearance(call, S_IFLNK);
    case FUSE_UNLINK:
    case FUSE_RMDIR: {
      auto name = call.arguments.take_name();
      if (!name) return call.bad("a name without an end");
      auto done = files_.announced_removal(call.header.nodeid, *name);
      return done ? 0 : done.error();
    }
    case FUSE_RENAME:
      return announced_rename(call, call.arguments.take<fuse_rename_in>().newdir);
    case FUSE_RENAME2:
      return announced_rename(call, call.arguments.take<fuse_rename2_in>().newdir);
    case FUSE_SETATTR: {
      auto attributes = files_.attributes(call.header.nodeid, std::nullopt);
      if (attributes) attributes->valid = {};
      return answer_attributes(call, attributes);
    }
    // A file's content or attributes; these answers carry none of them.
    case FUSE_FALLOCATE:
    case FUSE_SETXATTR:
      return 0;
    case FUSE_OPEN: {
      auto done = files_.announced_open(call.header.nodeid);
      if (!done) return done.error();
      call.answer(fuse_open_out{});  // no handle, and nothing of the pages is kept
      return 0;
    }
    default:
      return EPERM;
  }
}

bool Dispatcher::can_be_announced(std::uint32_t opcode) {
  switch (opcode) {
    case FUSE_LOOKUP:
    case FUSE_MKNOD:
    case FUSE_MKDIR:
    case FUSE_SYMLINK:
    case FUSE_UNLINK:
    case FUSE_RMDIR:
    case FUSE_RENAME:
    case FUSE_RENAME2:
    case FUSE_SETATTR:
    case FUSE_OPEN:
    case FUSE_FALLOCATE:
    case FUSE_SETXATTR:
    // What would change something is never done under these groups.
    case FUSE_CREATE:
    case FUSE_LINK:
    case FUSE_WRITE:
    case FUSE_COPY_FILE_RANGE:
    case FUSE_REMOVEXATTR:
      return true;
    default:
      return false;
  }
}

int Dispatcher::announced_lookup(Call& call) {
  auto name = call.arguments.take_name();
  if (!name) return call.bad("a name without an end");
  auto before = files_.announced_lookup(call.header.nodeid, *name);
  fuse_entry_out out{};  // to be remembered for no time at all
  if (!before) {
    if (before.error() != ENOENT) return before.error();
    call.answer(out);
    return 0;
  }
  // Of an object that the guest never saw, an id that means nothing.
  static std::atomic<std::uint64_t> next{1ull << 63};
  out.nodeid = before->node ? before->node->id() : next++;
  out.attr = to_fuse(before->info);
  if (out.attr.mode == 0) {
    out.attr.mode = call.header.gid == announcing_folder_group ? S_IFDIR | 0755 : S_IFREG | 0644;
    if (before->node) out.attr.mode = before->node->identity().type | 0644;
    out.attr.nlink = 1;
    out.attr.ino = out.nodeid;
  }
  call.answer(out);
  return 0;
}

int Dispatcher::announced_appearance(Call& call, std::uint32_t type) {
  auto name = call.arguments.take_name();
  if (!name) return call.bad("a name without an end");
  auto entry = files_.announced_appearance(call.header.nodeid, *name, type);
  if (entry) entry->times.attributes = {};
  return answer_entry(call, entry);
}

int Dispatcher::announced_rename(Call& call, std::uint64_t new_parent) {
  auto name = call.arguments.take_name();
  auto new_name = call.arguments.take_name();
  if (!name || !new_name) return call.bad("a name without an end");
  auto done = files_.announced_rename(call.header.nodeid, *name, new_parent, *new_name);
  return done ? 0 : done.error();
}

}  // namespace anchorhold::mounts
