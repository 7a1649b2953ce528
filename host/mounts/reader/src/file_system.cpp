#include "reader/file_system.h"

#include <array>
#include <charconv>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/xattr.h>
#include <unistd.h>

namespace anchorhold::mounts {
namespace {

// Where the answer to a write may come as late as the close.
bool reports_at_close(long file_system) {
  constexpr long cifs = 0xff534d42, smb2 = 0xfe534d42, nfs = 0x6969, fuse = 0x65735546, ceph = 0x00c36400,
                 v9 = 0x01021997, afs = 0x5346414f;
  for (long type : {cifs, smb2, nfs, fuse, ceph, v9, afs})
    if (file_system == type) return true;
  return false;
}

}  // namespace

Result<std::unique_ptr<FileSystem>> FileSystem::create(FileSystemSpec spec, Notices& notices) {
  auto root = std::make_shared<const UniqueFd>(std::move(spec.root));
  struct statfs info;
  if (fstatfs(root->get(), &info) != 0) return fail_errno(errno, "the granted folder");
  auto nodes = NodeTable::create(root, spec.nodes);
  if (!nodes) return fail_errno(nodes.error(), "the granted folder");
  auto watch = std::exchange(spec.watch, std::nullopt);
  std::unique_ptr<FileSystem> files(
      new FileSystem(std::move(spec), std::move(*nodes), reports_at_close(info.f_type), notices));
  // What is changed on another computer is not reported by the kernel of this one.
  if (watch && !files->on_network_) ANCHORHOLD_CHECK(files->start_watch(std::move(*watch)));
  return files;
}

Status FileSystem::start_watch(HostWatch::Spec spec) {
  auto visible = [](const void* context, const NodeRef& folder, std::string_view name) {
    return static_cast<const FileSystem*>(context)->visible(folder, name);
  };
  watch_ = ANCHORHOLD_TRY(HostWatch::create(std::move(spec), *nodes_, visible, this));
  coherence_.rely_on(*watch_);
  return {};
}

FileSystem::FileSystem(FileSystemSpec spec, std::unique_ptr<NodeTable> nodes, bool on_network,
                       Notices& notices)
    : own_descriptors_(std::move(spec.own_descriptors)),
      keeper_(spec.keeper),
      written_(spec.keeper),
      hidden_(std::move(spec.hidden)),
      only_file_(std::move(spec.only_file)),
      on_network_(on_network),
      notices_(notices),
      nodes_(std::move(nodes)),
      handles_(spec.handles),
      coherence_(*nodes_) {}

void FileSystem::reset() {
  if (watch_) watch_->reset();
  handles_.clear();
  nodes_->clear();
}

Outcome<void> FileSystem::check_name(std::string_view operation, std::string_view name) {
  if (is_valid_name(name)) return {};
  if (name.size() > max_name_bytes) return refuse(ENAMETOOLONG);
  notices_.violation(std::string(operation), std::string(name), EINVAL, "a name that is not one");
  return refuse(EINVAL);
}

Outcome<NodeRef> FileSystem::find_folder(std::uint64_t id) const {
  auto node = ANCHORHOLD_OUTCOME(nodes_->find(id));
  if (!node->is_directory()) return refuse(ENOTDIR);
  return node;
}

// A hidden name exists for the guest when the session itself made what has it; the keeper knows.
bool FileSystem::visible(const NodeRef& parent, std::string_view name) const {
  if (!only_file_.empty() && parent == nodes_->root() && name != only_file_) return false;
  if (!hidden_.hides(name)) return true;
  if (!keeper_ || !is_valid_name(name)) return false;
  auto folder = reach(parent);
  return folder &&
         keeper_->ask(make_request(Verb::look_up_own, name), std::array{(*folder)->get()}).error == 0;
}

// What the guest is told of stays reachable whatever the host does to the name meanwhile: a kernel that is
// refused with ESTALE looks the path up again only once, and the host may replace a file all the time.
Outcome<FileSystem::Entry> FileSystem::enter(const NodeRef& parent, const SharedFd& folder,
                                             std::string_view name) {
  Entry entry;
  const auto watched = coherence_.watched(parent);
  entry.node = ANCHORHOLD_OUTCOME(nodes_->enter_held(folder->get(), parent, std::string(name), entry.info));
  entry.times = coherence_.tell(watched, entry.node, entry.info);
  return entry;
}

// What has no name any more, and no descriptor among those that are kept, may be open in the guest.
Outcome<SharedFd> FileSystem::reach(const NodeRef& node) const {
  auto descriptor = nodes_->descriptor(node);
  if (descriptor || descriptor.error() != ESTALE) return descriptor;
  if (auto opened = handles_.descriptor_of(node)) return opened;
  return descriptor;
}

Outcome<FileSystem::Entry> FileSystem::lookup(std::uint64_t parent_id, std::string_view name,
                                              CacheTimes& absence) {
  if (auto valid = check_name("FUSE_LOOKUP", name); !valid) return refuse(valid.error());
  auto parent = ANCHORHOLD_OUTCOME(find_folder(parent_id));
  absence = coherence_.absence(coherence_.watched(parent));
  if (!visible(parent, name)) return refuse(ENOENT);
  auto folder = ANCHORHOLD_OUTCOME(reach(parent));
  return enter(parent, folder, name);
}

void FileSystem::was_refused(std::uint64_t id, std::uint32_t caller) {
  if (auto node = nodes_->find(id)) coherence_.was_refused(*node, caller);
}

Outcome<FileSystem::Attributes> FileSystem::attributes(std::uint64_t id,
                                                       std::optional<std::uint64_t> handle) {
  auto node = ANCHORHOLD_OUTCOME(nodes_->find(id));
  std::shared_ptr<FileHandle> file;
  if (handle)
    if (auto found = handles_.file(*handle); found && (*found)->node == node) file = *found;
  return attributes_of(node, file);
}

Outcome<FileSystem::Attributes> FileSystem::attributes_of(const NodeRef& node,
                                                          const std::shared_ptr<FileHandle>& file) {
  auto parent = nodes_->parent(node);
  const auto watched = coherence_.watched(parent ? parent : nodes_->root());
  Attributes attributes;
  attributes.info = file ? ANCHORHOLD_OUTCOME(nodes_->stat_descriptor(file->descriptor.get()))
                         : ANCHORHOLD_OUTCOME(attributes_now(node));
  attributes.valid = coherence_.tell(watched, node, attributes.info).attributes;
  return attributes;
}

Outcome<Statx> FileSystem::attributes_now(const NodeRef& node) const {
  auto info = nodes_->attributes(node);
  if (info || info.error() != ESTALE) return info;
  if (auto opened = handles_.descriptor_of(node)) return nodes_->stat_descriptor(opened->get());
  return info;
}

OwnChanges::Name FileSystem::own_name(const NodeRef& folder, std::string_view name, OwnChanges::Names names) {
  return OwnChanges::Name(watch_ ? watch_->own_changes_in(folder) : nullptr, folder->id(), name, names);
}

void FileSystem::note_own_change(const NodeRef& node, int descriptor, OwnChanges::Change& own) {
  auto info = nodes_->stat_descriptor(descriptor);
  if (!info) return;
  coherence_.changed_by_guest(node, *info);
  own.done(*info);
}

OwnChanges::Change FileSystem::own_change(const NodeRef& node) {
  return OwnChanges::Change(watch_ ? watch_->own_changes() : nullptr, node);
}

Outcome<std::string> FileSystem::read_link(std::uint64_t id) {
  auto node = ANCHORHOLD_OUTCOME(nodes_->find(id));
  if (!node->is_symlink()) return refuse(EINVAL);
  auto descriptor = ANCHORHOLD_OUTCOME(reach(node));
  char target[4096];
  ssize_t size = readlinkat(descriptor->get(), "", target, sizeof target);
  if (size < 0) return refuse(errno);
  return std::string(target, static_cast<std::size_t>(size));
}

Outcome<struct statfs> FileSystem::statistics(std::uint64_t id) {
  auto node = ANCHORHOLD_OUTCOME(nodes_->find(id));
  auto descriptor = ANCHORHOLD_OUTCOME(reach(node));
  struct statfs info;
  if (fstatfs(descriptor->get(), &info) != 0) return refuse(errno);
  return info;
}

// The type of an object never changes, so what was seen to be a regular file or a folder by its O_PATH
// descriptor is opened as one: no FIFO, socket or device that took its name since can come between.
Outcome<UniqueFd> FileSystem::open_to_read(const NodeRef& node) {
  if (!node->is_directory() && !node->is_regular()) return refuse(EACCES);
  for (bool again : {true, false}) {
    auto descriptor = ANCHORHOLD_OUTCOME(reach(node));
    UniqueFd fd;
    if (node->is_directory()) {
      fd.reset(openat(descriptor->get(), ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    } else {
      char name[16] = {};
      std::to_chars(name, name + sizeof name - 1, descriptor->get());
      fd.reset(openat(own_descriptors_.get(), name, O_RDONLY | O_CLOEXEC));
    }
    if (fd) return fd;
    // The name our descriptor was opened by may have left the folder, while the object has another name in
    // it.
    if (errno != EACCES || !again) return refuse(errno);
    nodes_->reopen(node);
  }
  return refuse(EACCES);
}

Outcome<std::string> FileSystem::get_xattr(std::uint64_t id, std::string_view name) {
  if (!name.starts_with("user.")) return refuse(EOPNOTSUPP);
  auto node = ANCHORHOLD_OUTCOME(nodes_->find(id));
  if (!node->is_regular() && !node->is_directory()) return refuse(ENODATA);
  auto fd = ANCHORHOLD_OUTCOME(open_to_read(node));
  std::string value(max_payload_bytes, '\0');
  ssize_t size = fgetxattr(fd.get(), std::string(name).c_str(), value.data(), value.size());
  if (size < 0) return refuse(errno);
  value.resize(static_cast<std::size_t>(size));
  return value;
}

Outcome<std::string> FileSystem::list_xattrs(std::uint64_t id) {
  auto node = ANCHORHOLD_OUTCOME(nodes_->find(id));
  if (!node->is_regular() && !node->is_directory()) return std::string();
  auto fd = ANCHORHOLD_OUTCOME(open_to_read(node));
  std::string all(max_payload_bytes, '\0');
  ssize_t size = flistxattr(fd.get(), all.data(), all.size());
  if (size < 0) {
    if (errno == EOPNOTSUPP) return std::string();
    return refuse(errno);
  }
  std::string ours;
  for (std::string_view rest(all.data(), static_cast<std::size_t>(size)); !rest.empty();) {
    auto name = rest.substr(0, rest.find('\0'));
    if (name.starts_with("user.")) ours.append(name).push_back('\0');
    rest.remove_prefix(std::min(rest.size(), name.size() + 1));
  }
  return ours;
}

}  // namespace anchorhold::mounts
