#include "events/event_log.h"

#include <mutex>
#include <pwd.h>
#include <unistd.h>

#include "anchor.h"
#include "base/files.h"
#include "base/id.h"
#include "base/paths.h"
#include "prune.h"
#include "store.h"

namespace anchorhold::events {
namespace {

std::string boot_id() {
  auto text = read_file("/proc/sys/kernel/random/boot_id", 4096);
  if (!text) return "unknown";
  while (!text->empty() && text->back() == '\n') text->pop_back();
  return *text;
}

std::string user_name() {
  passwd entry;
  passwd* found = nullptr;
  std::vector<char> buffer(16 * 1024);
  if (getpwuid_r(geteuid(), &entry, buffer.data(), buffer.size(), &found) == 0 && found)
    return found->pw_name;
  return std::to_string(geteuid());
}

// What may be stored of an event: its attributes without the content nobody asked to capture.
Attributes redact(const Event& event, const std::set<ContentCategory>& captured) {
  Attributes attributes = event.attributes();
  std::vector<std::string> redacted;
  for (const auto& [key, category] : event.content()) {
    if (!captured.contains(category) && attributes.erase(key) > 0) redacted.push_back(key);
  }
  if (!redacted.empty()) attributes.insert_or_assign(std::string(key::redacted), std::move(redacted));
  return attributes;
}

std::int64_t nanoseconds(auto duration) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
}

}  // namespace

Result<std::filesystem::path> default_log_folder() {
  return ANCHORHOLD_TRY(state_directory()) / "events";
}

struct EventLog::State {
  std::set<ContentCategory> captured;
  const Clock* clock;
  std::string boot = boot_id();
  std::string user = user_name();

  std::mutex mutex;  // guards everything below
  database::Database database;
  database::Statement insert;
  database::Statement hash_at;
  std::optional<Anchor> anchor;  // none: it was lost, and verification says so until the log is moved away

  bool unanchored = false;  // something was appended that the anchor does not cover

  Status append(std::span<const Event> events);
  Result<Head> chain_on(std::span<const Event> events);
  Status prune(const Retention& retention);
  Status cover_tail();
  Status insert_record(const StoredRecord& record);
  Status advance_anchor(const Head& head);
};

