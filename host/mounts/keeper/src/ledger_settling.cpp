// What gathers about the session's own objects, and how it becomes rows.
#include <cerrno>
#include <chrono>

#include "ledger_statements.h"

namespace anchorhold::mounts {
namespace {

// So many are settled at once, whoever waits for it.
constexpr std::size_t most_gathered = 8192;

std::int64_t now() {
  return std::chrono::system_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

const RecentEntry* entry_of(const RecentEntry& entry) {
  return &entry;
}
const RecentEntry* entry_of(const std::optional<RecentEntry>& entry) {
  return entry ? &*entry : nullptr;
}

}  // namespace

Status Ledger::Statements::apply(const RecentEntry& entry) {
  using Kind = RecentEntry::Kind;
  switch (entry.kind) {
    case Kind::created:
      return insert_created(entry);
    case Kind::removed:
      return delete_object_.bind(1, entry.id).run();
    case Kind::renamed:
      return set_path_.bind(1, entry.id).bind_blob(2, entry.path).run();
    case Kind::gone:
      return set_removed_.bind(1, entry.id).run();
    case Kind::announced:
    case Kind::not_made:
      return {};
  }
  return {};
}

template <typename Entries>
Status Ledger::Statements::apply_all(const Entries& entries, std::uint64_t batch) {
  auto transaction = ANCHORHOLD_TRY(database::Transaction::begin(*database_));
  for (const auto& entry : entries)
    if (const RecentEntry* each = entry_of(entry)) ANCHORHOLD_CHECK(apply(*each));
  ANCHORHOLD_CHECK(set_settled_.bind(1, static_cast<std::int64_t>(batch)).run());
  return transaction.commit();
}
template Status Ledger::Statements::apply_all(const std::vector<RecentEntry>&, std::uint64_t);

Status Ledger::Statements::begin_recent() {
  if (int error = recent_->begin(before_.number + 1); error != 0)
    return fail_errno(error, "the latest entries of the ledger");
  between_batches_ = false;
  before_ = {};
  return {};
}

Status Ledger::Statements::settle() {
  if (gathered_.empty()) return {};
  ANCHORHOLD_CHECK(apply_all(gathered_, recent_->batch()));
  gathered_.clear();
  gathered_created_.clear();
  // What is written to a batch that was taken would never be read.
  between_batches_ = true;
  return {};
}

Status Ledger::Statements::settle_row_of(std::int64_t id) {
  return gathered_created_.contains(id) ? settle() : Status{};
}

int Ledger::Statements::append(const RecentEntry& entry) {
  if (between_batches_) {
    if (int error = recent_->begin(recent_->batch() + 1); error != 0) return error;
    between_batches_ = false;
    if (announced_ && entry.kind != RecentEntry::Kind::announced)
      if (int error = recent_->append(*announced_); error != 0) return error;
  }
  return recent_->append(entry);
}

Status Ledger::Statements::gather(RecentEntry entry) {
  entry.epoch = epoch;
  entry.time_ns = now();
  if (int error = append(entry); error != 0) return fail_errno(error, "the latest entries of the ledger");
  gathered_.emplace_back(std::move(entry));
  // What cannot be settled now stays gathered.
  if (gathered_.size() >= most_gathered)
    if (auto settled = settle(); !settled) journal_failed(settled.error());
  return {};
}

int Ledger::Statements::announce(const RecentEntry& announcement) {
  if (int error = append(announcement); error != 0) return error;
  announced_ = announcement;
  return 0;
}

void Ledger::Statements::forget_announced() {
  if (!announced_) return;
  announced_.reset();
  RecentEntry entry;
  (void)append(entry);
}

Result<std::int64_t> Ledger::Statements::add_created(const Located& object) {
  RecentEntry entry = created_entry(object);
  entry.id = next_object;
  gathered_created_.emplace(next_object, gathered_.size());
  auto gathered = gather(std::move(entry));
  if (!gathered) {
    gathered_created_.erase(next_object);
    return fail(gathered.error());
  }
  announced_.reset();
  return next_object++;
}

Status Ledger::Statements::delete_created(std::int64_t id) {
  RecentEntry entry;
  entry.kind = RecentEntry::Kind::removed;
  entry.id = id;
  auto created = gathered_created_.find(id);
  if (created == gathered_created_.end()) return gather(std::move(entry));
  // It needs no row any more.
  int error = append(entry);
  gathered_[created->second].reset();
  gathered_created_.erase(created);
  return error == 0 ? Status{} : fail_errno(error, "the latest entries of the ledger");
}

Status Ledger::Statements::set_gone(std::int64_t id) {
  RecentEntry entry;
  entry.kind = RecentEntry::Kind::gone;
  entry.id = id;
  return gather(std::move(entry));
}

Status Ledger::Statements::set_created_path(std::int64_t id, std::string_view path) {
  RecentEntry entry;
  entry.kind = RecentEntry::Kind::renamed;
  entry.id = id;
  entry.path = path;
  return gather(std::move(entry));
}

}  // namespace anchorhold::mounts
