#include "ledger.h"

#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "content.h"
#include "ledger_schema.h"
#include "ledger_statements.h"

namespace anchorhold::mounts {
namespace {

// Identities of removed objects that may still be open somewhere.
constexpr std::size_t max_removed_remembered = 65536;
constexpr std::chrono::milliseconds sync_interval{500};
constexpr std::uint64_t most_copied_at_once = 1u << 20;  // while a thread that serves others waits

}  // namespace

int journal_failed(const Error& error) {
  log_error("ledger: " + error.message);
  return error.code == ErrorCode::resource_exhausted ? ENOSPC : EIO;
}

std::string kept_file_name(std::int64_t id, bool moved, std::string_view path) {
  std::string escaped;
  for (unsigned char c : path) {
    if (c == '/' || c == '%' || c < 0x20 || c == 0x7f)
      escaped += fmt::format("%{:02x}", c);
    else
      escaped += static_cast<char>(c);
  }
  constexpr std::size_t most = 200;
  if (escaped.size() > most) escaped.erase(0, escaped.size() - most);
  return fmt::format("{:016x}.{}.{}", id, moved ? 'm' : 'c', escaped);
}

Ledger::Ledger(database::Database database, UniqueFd kept, UniqueFd journal, UniqueFd root,
               const LedgerLimits& limits)
    : limits_(limits),
      database_(std::move(database)),
      kept_(std::move(kept)),
      journal_(std::move(journal)),
      root_(std::move(root)) {}

Result<std::unique_ptr<Ledger>> Ledger::open(const std::filesystem::path& folder, const LedgerLimits& limits,
                                             int root, std::int64_t epoch) {
  auto kept_path = folder / "kept";
  if (mkdir(kept_path.c_str(), 0700) != 0 && errno != EEXIST) return fail_errno(errno, kept_path.string());
  UniqueFd kept(::open(kept_path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!kept) return fail_errno(errno, kept_path.string());
  auto database =
      ANCHORHOLD_TRY(database::Database::open(folder / "journal.db", database::Database::Mode::read_write));
  // A commit is in the kernel's hands, and so survives every crash of a process; what must survive the
  // machine's is synced by hand. Checkpoints cost two syncs and are kept rare.
  ANCHORHOLD_CHECK(database.run("PRAGMA synchronous=NORMAL; PRAGMA wal_autocheckpoint=10000;"));
  auto version = ANCHORHOLD_TRY(database.query_integer("PRAGMA user_version")).value_or(0);
  if (version != 0 && version != ledger_version)
    return fail(ErrorCode::failed_precondition,
                folder.string() + " was written by another version of Anchorhold");
  ANCHORHOLD_CHECK(database.run(ledger_schema));
  // Not above 0: it did not come to an orderly end, so what it touched is still to be noted.
  auto ended = ANCHORHOLD_TRY(
      database.query_integer(fmt::format("SELECT ended_ns FROM epoch WHERE number={}", epoch)));
  ANCHORHOLD_CHECK(database.run(
      fmt::format("INSERT OR IGNORE INTO epoch(number, inverts, begun_ns) VALUES({0}, -1, {1});"
                  "UPDATE epoch SET ended_ns=0 WHERE number={0};",
                  epoch, std::chrono::system_clock::now().time_since_epoch() / std::chrono::nanoseconds(1))));
  auto journal_path = folder / "journal.db-wal";
  UniqueFd journal(::open(journal_path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!journal) return fail_errno(errno, journal_path.string());
  std::unique_ptr<Ledger> ledger(new Ledger(std::move(database), std::move(kept), std::move(journal),
                                            ANCHORHOLD_TRY(duplicate(root)), limits));
  ledger->statements_ = ANCHORHOLD_TRY(Statements::prepare(ledger->database_, folder, epoch));
  ANCHORHOLD_CHECK(ledger->finish_announced());
  ANCHORHOLD_CHECK(ledger->finish_unfinished());
  ANCHORHOLD_CHECK(ledger->load(/*was_cut_short=*/ended && *ended <= 0));
  ledger->sync_thread_ = std::thread([raw = ledger.get()] { raw->run_sync_thread(); });
  return ledger;
}

Ledger::~Ledger() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  sync_wanted_.notify_all();
  // Not before it is open: then there is nothing to note.
  if (!sync_thread_.joinable()) return;
  sync_thread_.join();
  note_remains();
}

void Ledger::run_sync_thread() {
  std::unique_lock lock(mutex_);
  for (;;) {
    sync_wanted_.wait(lock, [&] { return dirty_ || stopping_; });
    if (!stopping_) sync_wanted_.wait_for(lock, sync_interval, [&] { return stopping_; });
    bool was_dirty = std::exchange(dirty_, false);
    bool last = stopping_;
    if (auto settled = statements_->settle(); !settled) journal_failed(settled.error());
    lock.unlock();
    if (was_dirty && fdatasync(journal_.get()) != 0) log_error("ledger: the journal could not be synced");
    lock.lock();
    if (last) return;
  }
}

void Ledger::set_dirty() {
  if (!std::exchange(dirty_, true)) sync_wanted_.notify_one();
}

int Ledger::sync_journal() {
  return fdatasync(journal_.get()) == 0 ? 0 : errno;
}

Subject Ledger::subject(const Located& object) const {
  std::lock_guard lock(mutex_);
  auto found = known_.find(object.identity());
  Subject subject{true, true, false};
  if (found != known_.end()) found->second.touched = true;
  if (found != known_.end() && found->second.created && object.identity().is_certain()) {
    subject.pre_existing = false;
    subject.stands_for_pre_existing = found->second.stands_for_pre_existing;
  }
  return subject;
}

Subject Ledger::subject_at(const Located& folder, std::string_view name, const Located& object) const {
  Subject known = subject(object);
  std::lock_guard lock(mutex_);
  if (known.pre_existing && is_session_name(folder, name, object)) known.pre_existing = false;
  return known;
}

Checked<Ledger::Known*> Ledger::known_or_recorded(const Located& object) {
  auto identity = object.identity();
  auto found = known_.find(identity);
  if (found != known_.end() && identity.is_certain()) {
    found->second.touched = true;
    return &found->second;
  }
  if (known_.size() >= limits_.max_objects) return refuse_with(EDQUOT);
  std::string target;
  if (object.is_symlink()) {
    target.resize(max_symlink_bytes + 1);
    ssize_t size = readlinkat(object.fd.get(), "", target.data(), target.size());
    if (size < 0) return refuse_with(errno);
    target.resize(static_cast<std::size_t>(size));
  }
  std::string before = path_before(object.path);
  auto id = statements_->insert_object(object, before, target, user_xattrs(object));
  if (!id) return refuse_with(journal_failed(id.error()));
  set_dirty();
  Known known;
  known.id = *id;
  known.touched = true;
  return &known_.insert_or_assign(identity, known).first->second;
}

int Ledger::record(const Located& object) {
  std::lock_guard lock(mutex_);
  auto known = known_or_recorded(object);
  return known ? 0 : known.error();
}

int Ledger::reserve(std::uint64_t bytes) {
  if (bytes > limits_.quota_bytes || bytes_kept_ > limits_.quota_bytes - bytes) return EDQUOT;
  bytes_kept_ += bytes;
  ++objects_kept_;
  return 0;
}

void Ledger::release(std::uint64_t bytes) {
  bytes_kept_ -= bytes;
  --objects_kept_;
}

int Ledger::set_kept(Known& known, HowKept how, const std::string& name, std::uint64_t bytes) {
  if (auto set = statements_->set_kept(known.id, how, name, bytes); !set) return journal_failed(set.error());
  known.content_kept = true;
  set_dirty();
  return 0;
}

int Ledger::clear_kept(Known& known) {
  known.content_kept = false;
  auto set = statements_->set_kept(known.id, HowKept::not_kept, "", 0);
  return set ? 0 : journal_failed(set.error());
}

int Ledger::keep_content(const Located& object, Wait wait) {
  auto identity = object.identity();
  {
    std::unique_lock lock(mutex_);
    if (wait == Wait::not_for_long && being_kept_.contains(identity)) return would_wait;
    keeping_changed_.wait(lock, [&] { return !being_kept_.contains(identity); });
    auto known = known_or_recorded(object);
    if (!known) return known.error();
    if ((*known)->content_kept) return 0;
    if (wait == Wait::not_for_long && object.attributes.size > most_copied_at_once) return would_wait;
    being_kept_.insert(identity);
  }
  int error = copy_and_set_kept(object);
  {
    std::lock_guard lock(mutex_);
    being_kept_.erase(identity);
  }
  keeping_changed_.notify_all();
  return error;
}

int Ledger::copy_and_set_kept(const Located& object) {
  std::uint64_t bytes = bytes_of(object.attributes);
  std::string name;
  {
    std::lock_guard lock(mutex_);
    if (int error = reserve(bytes); error != 0) return error;
    name = kept_file_name(known_.at(object.identity()).id, false, object.path);
  }
  auto copied = keep_copy(object, kept_.get(), name);
  std::lock_guard lock(mutex_);
  int error = copied ? 0 : copied.error();
  Known& known = known_.at(object.identity());
  if (error == 0) error = set_kept(known, *copied ? HowKept::cloned : HowKept::copied, name, bytes);
  if (error == 0) error = sync_journal();
  if (error != 0) {
    known.content_kept = false;
    release(bytes);
    if (copied) unlinkat(kept_.get(), name.c_str(), 0);
  }
  return error;
}

int Ledger::add_created(const Located& object) {
  std::lock_guard lock(mutex_);
  if (known_.size() >= limits_.max_objects) return EDQUOT;
  auto id = statements_->add_created(object);
  if (!id) return journal_failed(id.error());
  set_dirty();
  Known known;
  known.id = *id;
  known.created = true;
  known.touched = true;
  known_.insert_or_assign(object.identity(), known);
  return 0;
}

void Ledger::remember_removed(const Identity& identity) {
  if (!identity.is_certain() || !removed_objects_.insert(identity).second) return;
  removed_order_.push_back(identity);
  if (removed_order_.size() <= max_removed_remembered) return;
  removed_objects_.erase(removed_order_.front());
  removed_order_.pop_front();
}

bool Ledger::is_removed_object(const Identity& identity) const {
  std::lock_guard lock(mutex_);
  return removed_objects_.contains(identity);
}

void Ledger::stand_in(const Located& object) {
  std::lock_guard lock(mutex_);
  auto found = known_.find(object.identity());
  if (found == known_.end() || !found->second.created || found->second.stands_for_pre_existing) return;
  found->second.stands_for_pre_existing = true;
  if (auto set = statements_->set_stands(found->second.id); !set) journal_failed(set.error());
}

bool Ledger::knows(const Identity& identity) const {
  std::lock_guard lock(mutex_);
  return known_.contains(identity);
}

std::uint64_t Ledger::objects_kept() const {
  std::lock_guard lock(mutex_);
  return objects_kept_;
}

std::uint64_t Ledger::bytes_kept() const {
  std::lock_guard lock(mutex_);
  return bytes_kept_;
}

}  // namespace anchorhold::mounts
