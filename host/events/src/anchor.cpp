#include "anchor.h"

#include <array>
#include <charconv>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "chain.h"

namespace anchorhold::events {
namespace {

// One disk sector a slot, so that writing one cannot tear the other.
constexpr std::size_t slot_size = 512;
constexpr std::size_t slots = 2;

Result<std::string> check_sum(const Head& head) {
  StoredRecord record;
  record.name = "anchor";
  record.sequence = head.sequence;
  record.hash = {};
  record.attributes = head.hash;
  return to_hex(ANCHORHOLD_TRY(hash_record(record)));
}

// "<sequence> <hash> <check sum>\n", padded with spaces.
std::optional<Head> parse_slot(std::string_view text) {
  Head head;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), head.sequence);
  if (error != std::errc() || head.sequence < 0) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  constexpr std::size_t hex = hash_size * 2;
  if (text.size() < 3 + 2 * hex || text[0] != ' ' || text[1 + hex] != ' ' || text[2 + 2 * hex] != '\n')
    return std::nullopt;
  head.hash = text.substr(1, hex);
  auto sum = check_sum(head);
  if (!sum || *sum != text.substr(2 + hex, hex)) return std::nullopt;
  return head;
}

}  // namespace

Anchor::Lock::Lock(int fd) : fd_(fd) {
  while (flock(fd_, LOCK_EX) != 0 && errno == EINTR) {
  }
}
Anchor::Lock::~Lock() {
  flock(fd_, LOCK_UN);
}

Result<Anchor> Anchor::open(const std::filesystem::path& file, bool create) {
  UniqueFd fd(::open(file.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | (create ? O_CREAT : 0), 0600));
  if (!fd) return fail_errno(errno, file.string());
  return Anchor(std::move(fd));
}

Result<Head> Anchor::read() const {
  std::array<char, slot_size * slots> bytes{};
  ssize_t size = pread(fd_.get(), bytes.data(), bytes.size(), 0);
  if (size < 0) return fail_errno(errno, "reading the event log's anchor");
  std::optional<Head> newest;
  if (size == 0) return Head{0, to_hex(first_previous())};
  for (std::size_t slot = 0; slot < slots; ++slot) {
    auto head = parse_slot(std::string_view(bytes.data() + slot * slot_size, slot_size));
    if (head && (!newest || head->sequence > newest->sequence)) newest = std::move(head);
  }
  if (!newest) return fail(ErrorCode::data_loss, "the event log's anchor is damaged");
  return *newest;
}

Status Anchor::write(const Head& head) const {
  std::string text = fmt::format("{} {} {}\n", head.sequence, head.hash, ANCHORHOLD_TRY(check_sum(head)));
  text.resize(slot_size, ' ');
  // The slot that does not hold the newest: a torn write must leave that one.
  std::array<char, slot_size> first{};
  ssize_t got = pread(fd_.get(), first.data(), first.size(), 0);
  if (got < 0) return fail_errno(errno, "reading the event log's anchor");
  auto current = read();
  auto in_first = parse_slot(std::string_view(first.data(), first.size()));
  bool newest_is_first = current && in_first && in_first->sequence == current->sequence;
  ssize_t put = pwrite(fd_.get(), text.data(), text.size(), newest_is_first ? slot_size : 0);
  if (put != static_cast<ssize_t>(text.size()) || fdatasync(fd_.get()) != 0)
    return fail_errno(put < 0 || put == static_cast<ssize_t>(text.size()) ? errno : ENOSPC,
                      "writing the event log's anchor");
  return {};
}

}  // namespace anchorhold::events
