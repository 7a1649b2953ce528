#include <charconv>
#include <fmt/format.h>

#include "anchor.h"
#include "prune.h"
#include "store.h"

namespace anchorhold::events {
namespace {

constexpr std::size_t listed_findings = 100;
// How far from its place a record is looked for before it is called altered.
constexpr std::int64_t reorder_reach = 1000;

// Of lower-case digits; others stand for nothing that a hash could be.
std::string from_hex(std::string_view text) {
  std::string bytes;
  for (std::size_t at = 0; at + 1 < text.size(); at += 2) {
    unsigned value = 0;
    auto [end, error] = std::from_chars(text.data() + at, text.data() + at + 2, value, 16);
    if (error != std::errc() || end != text.data() + at + 2) return {};
    bytes += static_cast<char>(value);
  }
  return bytes;
}

class Verifier {
 public:
  explicit Verifier(std::optional<Head> anchor, std::optional<Head> expected)
      : anchor_(std::move(anchor)), expected_(std::move(expected)) {}

  // The chain goes on after this record, which retention removed with all before it.
  void begin_after(const Head& pruned);

  Status check(const StoredRecord& record);
  Verification finish();
  void find(Finding::Kind kind, std::int64_t sequence, std::string message);

 private:
  // The sequence number under which the record's hash is right.
  Result<std::optional<std::int64_t>> original_place(StoredRecord record) const;
  void check_head(std::optional<Head>& head, const StoredRecord& record, std::string_view what);
  void check_reached(const std::optional<Head>& head, std::string_view what);

