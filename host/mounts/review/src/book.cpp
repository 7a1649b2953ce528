#include "book.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>

#include "base/file_time.h"
#include "ledger_schema.h"

namespace anchorhold::mounts {
namespace {

using database::Database;
using database::Statement;

Identity identity_at(const Statement& row, int column) {
  return {static_cast<std::uint64_t>(row.integer(column)),
          static_cast<std::uint64_t>(row.integer(column + 1)), row.integer(column + 2),
          static_cast<std::uint64_t>(row.integer(column + 3))};
}

void bind_identity(Statement& statement, int first, const Identity& identity) {
  statement.bind(first, static_cast<std::int64_t>(identity.device))
      .bind(first + 1, static_cast<std::int64_t>(identity.inode))
      .bind(first + 2, identity.birth_ns)
      .bind(first + 3, static_cast<std::int64_t>(identity.generation));
}

}  // namespace

Result<Book> Book::open(const std::filesystem::path& folder, Database::Mode mode) {
  std::int64_t written = 0;
  for (const char* name : {"journal.db", "journal.db-wal", "recent"})
    if (struct stat info; lstat((folder / name).c_str(), &info) == 0)
      written = std::max(written, file_time_nanoseconds(info.st_mtim.tv_sec, info.st_mtim.tv_nsec));
  if (written == 0) return fail(ErrorCode::not_found, folder.string() + " holds no ledger");
  // Before the journal: what becomes rows meanwhile is seen there.
  auto recent = ANCHORHOLD_TRY(read_recent(folder));
  auto database = ANCHORHOLD_TRY(Database::open(folder / "journal.db", mode));
  auto version = ANCHORHOLD_TRY(database.query_integer("PRAGMA user_version")).value_or(0);
  if (version != ledger_version)
    return fail(ErrorCode::failed_precondition,
                folder.string() + " was written by another version of Anchorhold");
  // Whoever writes from here on, this was the last word of an epoch that was killed.
  if (mode == Database::Mode::read_write)
    ANCHORHOLD_CHECK(database.run("PRAGMA synchronous=NORMAL;" +
                                  fmt::format("UPDATE epoch SET ended_ns={} WHERE ended_ns=0;", -written) +
                                  "CREATE INDEX IF NOT EXISTS object_inode ON object(inode);"
                                  "CREATE INDEX IF NOT EXISTS gained_folder ON gained(inode);"));
  return Book(std::move(database), std::move(recent), written);
}

Result<std::vector<EpochRow>> Book::epochs() {
  auto rows = ANCHORHOLD_TRY(database_.prepare(
      "SELECT number, inverts, begun_ns, ended_ns, taken_back, paths FROM epoch ORDER BY number"));
  std::vector<EpochRow> epochs;
  while (ANCHORHOLD_TRY(rows.step()))
    epochs.push_back({rows.integer(0), rows.integer(1), rows.integer(2), rows.integer(3),
                      rows.integer(4) != 0, std::string(rows.text(5))});
  return epochs;
}

Result<std::vector<ObjectRow>> Book::objects(std::int64_t epoch) {
  std::vector<ObjectRow> objects;
  std::unordered_map<std::int64_t, std::size_t> by_id;
  auto rows =
      ANCHORHOLD_TRY(database_.prepare("SELECT id, device, inode, birth_ns, generation, created, path, mode, "
                                       "size, access_s, modify_s, target, "
                                       "xattrs, kept, kept_name, kept_bytes, removed, owner, owner_group, "
                                       "links, access_ns, modify_ns FROM object WHERE epoch=?1 ORDER BY id"));
  rows.bind(1, epoch);
  while (ANCHORHOLD_TRY(rows.step())) {
    ObjectRow row;
    row.id = rows.integer(0);
    row.identity = identity_at(rows, 1);
    row.created = rows.integer(5) != 0;
    row.path = rows.text(6);
    row.mode = static_cast<std::uint32_t>(rows.integer(7));
    row.size = static_cast<std::uint64_t>(rows.integer(8));
    row.access_time = {rows.integer(9), static_cast<std::uint32_t>(rows.integer(20)), 0};
    row.modify_time = {rows.integer(10), static_cast<std::uint32_t>(rows.integer(21)), 0};
    row.target = rows.text(11);
    row.xattrs = rows.text(12);
    row.kept = static_cast<HowKept>(rows.integer(13));
    row.kept_name = rows.text(14);
    row.kept_bytes = static_cast<std::uint64_t>(rows.integer(15));
    row.removed = rows.integer(16) != 0;
    row.owner = rows.integer(17);
    row.owner_group = rows.integer(18);
    row.links = rows.integer(19);
    // A name in kept/ and nothing else.
    if (row.kept_name.find('/') != std::string::npos)
      return fail(ErrorCode::data_loss, "the ledger names a kept file that cannot be");
    objects.push_back(std::move(row));
  }
  ANCHORHOLD_CHECK(add_recent(epoch, objects));
  for (std::size_t i = 0; i < objects.size(); ++i) by_id.emplace(objects[i].id, i);
  auto lost = ANCHORHOLD_TRY(database_.prepare("SELECT object, path FROM lost"));
  while (ANCHORHOLD_TRY(lost.step()))
    if (auto found = by_id.find(lost.integer(0)); found != by_id.end())
      objects[found->second].lost.emplace_back(lost.text(1));
  auto gained = ANCHORHOLD_TRY(database_.prepare(
      "SELECT object, device, inode, birth_ns, generation, name FROM gained ORDER BY number"));
  while (ANCHORHOLD_TRY(gained.step()))
    if (auto found = by_id.find(gained.integer(0)); found != by_id.end())
      objects[found->second].gained.push_back({identity_at(gained, 1), std::string(gained.text(5))});
  return objects;
}

// What a keeper that runs, or was killed, knows of the session's own objects and has no rows of yet.
Status Book::add_recent(std::int64_t epoch, std::vector<ObjectRow>& objects) {
  if (recent_.entries.empty()) return {};
  auto settled = ANCHORHOLD_TRY(database_.query_integer("SELECT batch FROM settled")).value_or(0);
  if (recent_.number <= static_cast<std::uint64_t>(settled)) return {};
  std::unordered_map<std::int64_t, std::size_t> by_id;
  for (std::size_t i = 0; i < objects.size(); ++i) by_id.emplace(objects[i].id, i);
  std::vector<bool> gone(objects.size());
  for (const auto& entry : recent_.entries) {
    if (entry.epoch != epoch) continue;
    auto found = by_id.find(entry.id);
    if (entry.kind == RecentEntry::Kind::created && found == by_id.end()) {
      ObjectRow row;
      row.id = entry.id;
      row.identity = entry.identity;
      row.created = true;
      row.path = entry.path;
      row.mode = entry.mode;
      row.size = entry.size;
      row.links = entry.links;
      row.access_time = entry.access_time;
      row.modify_time = entry.modify_time;
      by_id.emplace(row.id, objects.size());
      objects.push_back(std::move(row));
      gone.push_back(false);
    } else if (found != by_id.end()) {
      if (entry.kind == RecentEntry::Kind::removed) gone[found->second] = true;
      if (entry.kind == RecentEntry::Kind::gone) objects[found->second].removed = true;
      if (entry.kind == RecentEntry::Kind::renamed) objects[found->second].path = entry.path;
    }
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < objects.size(); ++i)
    if (!gone[i] && kept++ != i) objects[kept - 1] = std::move(objects[i]);
  objects.resize(kept);
  return {};
}

Result<std::unordered_map<Identity, Remains, IdentityHash>> Book::remains() {
  std::unordered_map<Identity, Remains, IdentityHash> all;
  auto rows =
      ANCHORHOLD_TRY(database_.prepare("SELECT device, inode, birth_ns, generation, path, mode, size, "
                                       "modify_ns, change_ns, hash FROM remains"));
  while (ANCHORHOLD_TRY(rows.step())) {
    auto identity = identity_at(rows, 0);
    all.emplace(identity,
                Remains{identity, std::string(rows.text(4)), static_cast<std::uint32_t>(rows.integer(5)),
                        static_cast<std::uint64_t>(rows.integer(6)), rows.integer(7), rows.integer(8),
                        std::string(rows.text(9))});
  }
  return all;
}

Status Book::alias(const Identity& before, const Identity& now) {
  if (before == now) return set_not_removed(now);
  auto transaction = ANCHORHOLD_TRY(database::Transaction::begin(database_));
  for (const char* table : {"object", "gained"}) {
    auto update = ANCHORHOLD_TRY(database_.prepare(fmt::format(
        "UPDATE {} SET device=?5, inode=?6, birth_ns=?7, generation=?8{} WHERE device=?1 AND inode=?2 "
        "AND birth_ns=?3 AND generation=?4",
        table, std::string_view(table) == "object" ? ", removed=0" : "")));
    bind_identity(update, 1, before);
    bind_identity(update, 5, now);
    ANCHORHOLD_CHECK(update.run());
  }
  return transaction.commit();
}

Status Book::set_not_removed(const Identity& identity) {
  auto update = ANCHORHOLD_TRY(database_.prepare(
      "UPDATE object SET removed=0 WHERE device=?1 AND inode=?2 AND birth_ns=?3 AND generation=?4"));
  bind_identity(update, 1, identity);
  return update.run();
}

Status Book::set_copied(std::int64_t object, std::string_view kept_name) {
  auto update = ANCHORHOLD_TRY(database_.prepare("UPDATE object SET kept=?2, kept_name=?3 WHERE id=?1"));
  return update.bind(1, object).bind(2, static_cast<std::int64_t>(HowKept::copied)).bind(3, kept_name).run();
}

Status Book::begin_epoch(std::int64_t number, std::int64_t inverts, std::string_view paths) {
  auto insert = ANCHORHOLD_TRY(
      database_.prepare("INSERT OR IGNORE INTO epoch(number, inverts, begun_ns, paths) VALUES(?1,?2,?3,?4)"));
  auto now = std::chrono::system_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  return insert.bind(1, number).bind(2, inverts).bind(3, std::int64_t{now}).bind_blob(4, paths).run();
}

Status Book::set_taken_back(std::int64_t number) {
  return database_.run(fmt::format("UPDATE epoch SET taken_back=1 WHERE number={}", number));
}

Status Book::forget_epoch_without_objects(std::int64_t number) {
  return database_.run(fmt::format(
      "DELETE FROM epoch WHERE number={0} AND NOT EXISTS (SELECT 1 FROM object WHERE epoch={0})", number));
}

}  // namespace anchorhold::mounts
