// Opened files and folders.
#include <algorithm>
#include <fcntl.h>

#include "dispatcher_call.h"

namespace anchorhold::mounts {
namespace {

constexpr std::size_t max_listing_bytes = 64 << 10;

int error_of(const Outcome<void>& done) {
  return done ? 0 : done.error();
}

// The entries of one listing, in the form the guest gets them.
struct Listing {
  std::vector<std::byte>& bytes;
  std::size_t limit;
  bool plus;
  bool full = false;

  // With an entry it takes the form of READDIRPLUS; one without a node says that there are no attributes.
  bool add(const FileSystem::Listed& listed, const fuse_entry_out& entry) {
    std::size_t head = plus ? FUSE_NAME_OFFSET_DIRENTPLUS : FUSE_NAME_OFFSET;
    std::size_t size = FUSE_DIRENT_ALIGN(head + listed.name.size());
    if (bytes.size() + size > limit) {
      full = true;
      return false;
    }
    std::size_t at = bytes.size();
    bytes.resize(at + size);
    std::byte* to = bytes.data() + at;
    if (plus) {
      std::memcpy(to, &entry, sizeof entry);
      to += sizeof entry;
    }
    fuse_dirent dirent{};
    dirent.ino = listed.inode;
    dirent.off = static_cast<std::uint64_t>(listed.next_position);
    dirent.namelen = static_cast<std::uint32_t>(listed.name.size());
    dirent.type = listed.type;
    std::memcpy(to, &dirent, FUSE_NAME_OFFSET);
    std::memcpy(to + FUSE_NAME_OFFSET, listed.name.data(), listed.name.size());
    return true;
  }
};

}  // namespace

int Dispatcher::open(Call& call) {
  auto in = call.arguments.take<fuse_open_in>();
  auto opened = files_.open(call.header.nodeid, static_cast<int>(in.flags), call.header.pid);
  if (!opened) return opened.error();
  fuse_open_out out{};
  out.fh = opened->handle;
  out.open_flags = opened->keep_pages ? FOPEN_KEEP_CACHE : 0;
  call.answer(out);
  return 0;
}

int Dispatcher::create(Call& call) {
  auto in = call.arguments.take<fuse_create_in>();
  auto name = call.arguments.take_name();
  if (!name) return call.bad("a name without an end");
  FileSystem::Opened opened;
  auto entry = files_.create(call.header.nodeid, *name, static_cast<int>(in.flags), in.mode, opened);
  if (int error = answer_entry(call, entry)) return error;
  fuse_open_out out{};
  out.fh = opened.handle;
  out.open_flags = opened.keep_pages ? FOPEN_KEEP_CACHE : 0;
  call.answer(out);
  return 0;
}

int Dispatcher::read(Call& call) {
  auto in = call.arguments.take<fuse_read_in>();
  if (in.size > call.room()) return call.bad("it asks for more than it has room for");
  auto& segments = call.scratch.segments;
  segments.clear();
  vsock::slice(call.buffers.writable, sizeof(fuse_out_header), in.size, segments);
  auto count = files_.read(in.fh, in.offset, segments);
  if (!count) return count.error();
  call.answered = *count;
  return 0;
}

int Dispatcher::write(Call& call) {
  auto in = call.arguments.take<fuse_write_in>();
  constexpr std::size_t data = sizeof(fuse_in_header) + sizeof(fuse_write_in);
  if (in.size > call.buffers.readable_bytes - data) return call.bad("less data than it says");
  auto& segments = call.scratch.segments;
  segments.clear();
  vsock::slice(call.buffers.readable, data, in.size, segments);
  // Pages of a mapping go where they came from, however the file was opened.
  bool append = (in.flags & O_APPEND) && !(in.write_flags & FUSE_WRITE_CACHE);
  auto count = files_.write(in.fh, in.offset, segments, append);
  if (!count) return count.error();
  fuse_write_out out{};
  out.size = static_cast<std::uint32_t>(*count);
  call.answer(out);
  return 0;
}

int Dispatcher::release(Call& call) {
  auto in = call.arguments.take<fuse_release_in>();
  files_.release(in.fh);
  return 0;
}

int Dispatcher::flush(Call& call) {
  if (!files_.on_network()) return ENOSYS;  // the guest asks no more: one round trip less for each file
  auto in = call.arguments.take<fuse_flush_in>();
  return error_of(files_.flush(in.fh));
}

int Dispatcher::sync(Call& call) {
  auto in = call.arguments.take<fuse_fsync_in>();
  return error_of(files_.sync(in.fh, in.fsync_flags & FUSE_FSYNC_FDATASYNC));
}

int Dispatcher::sync_folder(Call& call) {
  auto in = call.arguments.take<fuse_fsync_in>();
  return error_of(files_.sync_folder(in.fh));
}

int Dispatcher::open_folder(Call& call) {
  auto opened = files_.open_folder(call.header.nodeid);
  if (!opened) return opened.error();
  fuse_open_out out{};
  out.fh = opened->handle;
  if (opened->may_be_kept) out.open_flags |= FOPEN_CACHE_DIR;
  if (opened->is_still_so) out.open_flags |= FOPEN_KEEP_CACHE;
  call.answer(out);
  return 0;
}

int Dispatcher::list_folder(Call& call) {
  return list(call, false);
}
int Dispatcher::list_folder_plus(Call& call) {
  return list(call, true);
}

int Dispatcher::list(Call& call, bool plus) {
  auto in = call.arguments.take<fuse_read_in>();
  if (in.size > call.room()) return call.bad("it asks for more than it has room for");
  call.scratch.listing.clear();
  Listing listing{call.scratch.listing, std::min<std::size_t>(in.size, max_listing_bytes), plus};
  struct Context {
    const Dispatcher& dispatcher;
    Listing& listing;
  } context{*this, listing};
  auto add = [](void* pointer, const FileSystem::Listed& listed) {
    auto& to = *static_cast<Context*>(pointer);
    return to.listing.add(listed, listed.entry ? to.dispatcher.to_fuse(*listed.entry) : fuse_entry_out{});
  };
  auto done = files_.list(in.fh, in.offset, plus, add, &context);
  // What was listed before a fault is given; the guest meets the fault when it goes on.
  if (!done && listing.bytes.empty()) return done.error();
  if (listing.bytes.empty() && listing.full) return EINVAL;
  call.answer(listing.bytes.data(), listing.bytes.size());
  return 0;
}

int Dispatcher::allocate(Call& call) {
  auto in = call.arguments.take<fuse_fallocate_in>();
  return error_of(files_.allocate(in.fh, in.offset, in.length, in.mode));
}

int Dispatcher::seek(Call& call) {
  auto in = call.arguments.take<fuse_lseek_in>();
  auto found = files_.seek(in.fh, in.offset, static_cast<int>(in.whence));
  if (!found) return found.error();
  fuse_lseek_out out{};
  out.offset = *found;
  call.answer(out);
  return 0;
}

int Dispatcher::copy_range(Call& call) {
  auto in = call.arguments.take<fuse_copy_file_range_in>();
  if (in.flags != 0) return EINVAL;
  auto count = files_.copy_range(in.fh_in, in.off_in, in.fh_out, in.off_out, in.len);
  if (!count) return count.error();
  fuse_write_out out{};
  out.size = static_cast<std::uint32_t>(*count);
  call.answer(out);
  return 0;
}

}  // namespace anchorhold::mounts
