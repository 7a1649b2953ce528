// Everything that changes something: each is a question to the keeper.
#include <array>
#include <fcntl.h>

#include "reader/file_system.h"

namespace anchorhold::mounts {

Outcome<KeeperAnswer> FileSystem::ask(const NodeRef& node, std::string_view name,
                                      const RequestHeader& request, std::span<const int> descriptors,
                                      std::string_view payload) {
  if (!keeper_) {
    notices_.refused(std::string(to_string(request.verb)), nodes_->path(node, name), EROFS,
                     "the folder is granted read-only");
    return refuse(EROFS);
  }
  auto answer = keeper_->ask(request, descriptors, payload);
  if (answer.error != 0) return refuse(answer.error);
  return answer;
}

// About an object that is found by its name. The name our descriptor was opened by may have gone on the host.
Outcome<KeeperAnswer> FileSystem::ask_about(const NodeRef& node, const RequestHeader& request) {
  auto descriptor = ANCHORHOLD_OUTCOME(reach(node));
  auto answer = ask(node, {}, request, std::array{descriptor->get()});
  if (answer || answer.error() != ESTALE) return answer;
  nodes_->reopen(node);
  descriptor = ANCHORHOLD_OUTCOME(reach(node));
  return ask(node, {}, request, std::array{descriptor->get()});
}

// The node of a name that is about to be removed or replaced, if the guest knows it.
NodeRef FileSystem::about_to_go(const NodeRef& parent, const SharedFd& folder, std::string_view name) {
  if (auto node = nodes_->at_place(parent, name); node && nodes_->holds(node)) {
    auto now = nodes_->stat_at(folder->get(), std::string(name));
    if (now && identity_of(*now) == node->identity()) {
      nodes_->losing_name(node, parent, name);
      return node;
    }
  }
  UniqueFd fd(openat(folder->get(), std::string(name).c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) return nullptr;
  auto info = nodes_->stat_descriptor(fd.get());
  if (!info) return nullptr;
  auto node = nodes_->known(identity_of(*info));
  if (!node) return nullptr;
  nodes_->hold(node, std::make_shared<const UniqueFd>(std::move(fd)));
  nodes_->losing_name(node, parent, name);
  return node;
}

Outcome<FileSystem::Entry> FileSystem::create(std::uint64_t parent_id, std::string_view name, int flags,
                                              std::uint32_t mode, Opened& opened) {
  if (auto valid = check_name("FUSE_CREATE", name); !valid) return refuse(valid.error());
  auto parent = ANCHORHOLD_OUTCOME(find_folder(parent_id));
  auto request = make_request(Verb::create, name);
  request.mode = mode & 07777;
  if ((flags & O_ACCMODE) != O_WRONLY) request.flags |= open_flag::read_too;
  if (flags & O_TRUNC) request.flags |= open_flag::truncate;
  if (flags & O_EXCL) request.flags |= open_flag::exclusive;
  auto folder = ANCHORHOLD_OUTCOME(reach(parent));
  const auto watched = coherence_.watched(parent);
  bool existed = watch_ && !(flags & O_EXCL) && nodes_->stat_at(folder->get(), std::string(name));
  auto own = existed ? OwnChanges::Name() : own_name(parent, name, OwnChanges::Names::appearing);
  auto asked = ask(parent, name, request, std::array{folder->get()});
  if (!asked) {
    own.failed();
    return refuse(asked.error());
  }
  KeeperAnswer answer = std::move(*asked);
  Entry entry;
  entry.info = ANCHORHOLD_OUTCOME(nodes_->stat_descriptor(answer.descriptor.get()));
  entry.node = ANCHORHOLD_OUTCOME(nodes_->enter(entry.info, parent, name));
  own_change(entry.node).done(entry.info);
  entry.times = coherence_.tell(watched, entry.node, entry.info);
  auto file = std::make_shared<FileHandle>();
  file->descriptor = std::move(answer.descriptor);
  file->node = entry.node;
  file->writable = (flags & O_ACCMODE) != O_RDONLY;
  opened.keep_pages = coherence_.may_keep_pages(entry.node, entry.info);
  auto handle = handles_.add(std::move(file));
  if (!handle) {
    nodes_->forget(entry.node->id(), 1);
    return refuse(handle.error());
  }
  opened.handle = *handle;
  return entry;
}

Outcome<FileSystem::Entry> FileSystem::make(std::uint64_t parent_id, std::string_view name,
                                            RequestHeader request, std::string_view payload) {
  if (auto valid = check_name(to_string(request.verb), name); !valid) return refuse(valid.error());
  auto parent = ANCHORHOLD_OUTCOME(find_folder(parent_id));
  auto folder = ANCHORHOLD_OUTCOME(reach(parent));
  auto own = own_name(parent, name, OwnChanges::Names::appearing);
  return made(parent, folder, name, ask(parent, name, request, std::array{folder->get()}, payload), own);
}

Outcome<FileSystem::Entry> FileSystem::made(const NodeRef& parent, const SharedFd& folder,
                                            std::string_view name, const Outcome<KeeperAnswer>& answer,
                                            OwnChanges::Name& own) {
  if (!answer) {
    own.failed();
    return refuse(answer.error());
  }
  auto entry = enter(parent, folder, name);
  if (entry) own_change(entry->node).done(entry->info);
  return entry;
}

Outcome<FileSystem::Entry> FileSystem::make_file(std::uint64_t parent, std::string_view name,
                                                 std::uint32_t mode) {
  if (!S_ISREG(mode)) {
    notices_.refused("FUSE_MKNOD", std::string(name), EPERM,
                     "only regular files, folders and symlinks can be made");
    return refuse(EPERM);
  }
  auto request = make_request(Verb::create, name);
  request.mode = mode & 07777;
  request.flags = open_flag::exclusive;
  return make(parent, name, request, {});
}

Outcome<FileSystem::Entry> FileSystem::make_folder(std::uint64_t parent, std::string_view name,
                                                   std::uint32_t mode) {
  auto request = make_request(Verb::make_directory, name);
  request.mode = mode & 07777;
  return make(parent, name, request, {});
}

Outcome<FileSystem::Entry> FileSystem::make_symlink(std::uint64_t parent, std::string_view name,
                                                    std::string_view target) {
  if (target.empty()) return refuse(ENOENT);
  if (target.size() > max_symlink_bytes) return refuse(ENAMETOOLONG);
  return make(parent, name, make_request(Verb::make_symlink, name), target);
}

Outcome<FileSystem::Entry> FileSystem::link(std::uint64_t id, std::uint64_t parent_id,
                                            std::string_view name) {
  if (auto valid = check_name("FUSE_LINK", name); !valid) return refuse(valid.error());
  auto node = ANCHORHOLD_OUTCOME(nodes_->find(id));
  auto parent = ANCHORHOLD_OUTCOME(find_folder(parent_id));
  auto object = ANCHORHOLD_OUTCOME(reach(node));
  auto folder = ANCHORHOLD_OUTCOME(reach(parent));
  auto request = make_request(Verb::link, name);
  auto own = own_name(parent, name, OwnChanges::Names::appearing);
  return made(parent, folder, name, ask(parent, name, request, std::array{object->get(), folder->get()}),
              own);
}

Outcome<void> FileSystem::remove(std::uint64_t parent_id, std::string_view name, Verb verb) {
  if (auto valid = check_name(to_string(verb), name); !valid) return refuse(valid.error());
  auto parent = ANCHORHOLD_OUTCOME(find_folder(parent_id));
  auto folder = ANCHORHOLD_OUTCOME(reach(parent));
  if (keeper_) about_to_go(parent, folder, name);
  auto own = own_name(parent, name, OwnChanges::Names::vanishing);
  auto answer = ask(parent, name, make_request(verb, name), std::array{folder->get()});
  if (answer) return {};
  own.failed();
  return refuse(answer.error());
}

Outcome<void> FileSystem::unlink(std::uint64_t parent, std::string_view name) {
  return remove(parent, name, Verb::unlink);
}

Outcome<void> FileSystem::remove_folder(std::uint64_t parent, std::string_view name) {
  return remove(parent, name, Verb::remove_directory);
}

Outcome<void> FileSystem::rename(std::uint64_t parent_id, std::string_view name, std::uint64_t new_parent_id,
                                 std::string_view new_name, std::uint32_t flags) {
  if (auto valid = check_name("FUSE_RENAME", name); !valid) return valid;
  if (auto valid = check_name("FUSE_RENAME", new_name); !valid) return valid;
  if (flags & ~rename_flag::all) return refuse(EINVAL);
  auto parent = ANCHORHOLD_OUTCOME(find_folder(parent_id));
  auto new_parent = ANCHORHOLD_OUTCOME(find_folder(new_parent_id));
  auto folder = ANCHORHOLD_OUTCOME(reach(parent));
  auto new_folder = ANCHORHOLD_OUTCOME(reach(new_parent));
  auto request = make_request(Verb::rename, name, new_name);
  request.flags = flags;
  NodeRef moved, replaced;
  if (keeper_) {
    if (auto info = nodes_->stat_at(folder->get(), std::string(name)))
      moved = nodes_->known(identity_of(*info));
    replaced = about_to_go(new_parent, new_folder, new_name);
  }
  using Names = OwnChanges::Names;
  bool exchanges = flags & rename_flag::exchange;
  auto own = own_name(parent, name, exchanges ? Names::both : Names::vanishing);
  auto own_new = own_name(new_parent, new_name, exchanges ? Names::both : Names::appearing);
  auto answer = ask(parent, name, request, std::array{folder->get(), new_folder->get()});
  if (!answer) {
    own.failed();
    own_new.failed();
    return refuse(answer.error());
  }
  if (moved) nodes_->renamed(moved, new_parent, new_name);
  if (replaced && (flags & rename_flag::exchange)) nodes_->renamed(replaced, parent, name);
  return {};
}

Outcome<FileSystem::Attributes> FileSystem::set_attributes(std::uint64_t id, const AttributeChange& change) {
  auto node = ANCHORHOLD_OUTCOME(nodes_->find(id));
  std::shared_ptr<FileHandle> file;
  if (change.handle)
    if (auto found = handles_.file(*change.handle); found && (*found)->node == node) file = *found;
  auto ask_to = [&](const RequestHeader& request) {
    return file ? ask(node, {}, request, std::array{file->descriptor.get()}) : ask_about(node, request);
  };
  auto own = own_change(node);
  if (change.size) {
    auto request = make_request(Verb::truncate);
    request.size = *change.size;
    (void)ANCHORHOLD_OUTCOME(ask_to(request));
  }
  if (change.valid != 0) {
    auto request = make_request(Verb::set_attributes);
    request.valid = change.valid;
    request.mode = change.mode;
    request.access_time = change.access_time;
    request.modify_time = change.modify_time;
    (void)ANCHORHOLD_OUTCOME(ask_to(request));
  }
  auto attributes = attributes_of(node, file);
  if (attributes) own.done(attributes->info);
  return attributes;
}

Outcome<void> FileSystem::set_xattr(std::uint64_t id, std::string_view name, std::string_view value,
                                    std::uint32_t flags) {
  if (!name.starts_with("user.")) return refuse(EOPNOTSUPP);
  if (name.size() > max_name_bytes) return refuse(ERANGE);
  if (value.size() > max_payload_bytes) return refuse(E2BIG);
  if (flags & ~xattr_flag::all) return refuse(EINVAL);
  auto node = ANCHORHOLD_OUTCOME(nodes_->find(id));
  auto object = ANCHORHOLD_OUTCOME(reach(node));
  auto request = make_request(Verb::set_xattr, name);
  request.flags = flags;
  auto own = own_change(node);
  (void)ANCHORHOLD_OUTCOME(ask(node, {}, request, std::array{object->get()}, value));
  note_own_change(node, object->get(), own);
  return {};
}

Outcome<void> FileSystem::remove_xattr(std::uint64_t id, std::string_view name) {
  if (!name.starts_with("user.")) return refuse(EOPNOTSUPP);
  if (name.size() > max_name_bytes) return refuse(ERANGE);
  auto node = ANCHORHOLD_OUTCOME(nodes_->find(id));
  auto object = ANCHORHOLD_OUTCOME(reach(node));
  auto own = own_change(node);
  (void)ANCHORHOLD_OUTCOME(ask(node, {}, make_request(Verb::remove_xattr, name), std::array{object->get()}));
  note_own_change(node, object->get(), own);
  return {};
}

}  // namespace anchorhold::mounts
