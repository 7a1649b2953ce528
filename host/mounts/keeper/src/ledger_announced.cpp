// The name that is about to be made is announced before (ledger_recent.h). When the process is killed between
// making it and its row, whoever opens the ledger next finds by it what would else be nobody's.
#include <cerrno>
#include <chrono>

#include "ledger.h"
#include "ledger_statements.h"

namespace anchorhold::mounts {
namespace {

// How far the clock of file times lags behind, and how long a busy machine may take from the announcement to
// the making.
constexpr std::int64_t tick_ns = 20'000'000;
constexpr std::int64_t making_limit_ns = 2'000'000'000;

}  // namespace

int Ledger::announce(const Located& folder, std::string_view name) {
  RecentEntry entry;
  entry.kind = RecentEntry::Kind::announced;
  entry.epoch = statements_->epoch;
  entry.time_ns = std::chrono::system_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  entry.identity = folder.identity();
  entry.path = folder.path;
  entry.name = name;
  std::lock_guard lock(mutex_);
  return statements_->announce(entry);
}

void Ledger::forget_announced() {
  std::lock_guard lock(mutex_);
  statements_->forget_announced();
}

Status Ledger::finish_announced() {
  if (const RecentEntry* entry = statements_->announced_before()) {
    auto folder = locate_beneath(root_.get(), entry->path);
    if (folder && folder->identity() == entry->identity) ANCHORHOLD_CHECK(adopt_announced(*entry));
  }
  return statements_->begin_recent();
}

// There was nothing under the name when it was announced. What is there now is the session's when it is as
// old as that; what is younger came from somebody else.
Status Ledger::adopt_announced(const RecentEntry& announced) {
  auto object =
      locate_beneath(root_.get(), (announced.path.empty() ? "" : announced.path + "/") + announced.name);
  if (!object) return {};
  auto identity = object->identity();
  auto born = identity.birth_ns != 0 ? identity.birth_ns : nanoseconds(object->attributes.change_time);
  if (born < announced.time_ns - tick_ns || born > announced.time_ns + making_limit_ns) return {};
  auto known = ANCHORHOLD_TRY(database_.prepare(
      "SELECT 1 FROM object WHERE device=?1 AND inode=?2 AND birth_ns=?3 AND generation=?4 AND removed=0"));
  known.bind(1, static_cast<std::int64_t>(identity.device))
      .bind(2, static_cast<std::int64_t>(identity.inode))
      .bind(3, identity.birth_ns)
      .bind(4, static_cast<std::int64_t>(identity.generation));
  bool there = ANCHORHOLD_TRY(known.step());
  known.reset();
  if (there) return {};
  RecentEntry created = created_entry(*object);
  created.id = statements_->next_object++;
  created.epoch = announced.epoch;
  created.time_ns = std::chrono::system_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  return statements_->insert_created(created);
}

}  // namespace anchorhold::mounts
