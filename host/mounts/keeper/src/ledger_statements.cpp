#include "ledger_statements.h"

#include <chrono>

namespace anchorhold::mounts {
namespace {

std::int64_t nanoseconds(const Timestamp& time) {
  return time.seconds * 1'000'000'000 + time.nanoseconds;
}

std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::int64_t number(std::uint64_t value) {
  return static_cast<std::int64_t>(value);
}

}  // namespace

Result<std::unique_ptr<Ledger::Statements>> Ledger::Statements::prepare(database::Database& database) {
  auto insert_object = ANCHORHOLD_TRY(database.prepare(
      "INSERT INTO object(id, device, inode, birth_ns, created, path, mode, size, links, "
      "access_ns, modify_ns, target, "
      "xattrs, noted_ns, generation) VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15)"));
  auto delete_object = ANCHORHOLD_TRY(database.prepare("DELETE FROM object WHERE id=?1"));
  auto set_kept =
      ANCHORHOLD_TRY(database.prepare("UPDATE object SET kept=?2, kept_name=?3, kept_bytes=?4 WHERE id=?1"));
  auto set_removed = ANCHORHOLD_TRY(database.prepare("UPDATE object SET removed=1 WHERE id=?1"));
  auto set_stands = ANCHORHOLD_TRY(database.prepare("UPDATE object SET stands=1 WHERE id=?1"));
  auto set_path = ANCHORHOLD_TRY(database.prepare("UPDATE object SET path=?2 WHERE id=?1"));
  auto kept_of =
      ANCHORHOLD_TRY(database.prepare("SELECT kept, kept_name, kept_bytes FROM object WHERE id=?1"));
  auto insert_rename =
      ANCHORHOLD_TRY(database.prepare("INSERT INTO rename(number, object, old_path, new_path, exchange, "
                                      "noted_ns) VALUES(?1,?2,?3,?4,?5,?6)"));
  auto delete_rename = ANCHORHOLD_TRY(database.prepare("DELETE FROM rename WHERE number=?1"));
  auto last_object = ANCHORHOLD_TRY(database.query_integer("SELECT max(id) FROM object"));
  auto last_rename = ANCHORHOLD_TRY(database.query_integer("SELECT max(number) FROM rename"));
  std::unique_ptr<Statements> statements(
      new Statements{std::move(insert_object), std::move(delete_object), std::move(set_kept),
                     std::move(set_removed), std::move(set_stands), std::move(set_path), std::move(kept_of),
                     std::move(insert_rename), std::move(delete_rename)});
  statements->next_object = last_object.value_or(0) + 1;
  statements->next_rename = last_rename.value_or(0) + 1;
  return statements;
}

Result<std::int64_t> Ledger::Statements::insert_object(const Located& object, bool created,
                                                       std::string_view target, std::string_view xattrs) {
  const Attributes& a = object.attributes;
  auto identity = object.identity();
  insert_object_.bind(1, next_object)
      .bind(2, number(identity.device))
      .bind(3, number(identity.inode))
      .bind(4, identity.birth_ns)
      .bind(5, std::int64_t{created})
      .bind_blob(6, object.path)
      .bind(7, std::int64_t{a.mode})
      .bind(8, number(a.size))
      .bind(9, std::int64_t{a.links})
      .bind(10, nanoseconds(a.access_time))
      .bind(11, nanoseconds(a.modify_time))
      .bind_blob(12, target)
      .bind_blob(13, xattrs)
      .bind(14, now())
      .bind(15, number(identity.generation));
  ANCHORHOLD_CHECK(insert_object_.run());
  return next_object++;
}

Status Ledger::Statements::delete_object(std::int64_t id) {
  return delete_object_.bind(1, id).run();
}

Status Ledger::Statements::set_kept(std::int64_t id, HowKept how, std::string_view name,
                                    std::uint64_t bytes) {
  return set_kept_.bind(1, id)
      .bind(2, static_cast<std::int64_t>(how))
      .bind(3, name)
      .bind(4, number(bytes))
      .run();
}

Status Ledger::Statements::set_removed(std::int64_t id) {
  return set_removed_.bind(1, id).run();
}
Status Ledger::Statements::set_stands(std::int64_t id) {
  return set_stands_.bind(1, id).run();
}

Status Ledger::Statements::set_path(std::int64_t id, std::string_view path) {
  return set_path_.bind(1, id).bind_blob(2, path).run();
}

Result<KeptRow> Ledger::Statements::kept_of(std::int64_t id) {
  KeptRow row;
  auto stepped = kept_of_.bind(1, id).step();
  if (stepped && *stepped)
    row = {static_cast<HowKept>(kept_of_.integer(0)), std::string(kept_of_.text(1)),
           static_cast<std::uint64_t>(kept_of_.integer(2))};
  kept_of_.reset();
  if (!stepped) return fail(stepped.error());
  return row;
}

Result<std::int64_t> Ledger::Statements::insert_rename(std::int64_t object, std::string_view old_path,
                                                       std::string_view new_path, bool exchange) {
  insert_rename_.bind(1, next_rename)
      .bind(2, object)
      .bind_blob(3, old_path)
      .bind_blob(4, new_path)
      .bind(5, std::int64_t{exchange})
      .bind(6, now());
  ANCHORHOLD_CHECK(insert_rename_.run());
  return next_rename++;
}

Status Ledger::Statements::delete_rename(std::int64_t rename) {
  return delete_rename_.bind(1, rename).run();
}

}  // namespace anchorhold::mounts