Result<std::unique_ptr<EventLog>> EventLog::open(LogOptions options) {
  static const SystemClock system_clock;
  ANCHORHOLD_CHECK(make_directories(options.folder));
  // Switching a new file to WAL and making its tables is not for two processes at once.
  auto lock = ANCHORHOLD_TRY(FileLock::acquire(options.folder / "lock", FileLock::Wait::yes));
  auto database = database::Database::open(log_file(options.folder), database::Database::Mode::read_write);
  if (!database) return fail(with_context(std::move(database).error(), "opening the event log"));
  ANCHORHOLD_CHECK(create_schema(*database));
  auto last = ANCHORHOLD_TRY(read_last(*database));
  auto anchor = Anchor::open(anchor_file(options.folder), /*create=*/!last);
  if (!anchor && anchor.error().code != ErrorCode::not_found) return fail(std::move(anchor).error());

  auto insert = ANCHORHOLD_TRY(database->prepare(std::string("INSERT INTO event (") + record_columns +
                                                 ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"));
  auto hash_at = ANCHORHOLD_TRY(database->prepare("SELECT hash FROM event WHERE sequence = ?"));
  std::unique_ptr<EventLog> log(new EventLog(
      std::unique_ptr<State>(new State{.captured = std::move(options.captured),
                                       .clock = options.clock ? options.clock : &system_clock,
                                       .mutex = {},
                                       .database = std::move(*database),
                                       .insert = std::move(insert),
                                       .hash_at = std::move(hash_at),
                                       .anchor = anchor ? std::optional(std::move(*anchor)) : std::nullopt,
                                       .unanchored = false})));
  if (auto pruned = log->state_->prune(options.retention); !pruned)
    return fail(with_context(std::move(pruned).error(), "removing old records of the event log"));
  return log;
}

EventLog::EventLog(std::unique_ptr<State> state) : state_(std::move(state)) {}
EventLog::~EventLog() {
  if (state_->unanchored) (void)state_->cover_tail();
}

Status EventLog::record(Event event) {
  return record_all(std::span(&event, 1));
}

Status EventLog::record_all(std::span<const Event> events) {
  if (events.empty()) return {};
  std::lock_guard lock(state_->mutex);
  if (auto status = state_->append(events); !status)
    return fail(with_context(status.error(), "writing the event log"));
  return {};
}

Status EventLog::State::append(std::span<const Event> events) {
  bool boundary = false;
  for (const auto& event : events) boundary |= event.name().durability == Durability::boundary;
  ANCHORHOLD_CHECK(database.run(boundary ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=NORMAL"));
  auto transaction = ANCHORHOLD_TRY(database::Transaction::begin(database));
  Head head = ANCHORHOLD_TRY(chain_on(events));
  ANCHORHOLD_CHECK(transaction.commit());
  unanchored = !boundary;
  if (boundary && anchor) return advance_anchor(head);
  return {};
}

// In a transaction.
Result<Head> EventLog::State::chain_on(std::span<const Event> events) {
  auto last = ANCHORHOLD_TRY(read_last(database));
  Head head{last ? last->sequence : 0, last ? last->hash : first_previous()};
  for (const auto& event : events) {
    Attributes attributes = redact(event, captured);
    attributes.insert_or_assign(std::string(key::user_name), user);
    StoredRecord record{.sequence = head.sequence + 1,
                        .id = random_hex(16),
                        .wall_ns = nanoseconds(clock->wall().time_since_epoch()),
                        .monotonic_ns = nanoseconds(clock->monotonic().time_since_epoch()),
                        .boot = boot,
                        .name = std::string(event.name().text),
                        .severity = static_cast<std::int64_t>(event.severity()),
                        .attributes = encode_attributes(attributes),
                        .previous = head.hash,
                        .hash = {}};
    record.hash = ANCHORHOLD_TRY(hash_record(record));
    ANCHORHOLD_CHECK(insert_record(record));
    head = Head{record.sequence, record.hash};
  }
  return Head{head.sequence, to_hex(head.hash)};
}

// The records that go and the event that says so are one transaction: a crash leaves both or neither. A log
// whose anchor is lost, or names a record that is not there, is evidence and stays as it is.
Status EventLog::State::prune(const Retention& retention) {
  auto anchored = anchor ? anchor->read() : Result<Head>(fail(ErrorCode::not_found, "no anchor"));
  if (!anchored || anchored->sequence == 0) return {};
  ANCHORHOLD_CHECK(database.run("PRAGMA synchronous=FULL"));
  auto transaction = ANCHORHOLD_TRY(database::Transaction::begin(database));
  auto excess = ANCHORHOLD_TRY(find_excess(database, retention, clock->wall()));
  if (!excess || excess->through >= anchored->sequence) return {};
  hash_at.bind(1, excess->through);
  bool found = ANCHORHOLD_TRY(hash_at.step());
  const std::string hash = found ? to_hex(hash_at.text(0)) : "";
  hash_at.reset();
  if (!found) return {};
  Event event(log_prune);
  event.set(prune_through, excess->through).set(prune_hash, hash).set(key::cause, excess->cause);
  const Head head = ANCHORHOLD_TRY(chain_on(std::span(&event, 1)));
  ANCHORHOLD_CHECK(remove_through(database, excess->through));
  ANCHORHOLD_CHECK(transaction.commit());
  return advance_anchor(head);
}

// Brings routine records at the end to the disk and under the anchor.
Status EventLog::State::cover_tail() {
  auto last = ANCHORHOLD_TRY(read_last(database));
  if (!last || !anchor) return {};
  auto checkpoint = ANCHORHOLD_TRY(database.prepare("PRAGMA wal_checkpoint(PASSIVE)"));
  bool row = ANCHORHOLD_TRY(checkpoint.step());
  // Columns: busy, frames in the WAL, frames that are now in the database file (sqlite.org, PRAGMA
  // wal_checkpoint).
  if (!row || checkpoint.integer(0) != 0 || checkpoint.integer(1) != checkpoint.integer(2)) return {};
  return advance_anchor(Head{last->sequence, to_hex(last->hash)});
}

Status EventLog::State::insert_record(const StoredRecord& record) {
  insert.bind(1, record.sequence)
      .bind(2, record.id)
      .bind(3, record.wall_ns)
      .bind(4, record.monotonic_ns)
      .bind(5, record.boot)
      .bind(6, record.name)
      .bind(7, record.severity)
      .bind(8, record.attributes)
      .bind_blob(9, record.previous)
      .bind_blob(10, record.hash);
  return insert.run();
}

// Only after the commit, so that a crash in between leaves an anchor that is behind, never one that is ahead.
// An anchor that the log no longer contains is evidence and is left as it is.
Status EventLog::State::advance_anchor(const Head& head) {
  Anchor::Lock lock = anchor->lock();
  auto current = anchor->read();
  if (!current || current->sequence >= head.sequence) return {};
  if (current->sequence > 0) {
    hash_at.bind(1, current->sequence);
    auto found = hash_at.step();
    bool contained = found && *found && to_hex(hash_at.text(0)) == current->hash;
    hash_at.reset();
    if (!contained) return {};
  }
  return anchor->write(head);
}

}  // namespace anchorhold::events
