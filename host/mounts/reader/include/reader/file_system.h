// What the guest can do with the granted folder, as operations on nodes and handles: the meaning of FUSE's
// requests, without their bytes. It reads for itself, and asks the keeper for every change; without a keeper
// (ro) every change is EROFS. Safe from any thread; operations may block on the file system or on the keeper.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <sys/statfs.h>
#include <sys/uio.h>

#include "base/fd.h"
#include "mounts/hidden.h"
#include "mounts/keeper_client.h"
#include "reader/coherence.h"
#include "reader/handle_table.h"
#include "reader/host_watch.h"
#include "reader/node_table.h"
#include "reader/notices.h"
#include "reader/outcome.h"
#include "reader/write_account.h"

namespace anchorhold::mounts {

struct FileSystemSpec {
  UniqueFd root;                   // O_PATH|O_DIRECTORY of the granted folder
  UniqueFd own_descriptors;        // O_PATH|O_DIRECTORY of /proc/self/fd
  KeeperClient* keeper = nullptr;  // outlives the file system; none: nothing can be changed
  HiddenNames hidden = HiddenNames::standard();
  std::string only_file;                   // the one name of the root that exists; empty: all
  std::optional<HostWatch::Spec> watch{};  // none: what the host changes is not told to the guest
  NodeLimits nodes;
  std::size_t handles = 1u << 17;
};

class FileSystem {
 public:
  // Reports refusals and violations; outlives the file system.
  static Result<std::unique_ptr<FileSystem>> create(FileSystemSpec spec, Notices& notices);

  struct Entry {
    NodeRef node;
    Statx info{};
    CacheTimes times{};
  };
  struct Attributes {
    Statx info{};
    std::chrono::milliseconds valid{};
  };
  struct Opened {
    std::uint64_t handle = 0;
    bool keep_pages = false;
  };
  struct AttributeChange {
    std::uint32_t valid = 0;  // valid_flag of mounts/keeper_protocol.h
    std::uint32_t mode = 0;
    Timestamp access_time{};
    Timestamp modify_time{};
    std::optional<std::uint64_t> size;
    std::optional<std::uint64_t> handle;
  };
  // One entry of a listing. Returns false when there is no room for it.
  struct Listed {
    std::string_view name;
    std::uint64_t inode;
    std::uint32_t type;          // DT_…
    std::int64_t next_position;  // where a listing that goes on after this entry begins
    const Entry* entry;          // with attributes, when they were asked for and could be had
  };
  using ListEntry = bool (*)(void* context, const Listed& listed);

  // Everything is forgotten: the guest starts over.
  void reset();

  // Where there is no such name, `absence` says how long that may be remembered.
  Outcome<Entry> lookup(std::uint64_t parent, std::string_view name, CacheTimes& absence);
  // The caller was refused with ESTALE when it asked for something of this node.
  void was_refused(std::uint64_t node, std::uint32_t caller);
  void forget(std::uint64_t node, std::uint64_t lookups) { nodes_->forget(node, lookups); }
  Outcome<Attributes> attributes(std::uint64_t node, std::optional<std::uint64_t> handle);
  Outcome<std::string> read_link(std::uint64_t node);
  Outcome<struct statfs> statistics(std::uint64_t node);
  Outcome<std::string> get_xattr(std::uint64_t node, std::string_view name);
  Outcome<std::string> list_xattrs(std::uint64_t node);  // NUL behind each name

  // `caller`: the thread of the guest, see Coherence::has_to_look_again().
  Outcome<Opened> open(std::uint64_t node, int flags, std::uint32_t caller);
  Outcome<std::size_t> read(std::uint64_t handle, std::uint64_t offset, std::span<iovec> into);
  Outcome<std::size_t> write(std::uint64_t handle, std::uint64_t offset, std::span<iovec> from, bool append);
  Outcome<void> sync(std::uint64_t handle, bool data_only);
  // What a close reports; only network file systems have something to say.
  Outcome<void> flush(std::uint64_t handle);
  Outcome<std::uint64_t> seek(std::uint64_t handle, std::uint64_t offset, int whence);
  Outcome<std::size_t> copy_range(std::uint64_t from, std::uint64_t from_offset, std::uint64_t to,
                                  std::uint64_t to_offset, std::uint64_t length);
  Outcome<void> allocate(std::uint64_t handle, std::uint64_t offset, std::uint64_t length,
                         std::uint32_t mode);
  void release(std::uint64_t handle) { handles_.remove(handle); }

  struct OpenedFolder {
    std::uint64_t handle = 0;
    bool may_be_kept = false;  // what is listed: the guest is told of every change
    bool is_still_so = false;  // what was listed before, and kept
  };
  Outcome<OpenedFolder> open_folder(std::uint64_t node);
  Outcome<void> list(std::uint64_t handle, std::uint64_t position, bool with_attributes, ListEntry each,
                     void* context);
  Outcome<void> sync_folder(std::uint64_t handle);

