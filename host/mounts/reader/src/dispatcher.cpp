#include "reader/dispatcher.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "dispatcher_call.h"

namespace anchorhold::mounts {
namespace {

// The longest request besides a write: a user attribute's value and its name.
constexpr std::size_t max_body_bytes = 128 << 10;
constexpr std::size_t operations = 64;

}  // namespace

std::optional<std::string_view> Arguments::take_name() {
  std::string_view text(reinterpret_cast<const char*>(bytes_.data()), bytes_.size());
  auto end = text.find('\0');
  if (end == std::string_view::npos) return std::nullopt;
  bytes_ = bytes_.subspan(end + 1);
  return text.substr(0, end);
}

std::optional<std::string_view> Arguments::take_bytes(std::size_t count) {
  if (bytes_.size() < count) return std::nullopt;
  std::string_view text(reinterpret_cast<const char*>(bytes_.data()), count);
  bytes_ = bytes_.subspan(count);
  return text;
}

struct Dispatcher::Operation {
  const char* name = nullptr;
  int (Dispatcher::*handler)(Call&) = nullptr;  // none: known, and not offered
  std::uint16_t arguments = 0;                  // bytes of the fixed structure
  std::uint16_t answer = 0;                     // room the guest has to give behind the header
  bool answered = true;
  Duration takes = Duration::unknown;
};

const Dispatcher::Operation* Dispatcher::operation(std::uint32_t opcode) {
  using D = Dispatcher;
  constexpr auto quick = Duration::short_, slow = Duration::long_;
  static const auto table = [] {
    std::array<Operation, operations> all{};
    constexpr std::uint16_t entry = sizeof(fuse_entry_out), attributes = sizeof(fuse_attr_out);
    all[FUSE_LOOKUP] = {"FUSE_LOOKUP", &D::lookup, 0, entry, true, quick};
    all[FUSE_FORGET] = {"FUSE_FORGET", &D::forget, sizeof(fuse_forget_in), 0, false, quick};
    all[FUSE_GETATTR] = {"FUSE_GETATTR", &D::get_attributes, sizeof(fuse_getattr_in), attributes, true,
                         quick};
    all[FUSE_SETATTR] = {"FUSE_SETATTR", &D::set_attributes, sizeof(fuse_setattr_in), attributes};
    all[FUSE_READLINK] = {"FUSE_READLINK", &D::read_link, 0, 0, true, quick};
    all[FUSE_SYMLINK] = {"FUSE_SYMLINK", &D::make_symlink, 0, entry};
    all[FUSE_MKNOD] = {"FUSE_MKNOD", &D::make_node, sizeof(fuse_mknod_in), entry};
    all[FUSE_MKDIR] = {"FUSE_MKDIR", &D::make_folder, sizeof(fuse_mkdir_in), entry};
    all[FUSE_UNLINK] = {"FUSE_UNLINK", &D::unlink};
    all[FUSE_RMDIR] = {"FUSE_RMDIR", &D::remove_folder};
    all[FUSE_RENAME] = {"FUSE_RENAME", &D::rename, sizeof(fuse_rename_in)};
    all[FUSE_LINK] = {"FUSE_LINK", &D::link, sizeof(fuse_link_in), entry};
    all[FUSE_OPEN] = {"FUSE_OPEN", &D::open, sizeof(fuse_open_in), sizeof(fuse_open_out)};
    all[FUSE_READ] = {"FUSE_READ", &D::read, sizeof(fuse_read_in)};
    all[FUSE_WRITE] = {"FUSE_WRITE", &D::write, sizeof(fuse_write_in), sizeof(fuse_write_out)};
    all[FUSE_STATFS] = {"FUSE_STATFS", &D::statistics, 0, sizeof(fuse_statfs_out), true, quick};
    all[FUSE_RELEASE] = {"FUSE_RELEASE", &D::release, sizeof(fuse_release_in), 0, true, quick};
    all[FUSE_FSYNC] = {"FUSE_FSYNC", &D::sync, sizeof(fuse_fsync_in), 0, true, slow};
    all[FUSE_SETXATTR] = {"FUSE_SETXATTR", &D::set_xattr, FUSE_COMPAT_SETXATTR_IN_SIZE};
    all[FUSE_GETXATTR] = {"FUSE_GETXATTR", &D::get_xattr, sizeof(fuse_getxattr_in), 0, true, quick};
    all[FUSE_LISTXATTR] = {"FUSE_LISTXATTR", &D::list_xattrs, sizeof(fuse_getxattr_in), 0, true, quick};
    all[FUSE_REMOVEXATTR] = {"FUSE_REMOVEXATTR", &D::remove_xattr};
    all[FUSE_FLUSH] = {"FUSE_FLUSH", &D::flush, sizeof(fuse_flush_in), 0, true, slow};
    all[FUSE_INIT] = {"FUSE_INIT", &D::init, 16, sizeof(fuse_init_out)};
    all[FUSE_OPENDIR] = {"FUSE_OPENDIR", &D::open_folder, sizeof(fuse_open_in), sizeof(fuse_open_out), true,
                         quick};
    all[FUSE_READDIR] = {"FUSE_READDIR", &D::list_folder, sizeof(fuse_read_in)};
    all[FUSE_RELEASEDIR] = {"FUSE_RELEASEDIR", &D::release, sizeof(fuse_release_in), 0, true, quick};
    all[FUSE_FSYNCDIR] = {"FUSE_FSYNCDIR", &D::sync_folder, sizeof(fuse_fsync_in), 0, true, slow};
    all[FUSE_CREATE] = {"FUSE_CREATE", &D::create, sizeof(fuse_create_in), entry + sizeof(fuse_open_out)};
    all[FUSE_INTERRUPT] = {"FUSE_INTERRUPT", &D::nothing_to_do, sizeof(fuse_interrupt_in), 0, false};
    all[FUSE_DESTROY] = {"FUSE_DESTROY", &D::destroy};
    all[FUSE_BATCH_FORGET] = {
        "FUSE_BATCH_FORGET", &D::batch_forget, sizeof(fuse_batch_forget_in), 0, false, quick};
    all[FUSE_FALLOCATE] = {"FUSE_FALLOCATE", &D::allocate, sizeof(fuse_fallocate_in), 0, true, slow};
    all[FUSE_READDIRPLUS] = {"FUSE_READDIRPLUS", &D::list_folder_plus, sizeof(fuse_read_in)};
    all[FUSE_RENAME2] = {"FUSE_RENAME2", &D::rename2, sizeof(fuse_rename2_in)};
    all[FUSE_LSEEK] = {"FUSE_LSEEK", &D::seek, sizeof(fuse_lseek_in), sizeof(fuse_lseek_out)};
    all[FUSE_COPY_FILE_RANGE] = {"FUSE_COPY_FILE_RANGE", &D::copy_range, sizeof(fuse_copy_file_range_in),
                                 sizeof(fuse_write_out), true,           slow};
    return all;
  }();
  if (opcode >= table.size() || !table[opcode].name) return nullptr;
  return &table[opcode];
}

Dispatcher::Duration Dispatcher::duration(std::uint32_t opcode) {
  auto* known = operation(opcode);
  return known ? known->takes : Duration::unknown;
}

bool Dispatcher::is_awaited(std::uint32_t opcode) {
  return opcode != FUSE_FORGET && opcode != FUSE_BATCH_FORGET;
}

Result<std::optional<std::uint32_t>> Dispatcher::serve(const RequestBuffers& buffers, Scratch& scratch) {
  auto malformed = [](std::string_view name, std::string_view what) {
    return fail(ErrorCode::invalid_argument, fmt::format("the guest sent a malformed {}: {}", name, what));
  };
  fuse_in_header header;
  if (vsock::copy_from(buffers.readable, 0, std::as_writable_bytes(std::span(&header, 1))) != sizeof header)
    return malformed("FUSE request", "shorter than its header");
  if (header.len != buffers.readable_bytes)
    return malformed("FUSE request",
                     fmt::format("it says {} bytes and has {}", header.len, buffers.readable_bytes));
  const Operation* known = operation(header.opcode);
  std::string_view name = known ? known->name : "FUSE request";
  std::size_t body_bytes = header.len - sizeof header;
  // The data of a write stays where it is.
  if (header.opcode == FUSE_WRITE) body_bytes = std::min(body_bytes, sizeof(fuse_write_in));
  if (body_bytes > max_body_bytes) return malformed(name, fmt::format("{} bytes are too long", header.len));
  if (known && body_bytes < known->arguments) return malformed(name, "shorter than its arguments");
  bool answered = !known || known->answered;
  if (answered && buffers.writable_bytes < sizeof(fuse_out_header) + (known ? known->answer : 0))
    return malformed(name, "no room for the answer");
  if (answered && header.opcode != FUSE_INIT && !initialised_.load(std::memory_order_acquire))
    return malformed(name, "it came before FUSE_INIT");
  if (header.opcode >= CUSE_INIT || header.opcode == 0) return malformed("FUSE request", "no such operation");

  scratch.body.resize(body_bytes);
  vsock::copy_from(buffers.readable, sizeof header, scratch.body);
  Call call{header, Arguments(scratch.body), buffers, scratch};
  bool announces = is_announcement(header) && can_be_announced(header.opcode);
  int error = announces ? announced(call) : known && known->handler ? (this->*known->handler)(call) : ENOSYS;
  if (call.malformed) return malformed(name, call.malformed);
  if (error == would_wait) return std::nullopt;
  if (!answered) return 0u;
  if (error == ESTALE && !announces) files_.was_refused(header.nodeid, header.pid);

  fuse_out_header out{};
  out.len = static_cast<std::uint32_t>(sizeof out + (error ? 0 : call.answered));
  out.error = -error;
  out.unique = header.unique;
  vsock::copy_to(buffers.writable, 0, std::as_bytes(std::span(&out, 1)));
  return out.len;
}

int Dispatcher::init(Call& call) {
  auto in = call.arguments.take<fuse_init_in>();
  fuse_init_out out{};
  out.major = FUSE_KERNEL_VERSION;
  out.minor = std::min<std::uint32_t>(in.minor, FUSE_KERNEL_MINOR_VERSION);
  if (in.major > FUSE_KERNEL_VERSION) {  // the guest tries again with ours
    call.answer(out);
    return 0;
  }
  constexpr std::uint32_t oldest_minor = 31;
  if (in.major < FUSE_KERNEL_VERSION || in.minor < oldest_minor) return EPROTO;
  // The guest's kernel keeps locks itself: virtio-fs cannot interrupt a request, so a program that waits for
  // a lock in here could not be killed. Pages are written through, never kept back: the host sees what the
  // guest wrote. Listings always bring attributes: the kernel would leave them out (READDIRPLUS_AUTO) just
  // where a program lists all of a folder and then looks at each of it.
  constexpr std::uint32_t offered =
      FUSE_ASYNC_READ | FUSE_ATOMIC_O_TRUNC | FUSE_BIG_WRITES | FUSE_AUTO_INVAL_DATA | FUSE_DO_READDIRPLUS |
      FUSE_ASYNC_DIO | FUSE_PARALLEL_DIROPS | FUSE_MAX_PAGES | FUSE_CACHE_SYMLINKS | FUSE_HANDLE_KILLPRIV_V2;
  // Our guest's own (images/kernel/fuse_known_answers.patch): the making and removing of names changes
  // neither owner nor mode of a folder, and there are no attributes but "user.": it need not ask.
  constexpr std::uint32_t known_answers = 1u << 31;
  constexpr std::uint16_t max_pages = 256;
  out.flags = in.flags & offered;
  if ((in.flags & FUSE_INIT_EXT) && (in.flags2 & known_answers)) {
    out.flags |= FUSE_INIT_EXT;
    out.flags2 = known_answers;
  }
  out.max_readahead = in.max_readahead;
  out.max_background = 64;
  out.congestion_threshold = 48;
  out.max_write = max_pages * 4096u;
  out.max_pages = max_pages;
  out.time_gran = 1;
  files_.reset();
  initialised_.store(true, std::memory_order_release);
  call.answer(out);
  return 0;
}

int Dispatcher::destroy(Call&) {
  initialised_.store(false, std::memory_order_release);
  files_.reset();
  return 0;
}

int Dispatcher::nothing_to_do(Call&) {
  return 0;
}

int Dispatcher::forget(Call& call) {
  auto in = call.arguments.take<fuse_forget_in>();
  files_.forget(call.header.nodeid, in.nlookup);
  return 0;
}

int Dispatcher::batch_forget(Call& call) {
  auto in = call.arguments.take<fuse_batch_forget_in>();
  if (call.arguments.size() / sizeof(fuse_forget_one) < in.count)
    return call.bad("fewer entries than it says");
  for (std::uint32_t i = 0; i < in.count; ++i) {
    auto one = call.arguments.take<fuse_forget_one>();
    files_.forget(one.nodeid, one.nlookup);
  }
  return 0;
}

}  // namespace anchorhold::mounts
