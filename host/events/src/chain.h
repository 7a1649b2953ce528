// A record as it is stored, and its hash: SHA-256 over a fixed prefix, the hash of the record before it, and
// every field preceded by its length, so that no two different records have the same input.
#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"
#include "base/id.h"
#include "events/event_log.h"

namespace anchorhold::events {

inline constexpr std::size_t hash_size = 32;

struct StoredRecord {
  std::int64_t sequence = 0;
  std::string id;
  std::int64_t wall_ns = 0;       // since 1970, UTC
  std::int64_t monotonic_ns = 0;  // since boot
  std::string boot;
  std::string name;
  std::int64_t severity = 0;
  std::string attributes;  // JSON object
  std::string previous;    // hash_size bytes; zeros for the first record
  std::string hash;        // hash_size bytes
};

std::string first_previous();
// Of all fields but `hash`.
Result<std::string> hash_record(const StoredRecord& record);

// Attributes as stored. Text that is not UTF-8 has its bad bytes replaced; text beyond 8 KiB and lists beyond
// 256 entries are cut and say so, so that nobody can fill the log through one event.
std::string encode_attributes(const Attributes& attributes);
Result<Attributes> decode_attributes(std::string_view json);
Result<Record> to_record(const StoredRecord& stored);

}  // namespace anchorhold::events
