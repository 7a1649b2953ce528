// What is noted when a ledger ends: what every touched object has become. Whoever undoes the session later
// can tell by it what somebody else has changed since.
#include <cerrno>
#include <chrono>
#include <fcntl.h>

#include "base/log.h"
#include "content.h"
#include "ledger.h"
#include "ledger_statements.h"
#include "tree_walk.h"

namespace anchorhold::mounts {
namespace {

// Whoever ends a keeper does not wait for long; what has no hash is told apart by size and times.
constexpr std::chrono::milliseconds hashing_limit{1500};
constexpr std::uint64_t max_hashed_bytes = 64ull << 20;
// So many notes are one transaction: a keeper that is killed over them leaves whole ones.
constexpr std::size_t notes_at_once = 2000;

}  // namespace

struct Ledger::Noting {
  std::unordered_set<Identity, IdentityHash> wanted;
  std::chrono::steady_clock::time_point hashing_ends;
  std::size_t noted = 0;
};

bool Ledger::note_one(Noting& noting, const std::string& path, const Identity& identity) {
  auto object = locate_beneath(root_.get(), path);
  if (!object || object->identity() != identity) return false;
  const Attributes& attributes = object->attributes;
  Remains remains{identity,
                  path,
                  attributes.mode,
                  attributes.size,
                  nanoseconds(attributes.modify_time),
                  nanoseconds(attributes.change_time),
                  {}};
  if (object->is_file() && attributes.size <= max_hashed_bytes &&
      std::chrono::steady_clock::now() < noting.hashing_ends)
    if (auto hash = content_hash(*object)) remains.hash = *hash;
  if (auto set = statements_->set_remains(remains); !set) journal_failed(set.error());
  noting.wanted.erase(identity);
  if (++noting.noted % notes_at_once == 0) (void)database_.run("COMMIT; BEGIN");
  return true;
}

void Ledger::note_by_walking(Noting& noting) {
  std::vector<std::pair<std::string, Identity>> found;
  walk_tree(root_.get(),
            [&](const std::string& path, const Attributes& attributes, int folder, const std::string& name) {
              for (auto& identity : {identity_of(attributes, generation_at(folder, name))})
                if (noting.wanted.contains(identity)) found.emplace_back(path, identity);
              return true;
            });
  for (const auto& [path, identity] : found) note_one(noting, path, identity);
}

void Ledger::note_remains() {
  std::lock_guard lock(mutex_);
  if (auto settled = statements_->settle(); !settled) journal_failed(settled.error());
  Noting noting;
  noting.hashing_ends = std::chrono::steady_clock::now() + hashing_limit;
  for (const auto& [identity, known] : known_)
    if (known.touched) noting.wanted.insert(identity);
  // Nearly everything is where its row says; only after folders were moved it must be looked for.
  std::vector<std::pair<std::string, Identity>> rows;
  auto paths =
      database_.prepare("SELECT path, device, inode, birth_ns, generation FROM object WHERE removed=0");
  while (paths && !noting.wanted.empty()) {
    auto stepped = paths->step();
    if (!stepped || !*stepped) break;
    Identity identity{static_cast<std::uint64_t>(paths->integer(1)),
                      static_cast<std::uint64_t>(paths->integer(2)), paths->integer(3),
                      static_cast<std::uint64_t>(paths->integer(4))};
    if (noting.wanted.contains(identity)) rows.emplace_back(paths->text(0), identity);
  }
  paths = fail(ErrorCode::cancelled, "");
  (void)database_.run("BEGIN");
  for (const auto& [path, identity] : rows) note_one(noting, path, identity);
  if (!noting.wanted.empty()) note_by_walking(noting);
  auto now = std::chrono::system_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  (void)database_.run("UPDATE epoch SET ended_ns=" + std::to_string(now) +
                      " WHERE number=" + std::to_string(statements_->epoch));
  if (auto committed = database_.run("COMMIT"); !committed) log_error("ledger: " + committed.error().message);
  (void)sync_journal();
}

}  // namespace anchorhold::mounts
