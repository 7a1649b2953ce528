// A ledger that knows what the session made and keeps nothing: with it instead of the real one, the keeper
// shows what undo costs. In this folder only; no program that people get has it.
#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

#include "ledger.h"

namespace anchorhold::mounts {

struct Ledger::Statements {};

Ledger::Ledger(database::Database database, UniqueFd kept, UniqueFd journal, UniqueFd root,
               const LedgerLimits& limits)
    : limits_(limits),
      database_(std::move(database)),
      kept_(std::move(kept)),
      journal_(std::move(journal)),
      root_(std::move(root)) {}

Result<std::unique_ptr<Ledger>> Ledger::open(const std::filesystem::path& folder, const LedgerLimits& limits,
                                             int root, std::int64_t) {
  auto database =
      ANCHORHOLD_TRY(database::Database::open(folder / "journal.db", database::Database::Mode::read_write));
  return std::unique_ptr<Ledger>(
      new Ledger(std::move(database), {}, {}, ANCHORHOLD_TRY(duplicate(root)), limits));
}

Ledger::~Ledger() = default;

Subject Ledger::subject(const Located& object) const {
  std::lock_guard lock(mutex_);
  return Subject{true, !known_.contains(object.identity()), false};
}
Subject Ledger::subject_at(const Located&, std::string_view, const Located& object) const {
  return subject(object);
}

int Ledger::record(const Located&) {
  return 0;
}
int Ledger::keep_content(const Located&, Wait) {
  return 0;
}
Ledger::Kept Ledger::keep_all(const Located&, const std::string&, const Located&, Loss) {
  return {};
}
void Ledger::take_back(const Located&) {}

int Ledger::remove_name(const Located& folder, const std::string& name, const Located& object) {
  return unlinkat(folder.fd.get(), name.c_str(), object.is_folder() ? AT_REMOVEDIR : 0) == 0 ? 0 : errno;
}

int Ledger::announce(const Located&, std::string_view) {
  return 0;
}
void Ledger::forget_announced() {}

int Ledger::add_created(const Located& object) {
  std::lock_guard lock(mutex_);
  known_.insert_or_assign(object.identity(), Known{});
  return 0;
}
int Ledger::add_link(const Located&, std::string_view, const Located&) {
  return 0;
}
void Ledger::forget_link(const Located&, std::string_view) {}

void Ledger::removed(const Located&, std::string_view, const Located& object) {
  std::lock_guard lock(mutex_);
  if (object.is_folder() || object.attributes.links < 2) known_.erase(object.identity());
}

Checked<std::int64_t> Ledger::note_rename(const Located&, const std::string&, bool) {
  return 0;
}
void Ledger::forget_rename(std::int64_t) {}
void Ledger::renamed(const Located&, std::string_view, const Located&, const Located&, std::string_view,
                     const std::string&) {}
void Ledger::stand_in(const Located&) {}

bool Ledger::is_removed_object(const Identity&) const {
  return false;
}
std::uint64_t Ledger::objects_kept() const {
  return 0;
}
std::uint64_t Ledger::bytes_kept() const {
  return 0;
}

}  // namespace anchorhold::mounts