  std::optional<Head> anchor_;  // until it was met
  std::optional<Head> expected_;
  std::int64_t last_sequence_ = 0;
  std::string last_hash_ = first_previous();
  Verification result_;
};

void Verifier::find(Finding::Kind kind, std::int64_t sequence, std::string message) {
  if (result_.findings.size() == listed_findings) {
    ++result_.more_findings;
    return;
  }
  result_.findings.push_back({kind, sequence, std::move(message)});
}

Result<std::optional<std::int64_t>> Verifier::original_place(StoredRecord record) const {
  const std::int64_t here = record.sequence;
  for (std::int64_t place = std::max<std::int64_t>(1, here - reorder_reach); place <= here + reorder_reach;
       ++place) {
    record.sequence = place;
    if (ANCHORHOLD_TRY(hash_record(record)) == record.hash) return std::optional(place);
  }
  return std::optional<std::int64_t>();
}

void Verifier::begin_after(const Head& pruned) {
  result_.pruned = pruned;
  last_sequence_ = pruned.sequence;
  last_hash_ = from_hex(pruned.hash);
  for (auto* head : {&anchor_, &expected_}) {
    if (!*head || (*head)->sequence > pruned.sequence) continue;
    if ((*head)->sequence < pruned.sequence) {
      find(Finding::Kind::missing, (*head)->sequence,
           fmt::format("record {} cannot be compared: retention removed it", (*head)->sequence));
    } else if ((*head)->hash != pruned.hash) {
      find(Finding::Kind::altered, pruned.sequence,
           fmt::format("record {} was another one than retention removed", pruned.sequence));
    }
    head->reset();
  }
}

Status Verifier::check(const StoredRecord& record) {
  ++result_.records;
  if (record.sequence <= result_.pruned.sequence && record.sequence >= 1) {
    find(Finding::Kind::altered, record.sequence,
         fmt::format("record {} is there, though retention removed it", record.sequence));
    return {};
  }
  if (record.sequence > last_sequence_ + 1) {
    find(Finding::Kind::missing, last_sequence_ + 1,
         fmt::format("records {} to {} are missing", last_sequence_ + 1, record.sequence - 1));
  } else if (record.sequence < 1) {
    find(Finding::Kind::altered, record.sequence,
         fmt::format("record {} has an impossible number", record.sequence));
  }
  bool follows = record.sequence == last_sequence_ + 1;
  if (ANCHORHOLD_TRY(hash_record(record)) != record.hash) {
    auto place = ANCHORHOLD_TRY(original_place(record));
    if (place) {
      find(Finding::Kind::reordered, record.sequence,
           fmt::format("record {} was written as record {}", record.sequence, *place));
    } else {
      find(Finding::Kind::altered, record.sequence,
           fmt::format("record {} is not what was written", record.sequence));
    }
  } else if (follows && record.previous != last_hash_) {
    find(Finding::Kind::altered, record.sequence,
         fmt::format("record {} was not written after record {} as it is now", record.sequence,
                     last_sequence_));
  }
  check_head(anchor_, record, "the anchor");
  check_head(expected_, record, "the given head");
  last_sequence_ = record.sequence;
  last_hash_ = record.hash;
  return {};
}

void Verifier::check_head(std::optional<Head>& head, const StoredRecord& record, std::string_view what) {
  if (!head || head->sequence != record.sequence) return;
  if (head->hash != to_hex(record.hash)) {
    find(Finding::Kind::altered, record.sequence,
         fmt::format("record {} is another one than {} names: the log was replaced", record.sequence, what));
  }
  head.reset();
}

void Verifier::check_reached(const std::optional<Head>& head, std::string_view what) {
  if (!head || head->sequence <= last_sequence_) return;
  find(Finding::Kind::truncated, last_sequence_ + 1,
       fmt::format("the log ends at record {}, but {} names record {}: the end was cut off", last_sequence_,
                   what, head->sequence));
}

Verification Verifier::finish() {
  check_reached(anchor_, "the anchor");
  check_reached(expected_, "the given head");
  result_.head = {last_sequence_, to_hex(last_hash_)};
  return std::move(result_);
}

// An anchor of an empty log names nothing.
std::optional<Head> named(Result<Head> head) {
  if (!head || head->sequence == 0) return std::nullopt;
  return *head;
}

}  // namespace

std::string_view to_string(Finding::Kind kind) {
  switch (kind) {
    case Finding::Kind::missing:
      return "missing";
    case Finding::Kind::altered:
      return "altered";
    case Finding::Kind::reordered:
      return "reordered";
    case Finding::Kind::truncated:
      return "truncated";
    case Finding::Kind::unreadable:
      return "unreadable";
  }
  return "unknown";
}

Result<Verification> verify(const std::filesystem::path& folder, const std::optional<Head>& expected) {
  auto anchor = Anchor::open(anchor_file(folder), /*create=*/false);
  Result<Head> anchored = anchor ? anchor->read() : Result<Head>(fail(anchor.error()));
  bool anchor_absent = !anchor && anchor.error().code == ErrorCode::not_found;
  Verifier verifier(named(anchored), expected);

  auto database = database::Database::open(log_file(folder), database::Database::Mode::read_only);
  if (!database && database.error().code != ErrorCode::not_found) {
    verifier.find(Finding::Kind::unreadable, 0, database.error().message);
    return verifier.finish();
  }
  if (!database) return verifier.finish();

  auto read_all = [&]() -> Status {
    if (auto change = ANCHORHOLD_TRY(find_schema_change(*database)))
      verifier.find(Finding::Kind::altered, 0, *change);
    if (auto pruned = ANCHORHOLD_TRY(read_pruned(*database)); pruned.sequence > 0)
      verifier.begin_after(pruned);
    auto statement = ANCHORHOLD_TRY(database->prepare(std::string("SELECT ") + record_columns +
                                                      " FROM event NOT INDEXED ORDER BY sequence"));
    bool any = false;
    while (ANCHORHOLD_TRY(statement.step())) {
      if (!any && anchor_absent)
        verifier.find(Finding::Kind::truncated, 0,
                      "the anchor is missing: whether the end was cut off cannot be told");
      any = true;
      ANCHORHOLD_CHECK(verifier.check(read_record(statement)));
    }
    return {};
  };
  if (!anchored && !anchor_absent) verifier.find(Finding::Kind::unreadable, 0, anchored.error().message);
  if (auto status = read_all(); !status) {
    if (status.error().code != ErrorCode::data_loss && status.error().code != ErrorCode::internal)
      return fail(std::move(status).error());
    verifier.find(Finding::Kind::unreadable, 0, status.error().message);
  }
  return verifier.finish();
}

}  // namespace anchorhold::events
