// FUSE's bytes (linux/fuse.h, protocol 7.31 and later; virtio 1.2 section 5.11): one request in, one answer
// out. What the guest wrote is copied once and checked before it means anything. A request that no kernel
// would send is an error, after which the device has to end; a request that is merely refused is answered
// with an errno.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <linux/fuse.h>
#include <optional>
#include <span>
#include <string_view>
#include <sys/uio.h>
#include <vector>

#include "base/error.h"
#include "reader/file_system.h"
#include "reader/notices.h"
#include "reader/owners.h"

namespace anchorhold::mounts {

// A request as it lies in the guest's memory, which changes at any moment.
struct RequestBuffers {
  std::span<const iovec> readable;  // what the guest wrote
  std::size_t readable_bytes = 0;
  std::span<const iovec> writable;  // where it wants the answer
  std::size_t writable_bytes = 0;
};

// Memory that one thread reuses from request to request.
struct Scratch {
  std::vector<std::byte> body;
  std::vector<std::byte> listing;
  std::vector<iovec> segments;
};

// The bytes behind the request's header, taken apart from the front. The views point into the scratch memory.
class Arguments {
 public:
  explicit Arguments(std::span<const std::byte> bytes) : bytes_(bytes) {}
  // Where fewer bytes are left than the structure has, what is missing is zero.
  template <typename T>
  T take() {
    T value{};
    std::size_t size = std::min(sizeof value, bytes_.size());
    if (size > 0) std::memcpy(&value, bytes_.data(), size);
    bytes_ = bytes_.subspan(size);
    return value;
  }
  // Up to a NUL, which has to be there.
  std::optional<std::string_view> take_name();
  std::optional<std::string_view> take_bytes(std::size_t count);
  std::size_t size() const { return bytes_.size(); }

 private:
  std::span<const std::byte> bytes_;
};

// serve() is safe from any thread, with a scratch memory of its own for each.
class Dispatcher {
 public:
  Dispatcher(FileSystem& files, Owners owners, Notices& notices)
      : files_(files), owners_(std::move(owners)), notices_(notices) {}

  // Returns how many bytes of answer were written; 0 for the requests that have none. Nothing when it would
  // have made a hurried thread (KeeperClient::Hurry) wait: nothing is done then, and another serves it again.
  Result<std::optional<std::uint32_t>> serve(const RequestBuffers& buffers, Scratch& scratch);

  // How long serving it may take, by the operation's number alone. Long: syncing, copying. Short: what is
  // only looked up.
  enum class Duration { short_, unknown, long_ };
  static Duration duration(std::uint32_t opcode);
  // Whether a program of the guest waits for it to be done.
  static bool is_awaited(std::uint32_t opcode);

 private:
  struct Call;
  struct Operation;
  static const Operation* operation(std::uint32_t opcode);

  int init(Call& call);
  int destroy(Call& call);
  int lookup(Call& call);
  int forget(Call& call);
  int batch_forget(Call& call);
  int get_attributes(Call& call);
  int set_attributes(Call& call);
  int read_link(Call& call);
  int answer_target(Call& call, const Outcome<std::string>& target);
  int make_symlink(Call& call);
  int make_node(Call& call);
  int make_folder(Call& call);
  int unlink(Call& call);
  int remove_folder(Call& call);
  int rename(Call& call);
  int rename2(Call& call);
  int rename_to(Call& call, std::uint64_t new_parent, std::uint32_t flags);
  int link(Call& call);
  int open(Call& call);
  int create(Call& call);
  int read(Call& call);
  int write(Call& call);
  int release(Call& call);
  int flush(Call& call);
  int sync(Call& call);
  int sync_folder(Call& call);
  int statistics(Call& call);
  int set_xattr(Call& call);
  int get_xattr(Call& call);
  int list_xattrs(Call& call);
  int xattr_answer(Call& call, const Outcome<std::string>& value, std::uint32_t room);
  int remove_xattr(Call& call);
  int open_folder(Call& call);
  int list_folder(Call& call);
  int list_folder_plus(Call& call);
  int list(Call& call, bool plus);
  int allocate(Call& call);
  int seek(Call& call);
  int copy_range(Call& call);
  int nothing_to_do(Call& call);

  static bool is_announcement(const fuse_in_header& header);
  static bool can_be_announced(std::uint32_t opcode);
  int announced(Call& call);
  int announced_lookup(Call& call);
  int answer_nothing_known(Call& call, std::uint32_t type);
  int announced_appearance(Call& call, std::uint32_t type);
  int announced_rename(Call& call, std::uint64_t new_parent);

  int answer_entry(Call& call, const Outcome<FileSystem::Entry>& entry);
  int answer_attributes(Call& call, const Outcome<FileSystem::Attributes>& attributes);
  fuse_attr to_fuse(const Statx& info) const;
  fuse_entry_out to_fuse(const FileSystem::Entry& entry) const;
  bool keeps_owner(const Statx& info, const fuse_setattr_in& in) const;

  FileSystem& files_;
  Owners owners_;
  Notices& notices_;
  std::atomic<bool> initialised_{false};
};

}  // namespace anchorhold::mounts
