#include "ledger_recent.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace anchorhold::mounts {
namespace {

constexpr std::uint64_t recent_mark = 0x31746e6563657202;
// Longer than what gathers in half a second; a file beyond it was not written by us.
constexpr std::size_t max_file_bytes = 64u << 20;
// Of ids, times and batches: there is room above for counting on.
constexpr std::int64_t most_counted = std::int64_t{1} << 62;

// At the beginning of the file.
struct Head {
  std::uint64_t mark;
  std::uint64_t batch;
};

// Then the path and the name, and zeros up to a multiple of 8.
struct Record {
  std::uint64_t check;  // of everything behind it
  std::uint64_t batch;
  std::uint32_t bytes;  // in all
  std::uint32_t kind;
  std::int64_t epoch, time_ns, id;
  std::uint64_t device, inode;
  std::int64_t birth_ns;
  std::uint64_t generation;
  std::uint64_t size;
  std::int64_t access_seconds, modify_seconds;
  std::uint32_t access_nanoseconds, modify_nanoseconds;
  std::uint32_t mode, links;
  std::uint32_t path_bytes, name_bytes;
};
static_assert(sizeof(Record) == 128, "no padding: what is written is what was set");

std::uint64_t check_of(std::string_view record) {
  std::uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a, a word at a time
  for (std::size_t at = sizeof hash; at + sizeof hash <= record.size(); at += sizeof hash) {
    std::uint64_t word;
    std::memcpy(&word, record.data() + at, sizeof word);
    hash = (hash ^ word) * 0x100000001b3ull;
    hash ^= hash >> 31;
  }
  return hash;
}

std::optional<RecentEntry> take_entry(std::string_view& bytes, std::uint64_t batch) {
  Record record;
  if (bytes.size() < sizeof record) return std::nullopt;
  std::memcpy(&record, bytes.data(), sizeof record);
  if (record.batch != batch || record.bytes < sizeof record || record.bytes > bytes.size() ||
      record.bytes % 8 != 0)
    return std::nullopt;
  auto whole = bytes.substr(0, record.bytes);
  auto texts = whole.substr(sizeof record);
  if (check_of(whole) != record.check || record.kind < 1 || record.kind > 6 ||
      std::uint64_t{record.path_bytes} + record.name_bytes > texts.size())
    return std::nullopt;
  // We never write these: whoever made such an entry did not mean it to be taken for what happened.
  auto path = texts.substr(0, record.path_bytes), name = texts.substr(record.path_bytes, record.name_bytes);
  auto counts = [](std::int64_t number) { return number >= 0 && number <= most_counted; };
  if (!counts(record.id) || !counts(record.time_ns) || path.find('\0') != path.npos ||
      name.find_first_of(std::string_view("/\0", 2)) != name.npos)
    return std::nullopt;
  bytes.remove_prefix(record.bytes);
  return RecentEntry{static_cast<RecentEntry::Kind>(record.kind),
                     record.epoch,
                     record.time_ns,
                     record.id,
                     {record.device, record.inode, record.birth_ns, record.generation},
                     record.mode,
                     record.links,
                     record.size,
                     {record.access_seconds, record.access_nanoseconds, 0},
                     {record.modify_seconds, record.modify_nanoseconds, 0},
                     std::string(path),
                     std::string(name)};
}

Result<RecentBatch> read_batch(int file) {
  struct stat info;
  if (fstat(file, &info) != 0) return fail_errno(errno, "the latest entries of a ledger");
  std::string bytes(std::min(static_cast<std::size_t>(info.st_size), max_file_bytes), '\0');
  std::size_t size = 0;
  while (size < bytes.size()) {
    ssize_t got = pread(file, bytes.data() + size, bytes.size() - size, static_cast<off_t>(size));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_errno(errno, "the latest entries of a ledger");
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  return parse_recent({bytes.data(), size});
}

int write_at(int file, std::string_view bytes, off_t at) {
  ssize_t written = pwrite(file, bytes.data(), bytes.size(), at);
  if (written < 0) return errno;
  return static_cast<std::size_t>(written) == bytes.size() ? 0 : ENOSPC;
}

}  // namespace

RecentEntry created_entry(const Located& object) {
  const Attributes& attributes = object.attributes;
  RecentEntry entry;
  entry.kind = RecentEntry::Kind::created;
  entry.identity = object.identity();
  entry.mode = attributes.mode;
  entry.links = attributes.links;
  entry.size = attributes.size;
  entry.access_time = attributes.access_time;
  entry.modify_time = attributes.modify_time;
  entry.path = object.path;
  return entry;
}

RecentBatch parse_recent(std::string_view bytes) {
  RecentBatch batch;
  Head head;
  if (bytes.size() < sizeof head) return batch;
  std::memcpy(&head, bytes.data(), sizeof head);
  if (head.mark != recent_mark || head.batch > std::uint64_t{most_counted}) return batch;
  batch.number = head.batch;
  bytes.remove_prefix(sizeof head);
  while (auto entry = take_entry(bytes, batch.number)) batch.entries.push_back(std::move(*entry));
  return batch;
}

const RecentEntry* RecentBatch::announced() const {
  using Kind = RecentEntry::Kind;
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    if (entry->kind == Kind::announced) return &*entry;
    if (entry->kind == Kind::not_made || entry->kind == Kind::created) return nullptr;
  }
  return nullptr;
}

Result<RecentBatch> read_recent(const std::filesystem::path& folder) {
  auto path = folder / "recent";
  UniqueFd file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file && errno == ENOENT) return RecentBatch{};
  if (!file) return fail_errno(errno, path.string());
  return read_batch(file.get());
}

Result<Recent> Recent::open(const std::filesystem::path& folder, RecentBatch& batch) {
  auto path = folder / "recent";
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return fail_errno(errno, path.string());
  batch = ANCHORHOLD_TRY(read_batch(file.get()));
  return Recent(std::move(file));
}

int Recent::append(const RecentEntry& entry) {
  Record record{0,
                batch_,
                static_cast<std::uint32_t>((sizeof record + entry.path.size() + entry.name.size() + 7) & ~7u),
                static_cast<std::uint32_t>(entry.kind),
                entry.epoch,
                entry.time_ns,
                entry.id,
                entry.identity.device,
                entry.identity.inode,
                entry.identity.birth_ns,
                entry.identity.generation,
                entry.size,
                entry.access_time.seconds,
                entry.modify_time.seconds,
                entry.access_time.nanoseconds,
                entry.modify_time.nanoseconds,
                entry.mode,
                entry.links,
                static_cast<std::uint32_t>(entry.path.size()),
                static_cast<std::uint32_t>(entry.name.size())};
  buffer_.assign(reinterpret_cast<const char*>(&record), sizeof record);
  buffer_ += entry.path;
  buffer_ += entry.name;
  buffer_.resize(record.bytes);
  record.check = check_of(buffer_);
  std::memcpy(buffer_.data(), &record.check, sizeof record.check);
  if (int error = write_at(file_.get(), buffer_, end_); error != 0) return error;
  end_ += static_cast<std::int64_t>(buffer_.size());
  return 0;
}

int Recent::begin(std::uint64_t number) {
  Head head{recent_mark, number};
  if (int error = write_at(file_.get(), {reinterpret_cast<const char*>(&head), sizeof head}, 0); error != 0)
    return error;
  batch_ = number;
  end_ = sizeof head;
  return 0;
}

}  // namespace anchorhold::mounts
