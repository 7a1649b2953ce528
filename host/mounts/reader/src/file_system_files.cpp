// Opened files and folders: data goes straight between the file and the guest's memory.
#include <algorithm>
#include <array>
#include <cstring>
#include <fcntl.h>
#include <limits>
#include <sys/syscall.h>
#include <unistd.h>

#include "reader/file_system.h"

namespace anchorhold::mounts {
namespace {

// Longer copies are cut, as copy_file_range(2) allows, so that no thread is held for minutes.
constexpr std::uint64_t max_copy_bytes = 64u << 20;
constexpr std::size_t listing_buffer_bytes = 32768;

bool is_offset(std::uint64_t value) {
  return value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
}

// Takes `count` bytes off the front of the segments.
void advance(std::span<iovec>& segments, std::size_t count) {
  while (count > 0) {
    auto& first = segments.front();
    std::size_t step = std::min(count, first.iov_len);
    first.iov_base = static_cast<char*>(first.iov_base) + step;
    first.iov_len -= step;
    count -= step;
    if (first.iov_len == 0) segments = segments.subspan(1);
  }
}

// A short count means the end of the file to the guest, so it must not come from anything else.
template <typename Transfer>
Outcome<std::size_t> transfer_all(std::span<iovec> segments, Transfer transfer) {
  std::size_t done = 0;
  while (!segments.empty()) {
    ssize_t count = transfer(segments, done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && done == 0) return refuse(errno);
    if (count <= 0) break;
    done += static_cast<std::size_t>(count);
    advance(segments, static_cast<std::size_t>(count));
    while (!segments.empty() && segments.front().iov_len == 0) segments = segments.subspan(1);
  }
  return done;
}

struct KernelEntry {  // linux_dirent64, getdents64(2)
  std::uint64_t inode;
  std::int64_t position;
  std::uint16_t size;
  std::uint8_t type;
};
constexpr std::size_t kernel_name_offset = 19;

}  // namespace

Outcome<FileSystem::Opened> FileSystem::open(std::uint64_t id, int flags, std::uint32_t caller) {
  auto node = ANCHORHOLD_OUTCOME(nodes_->find(id));
  if (!node->is_regular()) return refuse(node->is_directory() ? EISDIR : EACCES);
  auto file = std::make_shared<FileHandle>();
  file->node = node;
  int access = flags & O_ACCMODE;
  if (access == O_RDONLY && !(flags & O_TRUNC)) {
    file->descriptor = ANCHORHOLD_OUTCOME(open_to_read(node));
  } else {
    auto request = make_request(Verb::open_for_write);
    if (access != O_WRONLY) request.flags |= open_flag::read_too;
    if (flags & O_TRUNC) request.flags |= open_flag::truncate;
    auto own = own_change(node);
    auto answer = ANCHORHOLD_OUTCOME(ask_about(node, request));
    file->descriptor = std::move(answer.descriptor);
    file->writable = access != O_RDONLY;
    if (flags & O_TRUNC) note_own_change(node, file->descriptor.get(), own);
  }
  auto info = ANCHORHOLD_OUTCOME(nodes_->stat_descriptor(file->descriptor.get()));
  if (identity_of(info) != node->identity()) return refuse(ESTALE);
  if (!(flags & O_TRUNC) && coherence_.has_to_look_again(node, info, caller)) return refuse(ESTALE);
  Opened opened;
  opened.keep_pages = coherence_.may_keep_pages(node, info);
  opened.handle = ANCHORHOLD_OUTCOME(handles_.add(std::move(file)));
  return opened;
}

Outcome<std::size_t> FileSystem::read(std::uint64_t handle, std::uint64_t offset, std::span<iovec> into) {
  auto file = ANCHORHOLD_OUTCOME(handles_.file(handle));
  if (!is_offset(offset)) return refuse(EINVAL);
  int error = 0;
  auto count = transfer_all(into, [&](std::span<iovec> segments, std::size_t done) {
    ssize_t part = preadv(file->descriptor.get(), segments.data(), static_cast<int>(segments.size()),
                          static_cast<off_t>(offset + done));
    error = part < 0 ? errno : 0;
    return part;
  });
  if (!count || error != 0) return refuse(error);
  if (*count == 0 || on_network_) return count;
  // A kernel that makes a file shorter moves its end, and then clears the rest of the last page, which a
  // reader may be copying: what is beyond the end by now may never have been in the file.
  Statx now;
  if (statx(file->descriptor.get(), "", AT_EMPTY_PATH, STATX_SIZE, &now) != 0) return refuse(errno);
  return std::min<std::uint64_t>(*count, now.stx_size > offset ? now.stx_size - offset : 0);
}

Outcome<void> FileSystem::account(const FileHandle& file, std::uint64_t bytes) {
  int error = written_.take(bytes);
  if (error == 0) return {};
  if (error == EDQUOT)
    notices_.refused("write", nodes_->path(file.node, {}), error, "the quota of written bytes is used up");
  return refuse(error);
}

Outcome<std::size_t> FileSystem::write(std::uint64_t handle, std::uint64_t offset, std::span<iovec> from,
                                       bool append) {
  auto file = ANCHORHOLD_OUTCOME(handles_.file(handle));
  if (!file->writable) return refuse(EBADF);
  if (!is_offset(offset)) return refuse(EFBIG);
  std::uint64_t bytes = 0;
  for (const auto& segment : from) bytes += segment.iov_len;
  if (auto accounted = account(*file, bytes); !accounted) return refuse(accounted.error());
  // What the guest appends goes to the end as it is on the host, where others may have appended too.
  int flags = append ? RWF_APPEND : 0;
  auto own = own_change(file->node);
  auto written = transfer_all(from, [&](std::span<iovec> segments, std::size_t done) {
    return pwritev2(file->descriptor.get(), segments.data(), static_cast<int>(segments.size()),
                    static_cast<off_t>(offset + done), flags);
  });
  note_own_change(file->node, file->descriptor.get(), own);
  return written;
}

Outcome<void> FileSystem::sync(std::uint64_t handle, bool data_only) {
  auto file = ANCHORHOLD_OUTCOME(handles_.file(handle));
  if ((data_only ? fdatasync(file->descriptor.get()) : fsync(file->descriptor.get())) != 0)
    return refuse(errno);
  return {};
}

Outcome<void> FileSystem::flush(std::uint64_t handle) {
  auto file = ANCHORHOLD_OUTCOME(handles_.file(handle));
  if (!file->writable) return {};
  int copy = fcntl(file->descriptor.get(), F_DUPFD_CLOEXEC, 0);
  if (copy < 0 || close(copy) != 0) return refuse(errno);
  return {};
}

Outcome<std::uint64_t> FileSystem::seek(std::uint64_t handle, std::uint64_t offset, int whence) {
  auto file = ANCHORHOLD_OUTCOME(handles_.file(handle));
  if (!is_offset(offset) || (whence != SEEK_DATA && whence != SEEK_HOLE)) return refuse(EINVAL);
  off_t found = lseek(file->descriptor.get(), static_cast<off_t>(offset), whence);
  if (found < 0) return refuse(errno);
  return static_cast<std::uint64_t>(found);
}

Outcome<std::size_t> FileSystem::copy_range(std::uint64_t from, std::uint64_t from_offset, std::uint64_t to,
                                            std::uint64_t to_offset, std::uint64_t length) {
  auto source = ANCHORHOLD_OUTCOME(handles_.file(from));
  auto target = ANCHORHOLD_OUTCOME(handles_.file(to));
  if (!target->writable) return refuse(EBADF);
  if (!is_offset(from_offset) || !is_offset(to_offset)) return refuse(EINVAL);
  // A program may ask for more than there is, and is asked to pay for what there is.
  auto info = ANCHORHOLD_OUTCOME(nodes_->stat_descriptor(source->descriptor.get()));
  std::uint64_t there = info.stx_size > from_offset ? info.stx_size - from_offset : 0;
  length = std::min({length, max_copy_bytes, there});
  if (auto accounted = account(*target, length); !accounted) return refuse(accounted.error());
  off64_t in = static_cast<off64_t>(from_offset), out = static_cast<off64_t>(to_offset);
  auto own = own_change(target->node);
  ssize_t count = copy_file_range(source->descriptor.get(), &in, target->descriptor.get(), &out,
                                  static_cast<std::size_t>(length), 0);
  if (count < 0) return refuse(errno);
  note_own_change(target->node, target->descriptor.get(), own);
  return static_cast<std::size_t>(count);
}

Outcome<void> FileSystem::allocate(std::uint64_t handle, std::uint64_t offset, std::uint64_t length,
                                   std::uint32_t mode) {
  auto file = ANCHORHOLD_OUTCOME(handles_.file(handle));
  if (!file->writable) return refuse(EBADF);
  if (mode & ~allocate_flag::all) return refuse(EOPNOTSUPP);
  auto request = make_request(Verb::allocate);
  request.flags = mode;
  request.offset = offset;
  request.size = length;
  auto own = own_change(file->node);
  (void)ANCHORHOLD_OUTCOME(ask(file->node, {}, request, std::array{file->descriptor.get()}));
  note_own_change(file->node, file->descriptor.get(), own);
  return {};
}

Outcome<FileSystem::OpenedFolder> FileSystem::open_folder(std::uint64_t id) {
  auto node = ANCHORHOLD_OUTCOME(find_folder(id));
  auto folder = std::make_shared<FolderHandle>();
  folder->descriptor = ANCHORHOLD_OUTCOME(open_to_read(node));
  folder->node = node;
  // What is going to be listed may be remembered, and whoever lists it is told what changes from then on: so
  // the watch has to be there before.
  if (coherence_.watched(node) == Watching::soon) {
    if (KeeperClient::is_hurried()) return refuse(would_wait);
    coherence_.wait_until_decided(node);
  }
  OpenedFolder opened;
  opened.may_be_kept = coherence_.watched(node) == Watching::yes;
  opened.is_still_so = opened.may_be_kept && coherence_.was_listed(node);
  opened.handle = ANCHORHOLD_OUTCOME(handles_.add(std::move(folder)));
  return opened;
}

// Makes the buffer begin with the entry at the position; false at the end of the folder.
Outcome<bool> FileSystem::fill(FolderHandle& folder, std::uint64_t position) {
  auto wanted = static_cast<std::int64_t>(position);
  if (folder.position == wanted && folder.next < folder.used) return true;
  // The descriptor stands behind the buffer. Where the guest goes on elsewhere, the folder is read from
  // there.
  if (folder.position != wanted || position == 0) {
    if (lseek(folder.descriptor.get(), wanted, SEEK_SET) < 0) return refuse(errno);
    folder.position = wanted;
  }
  folder.buffer.resize(listing_buffer_bytes);
  long count = syscall(SYS_getdents64, folder.descriptor.get(), folder.buffer.data(), folder.buffer.size());
  folder.next = folder.used = 0;
  if (count < 0) return refuse(errno);
  folder.used = static_cast<std::size_t>(count);
  return count > 0;
}

Outcome<void> FileSystem::list(std::uint64_t handle, std::uint64_t position, bool with_attributes,
                               ListEntry each, void* context) {
  auto folder = ANCHORHOLD_OUTCOME(handles_.folder(handle));
  if (!is_offset(position)) return refuse(EINVAL);
  std::lock_guard lock(folder->mutex);
  while (ANCHORHOLD_OUTCOME(fill(*folder, position))) {
    while (folder->next < folder->used) {
      const char* bytes = folder->buffer.data() + folder->next;
      KernelEntry kernel;
      std::memcpy(&kernel, bytes, sizeof kernel);
      std::string_view name(bytes + kernel_name_offset);
      bool itself = name == "." || name == "..";
      Listed listed{name, kernel.inode, kernel.type, kernel.position, nullptr};
      Entry entry;
      bool gone = !itself && !visible(folder->node, name);
      if (with_attributes && !itself && !gone) {
        const auto watched = coherence_.watched(folder->node);
        auto info = nodes_->stat_at(folder->descriptor.get(), std::string(name));
        gone = !info && info.error() == ENOENT;
        if (info)
          if (auto node = nodes_->enter(*info, folder->node, name)) {
            entry = {*node, *info, coherence_.tell(watched, *node, *info)};
            listed.entry = &entry;
          }
      }
      if (!gone && !each(context, listed)) {
        if (listed.entry) nodes_->forget(entry.node->id(), 1);
        return {};
      }
      folder->next += kernel.size;
      folder->position = kernel.position;
      position = static_cast<std::uint64_t>(kernel.position);
    }
  }
  return {};
}

Outcome<void> FileSystem::sync_folder(std::uint64_t handle) {
  auto folder = ANCHORHOLD_OUTCOME(handles_.folder(handle));
  if (fsync(folder->descriptor.get()) != 0) return refuse(errno);
  return {};
}

}  // namespace anchorhold::mounts
