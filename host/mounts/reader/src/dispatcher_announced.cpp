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
  if (!before) {
    if (before.error() != ENOENT) return before.error();
    call.answer(fuse_entry_out{});
    return 0;
  }
  if (!before->node)
    return answer_nothing_known(call, call.header.gid == announcing_folder_group ? S_IFDIR : S_IFREG);
  fuse_entry_out out{};  // to be remembered for no time at all
  out.nodeid = before->node->id();
  out.attr = to_fuse(before->info);
  call.answer(out);
  return 0;
}

// An entry with an id that means nothing, to be remembered for no time at all: the guest's kernel learns of a
// name and of nothing else. What it is told of an object in an answer to MKNOD it takes for newer than all it
// knows, also when it is older.
int Dispatcher::answer_nothing_known(Call& call, std::uint32_t type) {
  static std::atomic<std::uint64_t> next{1ull << 63};
  fuse_entry_out out{};
  out.nodeid = next++;
  out.attr.ino = out.nodeid;
  out.attr.mode = type | (type == S_IFDIR ? 0755u : 0644u);
  out.attr.nlink = 1;
  call.answer(out);
  return 0;
}

int Dispatcher::announced_appearance(Call& call, std::uint32_t type) {
  auto name = call.arguments.take_name();
  if (!name) return call.bad("a name without an end");
  auto there = files_.announced_appearance(call.header.nodeid, *name, type);
  return there ? answer_nothing_known(call, type) : there.error();
}

int Dispatcher::announced_rename(Call& call, std::uint64_t new_parent) {
  auto name = call.arguments.take_name();
  auto new_name = call.arguments.take_name();
  if (!name || !new_name) return call.bad("a name without an end");
  auto done = files_.announced_rename(call.header.nodeid, *name, new_parent, *new_name);
  return done ? 0 : done.error();
}

}  // namespace anchorhold::mounts
