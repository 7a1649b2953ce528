// The event log: one file per person, appended to by all of that person's Anchorhold processes, read by
// anybody of them. SQLite in WAL mode. Each record holds its sequence number (1, 2, 3 … without gaps), wall
// and monotonic time, and the SHA-256 of itself and of the record before it. The newest record that is
// certainly on the disk is also noted in a second file (the anchor), so that a log cut short is found.
//
// What verification cannot find: somebody with this person's rights who rewrites the whole chain and the
// anchor together. For that, note the head that `verify` prints somewhere else and give it back to it later.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <sys/types.h>
#include <vector>

#include "base/clock.h"
#include "events/event.h"

namespace anchorhold::events {

// How much is kept. What goes is always the oldest, and never what the anchor does not cover yet.
struct Retention {
  std::chrono::hours age{24 * 365};  // removed a tenth later, so that it happens seldom; 0: kept for ever
  std::uint64_t bytes = 256u << 20;  // above it a quarter goes; 0: no bound
};

struct LogOptions {
  std::filesystem::path folder;          // made (0700) when it is not there
  std::set<ContentCategory> captured{};  // content that is stored; nothing by default
  const Clock* clock = nullptr;          // none: the system's
  Retention retention{};                 // applied when the log is opened
};

// Safe from any thread, and between processes. After record() returned, the event is in the log also when
// this process is killed; a boundary event also when the power fails.
class EventLog : public EventSink {
 public:
  static Result<std::unique_ptr<EventLog>> open(LogOptions options);
  ~EventLog() override;
  Status record(Event event) override;
  // All of them, in this order, or none, for one wait on the disk.
  Status record_all(std::span<const Event> events);

 private:
  struct State;
  explicit EventLog(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// The person's log: <state directory>/events.
Result<std::filesystem::path> default_log_folder();

struct Record {
  std::int64_t sequence = 0;
  std::string id;  // stable and unique, for whoever drops duplicates
  WallTime wall;
  std::chrono::nanoseconds monotonic{};  // since the boot named by `boot`
  std::string boot;
  std::string name;
  Severity severity = Severity::info;
  Attributes attributes;
};

struct Filter {
  std::int64_t after = 0;  // sequence
  std::string session{};   // empty: all
  std::string task{};
  std::string name_prefix{};  // "anchorhold.vm"
  Severity at_least = Severity::info;
  std::optional<WallTime> since{};
  std::size_t newest = 0;  // only that many, the newest; 0: all
};

// Called in the order of the sequence; false ends the reading.
using Visit = std::function<bool(const Record&)>;

// A log that is not there has no records.
Status list(const std::filesystem::path& folder, const Filter& filter, const Visit& visit);
// As list, then goes on with what is written, until `visit` says false or `stop_fd` becomes readable (-1:
// never).
Status follow(const std::filesystem::path& folder, const Filter& filter, const Visit& visit, int stop_fd);

struct Head {
  std::int64_t sequence = 0;
  std::string hash;  // 64 hexadecimal digits
};

struct Finding {
  enum class Kind { missing, altered, reordered, truncated, unreadable };
  Kind kind;
  std::int64_t sequence;  // the first record concerned
  std::string message;
};
std::string_view to_string(Finding::Kind kind);

struct Verification {
  std::uint64_t records = 0;
  Head head;                      // of what is there
  Head pruned;                    // the last record that retention removed; sequence 0: none was
  std::vector<Finding> findings;  // empty: whole; at most 100 are listed
  std::uint64_t more_findings = 0;
};

// Reads the whole log. `expected` is a head noted elsewhere, which the log must still contain.
Result<Verification> verify(const std::filesystem::path& folder, const std::optional<Head>& expected = {});

}  // namespace anchorhold::events
