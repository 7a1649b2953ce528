#include "session/session_store.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/paths.h"
#include "database/database.h"
#include "egress/control.h"

namespace anchorhold::session {
namespace {

using database::Database;
using database::Statement;
using database::Transaction;

constexpr const char* columns =
    "id, kind, state, title, image, grants, created_ns, changed_ns, pid, start_ticks, boot, end, network, "
    "answers, credentials";

std::int64_t to_ns(WallTime time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}
WallTime from_ns(std::int64_t ns) {
  return WallTime(std::chrono::duration_cast<WallTime::duration>(std::chrono::nanoseconds(ns)));
}

Status create_schema(Database& database) {
  auto transaction = ANCHORHOLD_TRY(Transaction::begin(database));
  auto version = ANCHORHOLD_TRY(database.query_integer("PRAGMA user_version")).value_or(0);
  if (version > 3)
    return fail(ErrorCode::failed_precondition, "the list of sessions was written by a newer Anchorhold",
                "use that version, or another state folder (XDG_STATE_HOME)");
  if (version == 3) return {};
  if (version == 0)
    ANCHORHOLD_CHECK(database.run(
        "CREATE TABLE session (id TEXT PRIMARY KEY, kind TEXT NOT NULL, state TEXT NOT NULL, title TEXT NOT "
        "NULL, "
        "image TEXT NOT NULL, grants TEXT NOT NULL, created_ns INTEGER NOT NULL, changed_ns INTEGER NOT "
        "NULL, "
        "pid INTEGER NOT NULL, start_ticks INTEGER NOT NULL, boot TEXT NOT NULL, end TEXT NOT NULL)"));
  if (version < 2)
    ANCHORHOLD_CHECK(
        database.run("ALTER TABLE session ADD COLUMN network TEXT NOT NULL DEFAULT '';"
                     "ALTER TABLE session ADD COLUMN answers TEXT NOT NULL DEFAULT ''"));
  ANCHORHOLD_CHECK(
      database.run("ALTER TABLE session ADD COLUMN credentials TEXT NOT NULL DEFAULT '';"
                   "PRAGMA user_version = 3"));
  return transaction.commit();
}

// Text from outside that is not UTF-8 is shown, not refused.
std::string to_json(const std::vector<std::string>& grants) {
  return nlohmann::json(grants).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::vector<std::string> grants_from_json(std::string_view text) {
  std::vector<std::string> grants;
  auto list = nlohmann::json::parse(text, nullptr, false);
  if (!list.is_array()) return grants;
  for (const auto& item : list)
    if (item.is_string()) grants.push_back(item.get<std::string>());
  return grants;
}

std::string to_json(const std::vector<policy::EgressRule>& rules) {
  policy::EgressPolicy all;
  all.session = rules;
  return egress::encode_rules(all);
}

// A rule that is not understood is one that denies or allows something unknown: then there is none of them.
std::vector<policy::EgressRule> rules_from_json(std::string_view text) {
  auto all = egress::parse_rules(text);
  return all ? std::move(all->session) : std::vector<policy::EgressRule>();
}

// What the table says; whether its process lives is looked at separately.
SessionRecord read_row(const Statement& row) {
  SessionRecord record;
  record.id = SessionId(std::string(row.text(0)));
  record.kind = row.text(1) == to_string(SessionKind::task) ? SessionKind::task : SessionKind::run;
  record.state =
      row.text(2) == to_string(SessionState::running) ? SessionState::running : SessionState::ended;
  record.title = row.text(3);
  record.image = row.text(4);
  record.grants = grants_from_json(row.text(5));
  record.created = from_ns(row.integer(6));
  record.changed = from_ns(row.integer(7));
  record.owner.pid = static_cast<pid_t>(row.integer(8));
  record.owner.start_ticks = static_cast<std::uint64_t>(row.integer(9));
  record.owner.boot = row.text(10);
  record.end = row.text(11);
  record.network = rules_from_json(row.text(12));
  record.answers = rules_from_json(row.text(13));
  // What is not understood is not everything.
  if (!row.text(14).empty()) record.credentials = grants_from_json(row.text(14));
  return record;
}

Status settle(SessionRecord& record) {
  if (record.state != SessionState::running) return {};
  if (!ANCHORHOLD_TRY(open_process(record.owner))) record.state = SessionState::interrupted;
  return {};
}

Result<std::optional<SessionRecord>> read_one(Database& database, const SessionId& id) {
  auto statement =
      ANCHORHOLD_TRY(database.prepare(fmt::format("SELECT {} FROM session WHERE id = ?", columns)));
  statement.bind(1, std::string_view(id.value()));
  if (!ANCHORHOLD_TRY(statement.step())) return std::optional<SessionRecord>();
  SessionRecord record = read_row(statement);
  ANCHORHOLD_CHECK(settle(record));
  return std::optional(std::move(record));
}

}  // namespace

std::string_view to_string(SessionKind kind) {
  return kind == SessionKind::run ? "run" : "task";
}

std::string_view to_string(SessionState state) {
  switch (state) {
    case SessionState::running:
      return "running";
    case SessionState::ended:
      return "ended";
    case SessionState::interrupted:
      return "interrupted";
  }
  return "unknown";
}

struct SessionStore::State {
  Database database;
};

SessionStore::SessionStore(std::unique_ptr<State> state) : state_(std::move(state)) {}
SessionStore::SessionStore(SessionStore&&) noexcept = default;
SessionStore& SessionStore::operator=(SessionStore&&) noexcept = default;
SessionStore::~SessionStore() = default;

Result<SessionStore> SessionStore::open_default() {
  return open(ANCHORHOLD_TRY(state_directory()) / "sessions.db");
}

Result<SessionStore> SessionStore::open(const std::filesystem::path& file) {
  auto database = Database::open(file, Database::Mode::read_write);
  if (!database) return fail(with_context(std::move(database).error(), "opening the list of sessions"));
  ANCHORHOLD_CHECK(create_schema(*database));
  return SessionStore(std::unique_ptr<State>(new State{std::move(*database)}));
}

Status SessionStore::begin(SessionRecord record, const Clock& clock) {
  auto transaction = ANCHORHOLD_TRY(Transaction::begin(state_->database));
  auto known = ANCHORHOLD_TRY(read_one(state_->database, record.id));
  record.owner = ANCHORHOLD_TRY(ProcessIdentity::of_this_process());
  if (known && known->state == SessionState::running && known->owner != record.owner)
    return fail(ErrorCode::unavailable,
                fmt::format("session {} is run by process {}", record.id.value(), known->owner.pid),
                fmt::format("stop it first: anchorhold sessions stop {}", record.id.value()));
  auto statement = ANCHORHOLD_TRY(state_->database.prepare(fmt::format(
      "INSERT OR REPLACE INTO session ({}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '', ?, ?, ?)", columns)));
  const WallTime now = clock.wall();
  statement.bind(1, std::string_view(record.id.value()))
      .bind(2, to_string(record.kind))
      .bind(3, to_string(SessionState::running))
      .bind(4, std::string_view(record.title))
      .bind(5, std::string_view(record.image))
      .bind(6, std::string_view(to_json(record.grants)))
      .bind(7, to_ns(known ? known->created : now))
      .bind(8, to_ns(now))
      .bind(9, std::int64_t{record.owner.pid})
      .bind(10, static_cast<std::int64_t>(record.owner.start_ticks))
      .bind(11, std::string_view(record.owner.boot))
      .bind(12, std::string_view(to_json(record.network)))
      .bind(13, std::string_view(to_json(record.answers)))
      .bind(14, std::string_view(record.credentials ? to_json(*record.credentials) : ""));
  ANCHORHOLD_CHECK(statement.run());
  return transaction.commit();
}

Status SessionStore::set_grants(const SessionId& id, const std::vector<std::string>& grants,
                                const Clock& clock) {
  auto statement =
      ANCHORHOLD_TRY(state_->database.prepare("UPDATE session SET grants = ?, changed_ns = ? WHERE id = ?"));
  statement.bind(1, std::string_view(to_json(grants)))
      .bind(2, to_ns(clock.wall()))
      .bind(3, std::string_view(id.value()));
  return statement.run();
}

Status SessionStore::set_answers(const SessionId& id, const std::vector<policy::EgressRule>& answers,
                                 const Clock& clock) {
  auto statement =
      ANCHORHOLD_TRY(state_->database.prepare("UPDATE session SET answers = ?, changed_ns = ? WHERE id = ?"));
  statement.bind(1, std::string_view(to_json(answers)))
      .bind(2, to_ns(clock.wall()))
      .bind(3, std::string_view(id.value()));
  return statement.run();
}

Status SessionStore::end(const SessionId& id, std::string_view how, const Clock& clock) {
  auto statement = ANCHORHOLD_TRY(
      state_->database.prepare("UPDATE session SET state = ?, end = ?, changed_ns = ? WHERE id = ?"));
  statement.bind(1, to_string(SessionState::ended))
      .bind(2, how)
      .bind(3, to_ns(clock.wall()))
      .bind(4, std::string_view(id.value()));
  return statement.run();
}

Result<std::vector<SessionRecord>> SessionStore::list() const {
  auto statement = ANCHORHOLD_TRY(state_->database.prepare(
      fmt::format("SELECT {} FROM session ORDER BY created_ns DESC, id DESC", columns)));
  std::vector<SessionRecord> records;
  while (ANCHORHOLD_TRY(statement.step())) {
    records.push_back(read_row(statement));
    ANCHORHOLD_CHECK(settle(records.back()));
  }
  return records;
}

Result<SessionRecord> SessionStore::find(std::string_view id_or_prefix) const {
  if (id_or_prefix.empty())
    return fail(ErrorCode::invalid_argument, "the id of a session is empty",
                "see which there are: anchorhold sessions");
  std::vector<SessionRecord> fitting;
  for (auto& record : ANCHORHOLD_TRY(list())) {
    if (record.id.value() == id_or_prefix) return std::move(record);
    if (record.id.value().starts_with(id_or_prefix)) fitting.push_back(std::move(record));
  }
  if (fitting.size() == 1) return std::move(fitting.front());
  if (fitting.empty())
    return fail(ErrorCode::not_found, fmt::format("there is no session {}", id_or_prefix),
                "see which there are: anchorhold sessions");
  return fail(ErrorCode::invalid_argument,
              fmt::format("{} sessions begin with {}", fitting.size(), id_or_prefix),
              "give more of the id: anchorhold sessions");
}

Status SessionStore::remove(const SessionId& id) {
  auto transaction = ANCHORHOLD_TRY(Transaction::begin(state_->database));
  auto known = ANCHORHOLD_TRY(read_one(state_->database, id));
  if (!known) return fail(ErrorCode::not_found, fmt::format("there is no session {}", id.value()));
  if (known->state == SessionState::running)
    return fail(ErrorCode::failed_precondition, fmt::format("session {} is running", id.value()),
                fmt::format("stop it first: anchorhold sessions stop {}", id.value()));
  auto statement = ANCHORHOLD_TRY(state_->database.prepare("DELETE FROM session WHERE id = ?"));
  statement.bind(1, std::string_view(id.value()));
  ANCHORHOLD_CHECK(statement.run());
  return transaction.commit();
}

}  // namespace anchorhold::session
