// Making, moving and removing names.
#include "dispatcher_call.h"

namespace anchorhold::mounts {
namespace {

constexpr const char* endless_name = "a name without an end";

int error_of(const Outcome<void>& done) {
  return done ? 0 : done.error();
}

}  // namespace

int Dispatcher::read_link(Call& call) {
  return answer_target(call, files_.read_link(call.header.nodeid));
}

int Dispatcher::answer_target(Call& call, const Outcome<std::string>& target) {
  if (!target) return target.error();
  if (target->size() > call.room()) return call.bad("no room for the answer");
  call.answer(target->data(), target->size());
  return 0;
}

int Dispatcher::make_symlink(Call& call) {
  auto name = call.arguments.take_name();
  auto target = call.arguments.take_name();
  if (!name || !target) return call.bad(endless_name);
  return answer_entry(call, files_.make_symlink(call.header.nodeid, *name, *target));
}

int Dispatcher::make_node(Call& call) {
  auto in = call.arguments.take<fuse_mknod_in>();
  auto name = call.arguments.take_name();
  if (!name) return call.bad(endless_name);
  return answer_entry(call, files_.make_file(call.header.nodeid, *name, in.mode));
}

int Dispatcher::make_folder(Call& call) {
  auto in = call.arguments.take<fuse_mkdir_in>();
  auto name = call.arguments.take_name();
  if (!name) return call.bad(endless_name);
  return answer_entry(call, files_.make_folder(call.header.nodeid, *name, in.mode));
}

int Dispatcher::unlink(Call& call) {
  auto name = call.arguments.take_name();
  if (!name) return call.bad(endless_name);
  return error_of(files_.unlink(call.header.nodeid, *name));
}

int Dispatcher::remove_folder(Call& call) {
  auto name = call.arguments.take_name();
  if (!name) return call.bad(endless_name);
  return error_of(files_.remove_folder(call.header.nodeid, *name));
}

int Dispatcher::rename_to(Call& call, std::uint64_t new_parent, std::uint32_t flags) {
  auto name = call.arguments.take_name();
  auto new_name = call.arguments.take_name();
  if (!name || !new_name) return call.bad(endless_name);
  return error_of(files_.rename(call.header.nodeid, *name, new_parent, *new_name, flags));
}

int Dispatcher::rename(Call& call) {
  auto in = call.arguments.take<fuse_rename_in>();
  return rename_to(call, in.newdir, 0);
}

int Dispatcher::rename2(Call& call) {
  auto in = call.arguments.take<fuse_rename2_in>();
  return rename_to(call, in.newdir, in.flags);
}

int Dispatcher::link(Call& call) {
  auto in = call.arguments.take<fuse_link_in>();
  auto name = call.arguments.take_name();
  if (!name) return call.bad(endless_name);
  return answer_entry(call, files_.link(in.oldnodeid, call.header.nodeid, *name));
}

}  // namespace anchorhold::mounts
