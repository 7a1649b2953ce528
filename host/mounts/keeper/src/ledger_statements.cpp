#include "ledger_statements.h"

#include <algorithm>
#include <chrono>
#include <sys/stat.h>

namespace anchorhold::mounts {
namespace {

std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::int64_t number(std::uint64_t value) {
  return static_cast<std::int64_t>(value);
}

}  // namespace

Result<std::unique_ptr<Ledger::Statements>> Ledger::Statements::prepare(database::Database& database,
                                                                        const std::filesystem::path& folder,
                                                                        std::int64_t epoch) {
  auto make = [&](const char* sql) { return database.prepare(sql); };
  auto insert_object = ANCHORHOLD_TRY(
      make("INSERT OR REPLACE INTO object(id, device, inode, birth_ns, created, path, mode, size, "
           "links, access_s, modify_s, target, xattrs, noted_ns, generation, epoch, owner, owner_group, "
           "access_ns, modify_ns) "
           "VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17,?18,?19,?20)"));
  auto delete_object = ANCHORHOLD_TRY(make("DELETE FROM object WHERE id=?1"));
  auto set_kept = ANCHORHOLD_TRY(make("UPDATE object SET kept=?2, kept_name=?3, kept_bytes=?4 WHERE id=?1"));
  auto set_removed = ANCHORHOLD_TRY(make("UPDATE object SET removed=1 WHERE id=?1"));
  auto set_stands = ANCHORHOLD_TRY(make("UPDATE object SET stands=1 WHERE id=?1"));
  auto set_path = ANCHORHOLD_TRY(make("UPDATE object SET path=?2 WHERE id=?1"));
  auto kept_of = ANCHORHOLD_TRY(make("SELECT kept, kept_name, kept_bytes FROM object WHERE id=?1"));
  auto path_of = ANCHORHOLD_TRY(make("SELECT path FROM object WHERE id=?1"));
  auto add_lost = ANCHORHOLD_TRY(make("INSERT OR IGNORE INTO lost(object, path) VALUES(?1,?2)"));
  auto add_gained = ANCHORHOLD_TRY(
      make("INSERT INTO gained(number, object, device, inode, birth_ns, generation, name, linked) "
           "VALUES(?1,?2,?3,?4,?5,?6,?7,?8)"));
  auto delete_gained = ANCHORHOLD_TRY(make("DELETE FROM gained WHERE number=?1"));
  auto set_remains = ANCHORHOLD_TRY(
      make("INSERT OR REPLACE INTO remains(device, inode, birth_ns, generation, path, mode, size, modify_ns, "
           "change_ns, hash) VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10)"));
  auto set_settled = ANCHORHOLD_TRY(make("INSERT OR REPLACE INTO settled(one, batch) VALUES(1, ?1)"));
  std::unique_ptr<Statements> statements(new Statements{
      std::move(insert_object), std::move(delete_object), std::move(set_kept), std::move(set_removed),
      std::move(set_stands), std::move(set_path), std::move(kept_of), std::move(path_of), std::move(add_lost),
      std::move(add_gained), std::move(delete_gained), std::move(set_remains), std::move(set_settled)});
  statements->epoch = epoch;
  statements->database_ = &database;
  statements->recent_ = ANCHORHOLD_TRY(Recent::open(folder, statements->before_));
  auto settled = static_cast<std::uint64_t>(
      ANCHORHOLD_TRY(database.query_integer("SELECT batch FROM settled")).value_or(0));
  auto& before = statements->before_;
  if (before.number > settled) ANCHORHOLD_CHECK(statements->apply_all(before.entries, before.number));
  before.number = std::max(before.number, settled);
  auto last_object = ANCHORHOLD_TRY(database.query_integer("SELECT max(id) FROM object"));
  auto last_gained = ANCHORHOLD_TRY(database.query_integer("SELECT max(number) FROM gained"));
  statements->next_object = last_object.value_or(0) + 1;
  statements->next_gained = last_gained.value_or(0) + 1;
  return statements;
}

Result<std::int64_t> Ledger::Statements::insert_object(const Located& object, std::string_view path,
                                                       std::string_view target, std::string_view xattrs) {
  const Attributes& a = object.attributes;
  auto identity = object.identity();
  struct stat info {};
  bool owned = object.fd && fstat(object.fd.get(), &info) == 0;
  insert_object_.bind(1, next_object)
      .bind(2, number(identity.device))
      .bind(3, number(identity.inode))
      .bind(4, identity.birth_ns)
      .bind(5, std::int64_t{0})
      .bind_blob(6, path)
      .bind(7, std::int64_t{a.mode})
      .bind(8, number(a.size))
      .bind(9, std::int64_t{a.links})
      .bind(10, a.access_time.seconds)
      .bind(11, a.modify_time.seconds)
      .bind_blob(12, target)
      .bind_blob(13, xattrs)
      .bind(14, now())
      .bind(15, number(identity.generation))
      .bind(16, epoch)
      .bind(17, owned ? std::int64_t{info.st_uid} : -1)
      .bind(18, owned ? std::int64_t{info.st_gid} : -1)
      .bind(19, std::int64_t{a.access_time.nanoseconds})
      .bind(20, std::int64_t{a.modify_time.nanoseconds});
  ANCHORHOLD_CHECK(insert_object_.run());
  return next_object++;
}

// The owner of what the session makes is the person: nothing to restore.
Status Ledger::Statements::insert_created(const RecentEntry& created) {
  insert_object_.bind(1, created.id)
      .bind(2, number(created.identity.device))
      .bind(3, number(created.identity.inode))
      .bind(4, created.identity.birth_ns)
      .bind(5, std::int64_t{1})
      .bind_blob(6, created.path)
      .bind(7, std::int64_t{created.mode})
      .bind(8, number(created.size))
      .bind(9, std::int64_t{created.links})
      .bind(10, created.access_time.seconds)
      .bind(11, created.modify_time.seconds)
      .bind_blob(12, {})
      .bind_blob(13, {})
      .bind(14, created.time_ns)
      .bind(15, number(created.identity.generation))
      .bind(16, created.epoch)
      .bind(17, -1)
      .bind(18, -1)
      .bind(19, std::int64_t{created.access_time.nanoseconds})
      .bind(20, std::int64_t{created.modify_time.nanoseconds});
  return insert_object_.run();
}

Status Ledger::Statements::set_kept(std::int64_t id, HowKept how, std::string_view name,
                                    std::uint64_t bytes) {
  ANCHORHOLD_CHECK(settle_row_of(id));
  return set_kept_.bind(1, id)
      .bind(2, static_cast<std::int64_t>(how))
      .bind(3, name)
      .bind(4, number(bytes))
      .run();
}

Status Ledger::Statements::set_removed(std::int64_t id) {
  ANCHORHOLD_CHECK(settle_row_of(id));
  return set_removed_.bind(1, id).run();
}
Status Ledger::Statements::set_stands(std::int64_t id) {
  ANCHORHOLD_CHECK(settle_row_of(id));
  return set_stands_.bind(1, id).run();
}

Result<KeptRow> Ledger::Statements::kept_of(std::int64_t id) {
  ANCHORHOLD_CHECK(settle_row_of(id));
  KeptRow row;
  auto stepped = kept_of_.bind(1, id).step();
  if (stepped && *stepped)
    row = {static_cast<HowKept>(kept_of_.integer(0)), std::string(kept_of_.text(1)),
           static_cast<std::uint64_t>(kept_of_.integer(2))};
  kept_of_.reset();
  if (!stepped) return fail(stepped.error());
  return row;
}

Result<std::string> Ledger::Statements::path_of(std::int64_t id) {
  ANCHORHOLD_CHECK(settle_row_of(id));
  std::string path;
  auto stepped = path_of_.bind(1, id).step();
  if (stepped && *stepped) path = path_of_.text(0);
  path_of_.reset();
  if (!stepped) return fail(stepped.error());
  return path;
}

Status Ledger::Statements::add_lost(std::int64_t object, std::string_view path) {
  return add_lost_.bind(1, object).bind_blob(2, path).run();
}

Result<std::int64_t> Ledger::Statements::add_gained(std::int64_t object, const Identity& folder,
                                                    std::string_view name, bool linked) {
  add_gained_.bind(1, next_gained)
      .bind(2, object)
      .bind(3, number(folder.device))
      .bind(4, number(folder.inode))
      .bind(5, folder.birth_ns)
      .bind(6, number(folder.generation))
      .bind_blob(7, name)
      .bind(8, std::int64_t{linked});
  ANCHORHOLD_CHECK(add_gained_.run());
  return next_gained++;
}

Status Ledger::Statements::delete_gained(std::int64_t gained) {
  return delete_gained_.bind(1, gained).run();
}

Status Ledger::Statements::set_remains(const Remains& remains) {
  set_remains_.bind(1, number(remains.identity.device))
      .bind(2, number(remains.identity.inode))
      .bind(3, remains.identity.birth_ns)
      .bind(4, number(remains.identity.generation))
      .bind_blob(5, remains.path)
      .bind(6, std::int64_t{remains.mode})
      .bind(7, number(remains.size))
      .bind(8, remains.modify_ns)
      .bind(9, remains.change_ns);
  if (remains.hash.empty())
    set_remains_.bind_null(10);
  else
    set_remains_.bind_blob(10, remains.hash);
  return set_remains_.run();
}

}  // namespace anchorhold::mounts