  Outcome<Entry> create(std::uint64_t parent, std::string_view name, int flags, std::uint32_t mode,
                        Opened& opened);
  Outcome<Entry> make_file(std::uint64_t parent, std::string_view name, std::uint32_t mode);
  Outcome<Entry> make_folder(std::uint64_t parent, std::string_view name, std::uint32_t mode);
  Outcome<Entry> make_symlink(std::uint64_t parent, std::string_view name, std::string_view target);
  Outcome<Entry> link(std::uint64_t node, std::uint64_t parent, std::string_view name);
  Outcome<void> unlink(std::uint64_t parent, std::string_view name);
  Outcome<void> remove_folder(std::uint64_t parent, std::string_view name);
  Outcome<void> rename(std::uint64_t parent, std::string_view name, std::uint64_t new_parent,
                       std::string_view new_name, std::uint32_t flags);
  Outcome<Attributes> set_attributes(std::uint64_t node, const AttributeChange& change);
  Outcome<void> set_xattr(std::uint64_t node, std::string_view name, std::string_view value,
                          std::uint32_t flags);
  Outcome<void> remove_xattr(std::uint64_t node, std::string_view name);

  // What the guest's agent announces (base/guest_numbers.h): the change was made on the host before, and is
  // answered as if it were made now. Nothing is touched, in any mode.
  // The name as it was before the change: not there when it is there now, and the other way round.
  struct Before {
    NodeRef node;  // none: an object that the guest never saw
    Statx info{};  // all zero: nothing is known of it any more
  };
  Outcome<Before> announced_lookup(std::uint64_t parent, std::string_view name);
  // Whether something of this type appeared there, and is there still.
  Outcome<void> announced_appearance(std::uint64_t parent, std::string_view name, std::uint32_t type);
  Outcome<void> announced_removal(std::uint64_t parent, std::string_view name);
  Outcome<void> announced_rename(std::uint64_t parent, std::string_view name, std::uint64_t new_parent,
                                 std::string_view new_name);
  Outcome<void> announced_open(std::uint64_t node);

  bool on_network() const { return on_network_; }
  NodeTable& nodes() { return *nodes_; }
  const HandleTable& handles() const { return handles_; }

 private:
  FileSystem(FileSystemSpec spec, std::unique_ptr<NodeTable> nodes, bool on_network, Notices& notices);
  Status start_watch(HostWatch::Spec spec);
  Outcome<NodeRef> find_folder(std::uint64_t id) const;
  Outcome<void> check_name(std::string_view operation, std::string_view name);
  bool visible(const NodeRef& parent, std::string_view name) const;
  Outcome<void> account(const FileHandle& file, std::uint64_t bytes);
  Outcome<KeeperAnswer> ask(const NodeRef& node, std::string_view name, const RequestHeader& request,
                            std::span<const int> descriptors, std::string_view payload = {});
  Outcome<Entry> enter(const NodeRef& parent, const SharedFd& folder, std::string_view name);
  Outcome<SharedFd> reach(const NodeRef& node) const;
  Outcome<Statx> attributes_now(const NodeRef& node) const;
  Outcome<UniqueFd> open_to_read(const NodeRef& node);
  Outcome<Attributes> attributes_of(const NodeRef& node, const std::shared_ptr<FileHandle>& file);
  OwnChanges::Name own_name(const NodeRef& folder, std::string_view name, OwnChanges::Names names);
  OwnChanges::Change own_change(const NodeRef& node);
  void note_own_change(const NodeRef& node, int descriptor, OwnChanges::Change& own);
  NodeRef about_to_go(const NodeRef& parent, const SharedFd& folder, std::string_view name);
  Outcome<KeeperAnswer> ask_about(const NodeRef& node, const RequestHeader& request);
  Outcome<void> remove(std::uint64_t parent, std::string_view name, Verb verb);
  Outcome<Entry> make(std::uint64_t parent, std::string_view name, RequestHeader request,
                      std::string_view payload);
  Outcome<Entry> made(const NodeRef& parent, const SharedFd& folder, std::string_view name,
                      const Outcome<KeeperAnswer>& answer, OwnChanges::Name& own);
  Outcome<bool> fill(FolderHandle& folder, std::uint64_t position);

  UniqueFd own_descriptors_;
  KeeperClient* keeper_;
  WriteAccount written_;
  HiddenNames hidden_;
  std::string only_file_;
  bool on_network_;
  Notices& notices_;
  std::unique_ptr<NodeTable> nodes_;
  HandleTable handles_;
  std::unique_ptr<HostWatch> watch_;
  Coherence coherence_;
};

}  // namespace anchorhold::mounts
