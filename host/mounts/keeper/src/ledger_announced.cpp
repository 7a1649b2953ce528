// What is about to be made has no identity yet that a row could name. Its place is announced before in a file
// of one entry: when the process is killed between making it and its row, whoever opens the ledger next
// finds by it what would else be nobody's. A write to the page cache is enough, and much cheaper than one
// more transaction.
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

#include "ledger.h"
#include "ledger_statements.h"

namespace anchorhold::mounts {
namespace {

constexpr std::uint64_t announced_mark = 0x646e756f6e6e6101;
// How far the clock of file times lags behind, and how long a busy machine may take from the announcement to
// the making.
constexpr std::int64_t tick_ns = 20'000'000;
constexpr std::int64_t making_limit_ns = 2'000'000'000;

// Then the folder's path and the name. The mark is written last.
struct Entry {
  std::uint64_t mark = 0;
  std::int64_t epoch = 0;
  std::int64_t announced_ns = 0;
  std::uint64_t device = 0, inode = 0;
  std::int64_t birth_ns = 0;
  std::uint64_t generation = 0;
  std::uint32_t path_bytes = 0, name_bytes = 0;
};
static_assert(sizeof(Entry) == 64);
constexpr std::size_t max_text_bytes = 4096 + 256;
constexpr std::size_t page_bytes = 4096;

bool write_at(int file, const void* data, std::size_t size, off_t at) {
  ssize_t written = pwrite(file, data, size, at);
  if (written >= 0 && static_cast<std::size_t>(written) != size) errno = ENOSPC;
  return written >= 0 && static_cast<std::size_t>(written) == size;
}

}  // namespace

Status Ledger::open_announced(const std::filesystem::path& folder) {
  auto path = folder / "announced";
  announced_ = UniqueFd(::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!announced_) return fail_errno(errno, path.string());
  return {};
}

int Ledger::announce(const Located& folder, std::string_view name) {
  auto identity = folder.identity();
  auto now = std::chrono::system_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  Entry entry{0,
              statements_->epoch,
              now,
              identity.device,
              identity.inode,
              identity.birth_ns,
              identity.generation,
              static_cast<std::uint32_t>(folder.path.size()),
              static_cast<std::uint32_t>(name.size())};
  std::string bytes(reinterpret_cast<const char*>(&entry), sizeof entry);
  bytes += folder.path;
  bytes += name;
  if (bytes.size() > sizeof entry + max_text_bytes) return ENAMETOOLONG;
  std::lock_guard lock(mutex_);
  // A death does not cut a write within a page in two; a longer one gets its mark when it is whole.
  bool at_once = bytes.size() <= page_bytes;
  if (at_once) std::memcpy(bytes.data(), &announced_mark, sizeof announced_mark);
  if (!write_at(announced_.get(), bytes.data(), bytes.size(), 0)) return errno;
  if (!at_once && !write_at(announced_.get(), &announced_mark, sizeof announced_mark, 0)) return errno;
  has_announced_ = true;
  return 0;
}

void Ledger::forget_announced() {
  std::lock_guard lock(mutex_);
  clear_announced();
}

void Ledger::clear_announced() {
  constexpr std::uint64_t none = 0;
  if (std::exchange(has_announced_, false)) (void)write_at(announced_.get(), &none, sizeof none, 0);
}

Status Ledger::finish_announced() {
  std::string bytes(sizeof(Entry) + max_text_bytes, '\0');
  ssize_t got = pread(announced_.get(), bytes.data(), bytes.size(), 0);
  if (got < 0) return fail_errno(errno, "reading what was announced");
  Entry entry;
  if (static_cast<std::size_t>(got) < sizeof entry) return {};
  std::memcpy(&entry, bytes.data(), sizeof entry);
  if (entry.mark != announced_mark) return {};
  has_announced_ = true;
  std::string_view text(bytes.data() + sizeof entry, static_cast<std::size_t>(got) - sizeof entry);
  if (std::uint64_t{entry.path_bytes} + entry.name_bytes <= text.size()) {
    std::string path(text.substr(0, entry.path_bytes));
    auto folder = locate_beneath(root_.get(), path);
    if (folder && folder->identity() == Identity{entry.device, entry.inode, entry.birth_ns, entry.generation})
      ANCHORHOLD_CHECK(adopt_announced(path, text.substr(entry.path_bytes, entry.name_bytes), entry.epoch,
                                       entry.announced_ns));
  }
  clear_announced();
  return {};
}

// There was nothing under the name when it was announced. What is there now is the session's when it is as
// old as that; what is younger came from somebody else.
Status Ledger::adopt_announced(const std::string& folder, std::string_view name, std::int64_t epoch,
                               std::int64_t announced_ns) {
  auto object = locate_beneath(root_.get(), (folder.empty() ? "" : folder + "/") + std::string(name));
  if (!object) return {};
  auto identity = object->identity();
  auto born = identity.birth_ns != 0 ? identity.birth_ns : nanoseconds(object->attributes.change_time);
  if (born < announced_ns - tick_ns || born > announced_ns + making_limit_ns) return {};
  auto known = ANCHORHOLD_TRY(database_.prepare(
      "SELECT 1 FROM object WHERE device=?1 AND inode=?2 AND birth_ns=?3 AND generation=?4 AND removed=0"));
  known.bind(1, static_cast<std::int64_t>(identity.device))
      .bind(2, static_cast<std::int64_t>(identity.inode))
      .bind(3, identity.birth_ns)
      .bind(4, static_cast<std::int64_t>(identity.generation));
  bool there = ANCHORHOLD_TRY(known.step());
  known.reset();
  if (there) return {};
  auto opened_for = std::exchange(statements_->epoch, epoch);
  auto inserted = statements_->insert_object(*object, object->path, true, "", "");
  statements_->epoch = opened_for;
  if (!inserted) return fail(inserted.error());
  return {};
}

}  // namespace anchorhold::mounts
