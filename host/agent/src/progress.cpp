#include "progress.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "rows.h"
#include "spec_json.h"

namespace anchorhold::agent {
namespace {

std::int64_t to_milliseconds(WallTime time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
}

std::string_view state_name(StoredCall::State state) {
  switch (state) {
    case StoredCall::State::pending:
      return "pending";
    case StoredCall::State::running:
      return "running";
    case StoredCall::State::done:
      return "done";
    case StoredCall::State::interrupted:
      return "interrupted";
  }
  return "interrupted";
}

StoredCall::State call_state_from(std::string_view text) {
  if (text == "pending") return StoredCall::State::pending;
  if (text == "running") return StoredCall::State::running;
  if (text == "done") return StoredCall::State::done;
  return StoredCall::State::interrupted;
}

ToolVerdict verdict_from(std::string_view text) {
  if (text == "ok") return ToolVerdict::ok;
  if (text == "interrupted") return ToolVerdict::interrupted;
  return ToolVerdict::error;
}

std::string_view role_name(Role role) {
  return role == Role::user ? "user" : "assistant";
}

Status insert_message(database::Database& database, Role role, const std::vector<Block>& blocks,
                      std::string_view stop_reason) {
  return execute(database, "INSERT INTO message(role, content, stop_reason) VALUES (?, ?, ?)",
                 role_name(role), blocks_to_json(blocks), stop_reason);
}

Result<std::uint64_t> last_inserted(database::Database& database) {
  return static_cast<std::uint64_t>(
      ANCHORHOLD_TRY(database.query_integer("SELECT last_insert_rowid()")).value_or(0));
}

Status insert_usage(database::Database& database, const Usage& usage, bool is_turn) {
  return execute(database,
                 "UPDATE task SET turns = turns + ?, input_tokens = input_tokens + ?,"
                 " output_tokens = output_tokens + ?, cache_read_tokens = cache_read_tokens + ?,"
                 " cache_write_tokens = cache_write_tokens + ?",
                 std::int64_t{is_turn}, usage.input_tokens, usage.output_tokens, usage.cache_read_tokens,
                 usage.cache_write_tokens);
}

}  // namespace

Status StoredTask::Progress::touch() const {
  return execute(database_, "UPDATE task SET changed_ms = ?", to_milliseconds(clock_.wall()));
}

Status StoredTask::Progress::begin(std::string_view interrupted_text) {
  auto transaction = ANCHORHOLD_TRY(database::Transaction::begin(database_));
  ANCHORHOLD_CHECK(execute(database_,
                           "UPDATE call SET state = 'interrupted', verdict = 'interrupted', text = ?,"
                           " summary = 'interrupted' WHERE state = 'running'",
                           interrupted_text));
  ANCHORHOLD_CHECK(database_.run("UPDATE task SET state = 'running', reason = '', hint = ''"));
  ANCHORHOLD_CHECK(touch());
  return transaction.commit();
}

Status StoredTask::Progress::append_user(const Message& message) {
  auto transaction = ANCHORHOLD_TRY(database::Transaction::begin(database_));
  ANCHORHOLD_CHECK(insert_message(database_, message.role, message.blocks, ""));
  ANCHORHOLD_CHECK(touch());
  return transaction.commit();
}

Status StoredTask::Progress::append_turn(const Turn& turn, std::vector<ToolCall>& calls) {
  auto transaction = ANCHORHOLD_TRY(database::Transaction::begin(database_));
  ANCHORHOLD_CHECK(insert_message(database_, Role::assistant, turn.blocks, to_string(turn.stop_reason)));
  std::uint64_t message = ANCHORHOLD_TRY(last_inserted(database_));
  for (ToolCall& call : calls) {
    ANCHORHOLD_CHECK(execute(database_,
                             "INSERT INTO call(message, tool_use_id, name, input, call_summary, state)"
                             " VALUES (?, ?, ?, ?, ?, 'pending')",
                             message, call.id, call.name, call.input, call.summary));
    call.number = ANCHORHOLD_TRY(last_inserted(database_));
  }
  ANCHORHOLD_CHECK(insert_usage(database_, turn.usage, true));
  ANCHORHOLD_CHECK(touch());
  return transaction.commit();
}

Status StoredTask::Progress::add_usage(const Usage& usage) {
  return insert_usage(database_, usage, true);
}

Result<std::vector<FolderGrant>> read_granted(database::Database& database, std::string_view condition) {
  auto rows = ANCHORHOLD_TRY(
      database.prepare(fmt::format("SELECT host, guest, mode FROM granted {} ORDER BY number", condition)));
  std::vector<FolderGrant> folders;
  while (ANCHORHOLD_TRY(rows.step()))
    folders.push_back({string_at(rows, 0), string_at(rows, 1), folder_mode_from(string_at(rows, 2))});
  return folders;
}

Result<std::optional<Message>> StoredTask::Progress::take_new_folders() {
  auto transaction = ANCHORHOLD_TRY(database::Transaction::begin(database_));
  auto news = ANCHORHOLD_TRY(read_granted(database_, "WHERE told = 0"));
  if (news.empty()) return std::optional<Message>();
  Message message{Role::user, {TextBlock{new_folders_text(news), {}}}};
  ANCHORHOLD_CHECK(insert_message(database_, message.role, message.blocks, ""));
  ANCHORHOLD_CHECK(database_.run("UPDATE granted SET told = 1"));
  ANCHORHOLD_CHECK(touch());
  ANCHORHOLD_CHECK(transaction.commit());
  auto& folders = spec_.grants.folders;
  for (auto& folder : news) {
    auto same = [&](const FolderGrant& other) { return other.guest_path == folder.guest_path; };
    if (std::none_of(folders.begin(), folders.end(), same)) folders.push_back(std::move(folder));
  }
  return std::optional(std::move(message));
}

Status StoredTask::Progress::call_running(std::uint64_t number) {
  return execute(database_, "UPDATE call SET state = 'running' WHERE number = ?", number);
}

Status StoredTask::Progress::call_done(std::uint64_t number, const ToolOutcome& outcome,
                                       std::uint64_t output_bytes, const ToolEffects& effects) {
  auto transaction = ANCHORHOLD_TRY(database::Transaction::begin(database_));
  auto state =
      outcome.verdict == ToolVerdict::interrupted ? StoredCall::State::interrupted : StoredCall::State::done;
  ANCHORHOLD_CHECK(execute(database_,
                           "UPDATE call SET state = ?, verdict = ?, text = ?, summary = ?, duration_ms = ?,"
                           " output_bytes = ? WHERE number = ?",
                           state_name(state), to_string(outcome.verdict), outcome.text, outcome.summary,
                           std::int64_t{outcome.duration.count()}, output_bytes, number));
  if (effects.plan)
    ANCHORHOLD_CHECK(execute(database_, "UPDATE task SET plan = ?", to_text(to_json(*effects.plan))));
  if (effects.delivered) {
    const Output& output = *effects.delivered;
    ANCHORHOLD_CHECK(execute(database_,
                             "INSERT INTO output(path, host_path, description, size) VALUES (?, ?, ?, ?)"
                             " ON CONFLICT(path) DO UPDATE SET host_path = excluded.host_path,"
                             " description = excluded.description, size = excluded.size",
                             output.path, output.host_path, output.description, output.size));
  }
  ANCHORHOLD_CHECK(touch());
  return transaction.commit();
}

Status StoredTask::Progress::set_shortened_through(std::uint64_t number) {
  return execute(database_, "UPDATE task SET shortened_through = ?", number);
}

Status StoredTask::Progress::change_spec(const Limits& limits, const ProviderSpec& provider) {
  auto stored = ANCHORHOLD_TRY(read_spec(database_));
  stored.limits = limits;
  stored.provider = provider;
  ANCHORHOLD_CHECK(execute(database_, "UPDATE task SET spec = ?", to_text(to_json(stored))));
  spec_.limits = limits;
  spec_.provider = provider;
  return {};
}

Status StoredTask::Progress::add_active_time(std::chrono::milliseconds time) {
  return execute(database_, "UPDATE task SET active_ms = active_ms + ?", std::int64_t{time.count()});
}

Status StoredTask::Progress::end(const TaskOutcome& outcome) {
  auto transaction = ANCHORHOLD_TRY(database::Transaction::begin(database_));
  ANCHORHOLD_CHECK(execute(database_, "UPDATE task SET state = ?, reason = ?, hint = ?",
                           to_string(outcome.end), outcome.reason, outcome.hint));
  ANCHORHOLD_CHECK(touch());
  return transaction.commit();
}

Result<std::vector<Message>> StoredTask::Progress::messages() const {
  auto rows = ANCHORHOLD_TRY(database_.prepare("SELECT role, content FROM message ORDER BY number"));
  std::vector<Message> messages;
  while (ANCHORHOLD_TRY(rows.step())) {
    auto blocks = blocks_from_json(string_at(rows, 1));
    if (!blocks)
      return fail(ErrorCode::data_loss,
                  fmt::format("message {}: {}", messages.size() + 1, blocks.error().message));
    messages.push_back({string_at(rows, 0) == "user" ? Role::user : Role::assistant, std::move(*blocks)});
  }
  return messages;
}

Result<StopReason> StoredTask::Progress::last_stop_reason() const {
  auto rows =
      ANCHORHOLD_TRY(database_.prepare("SELECT stop_reason FROM message ORDER BY number DESC LIMIT 1"));
  std::string text = ANCHORHOLD_TRY(rows.step()) ? string_at(rows, 0) : "";
  for (StopReason reason :
       {StopReason::end_turn, StopReason::tool_use, StopReason::max_tokens, StopReason::stop_sequence,
        StopReason::pause_turn, StopReason::refusal, StopReason::context_exceeded, StopReason::script_end}) {
    if (text == to_string(reason)) return reason;
  }
  return StopReason::other;
}

Result<std::vector<StoredCall>> StoredTask::Progress::read_calls(std::string_view condition) const {
  auto rows = ANCHORHOLD_TRY(database_.prepare(fmt::format(
      "SELECT number, tool_use_id, name, input, call_summary, state, verdict, text, summary, duration_ms,"
      " output_bytes FROM call {} ORDER BY number",
      condition)));
  std::vector<StoredCall> calls;
  while (ANCHORHOLD_TRY(rows.step())) {
    StoredCall stored;
    stored.call = {unsigned_at(rows, 0), string_at(rows, 1), string_at(rows, 2), string_at(rows, 3),
                   string_at(rows, 4)};
    stored.state = call_state_from(string_at(rows, 5));
    stored.outcome = {verdict_from(string_at(rows, 6)), string_at(rows, 7), string_at(rows, 8),
                      std::chrono::milliseconds(rows.integer(9))};
    stored.output_bytes = unsigned_at(rows, 10);
    calls.push_back(std::move(stored));
  }
  return calls;
}

Result<std::vector<StoredCall>> StoredTask::Progress::calls() const {
  return read_calls("");
}

Result<std::vector<StoredCall>> StoredTask::Progress::open_calls() const {
  return read_calls("WHERE message = (SELECT max(number) FROM message)");
}

Result<std::vector<PlanItem>> StoredTask::Progress::plan() const {
  auto rows = ANCHORHOLD_TRY(database_.prepare("SELECT plan FROM task"));
  if (!ANCHORHOLD_TRY(rows.step())) return std::vector<PlanItem>{};
  auto json = parse_json(string_at(rows, 0));
  return json ? plan_from_json(*json) : std::vector<PlanItem>{};
}

Result<std::vector<Output>> StoredTask::Progress::outputs() const {
  return ANCHORHOLD_TRY(summary()).outputs;
}

Result<StoredTask::Progress::Totals> StoredTask::Progress::totals() const {
  auto rows =
      ANCHORHOLD_TRY(database_.prepare("SELECT turns, input_tokens, output_tokens, cache_read_tokens, "
                                       "cache_write_tokens, active_ms, shortened_through,"
                                       " (SELECT coalesce(sum(output_bytes), 0) FROM call) FROM task"));
  if (!ANCHORHOLD_TRY(rows.step())) return fail(ErrorCode::data_loss, "the task's database holds no task");
  Totals totals;
  totals.turns = static_cast<std::uint32_t>(rows.integer(0));
  totals.usage = {unsigned_at(rows, 1), unsigned_at(rows, 2), unsigned_at(rows, 3), unsigned_at(rows, 4)};
  totals.active = std::chrono::milliseconds(rows.integer(5));
  totals.shortened_through = unsigned_at(rows, 6);
  totals.stored_output_bytes = unsigned_at(rows, 7);
  return totals;
}

Result<TaskSummary> StoredTask::Progress::summary() const {
  return read_summary(database_, id_);
}

std::filesystem::path StoredTask::Progress::output_file(std::uint64_t call) const {
  return folder_ / "outputs" / fmt::to_string(call);
}

Result<std::string> StoredTask::Progress::read_output(std::uint64_t call, std::uint64_t offset,
                                                      std::size_t max_bytes) const {
  auto found =
      ANCHORHOLD_TRY(read_calls(fmt::format("WHERE number = {} AND state IN ('done', 'interrupted')", call)));
  if (found.empty())
    return fail(ErrorCode::not_found, fmt::format("there is no finished tool call {}", call));
  if (found.front().output_bytes == 0) {
    const std::string& text = found.front().outcome.text;
    return text.substr(std::min<std::uint64_t>(offset, text.size()), max_bytes);
  }
  auto file = output_file(call);
  UniqueFd fd(open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) return fail_errno(errno, fmt::format("opening the stored output {}", file.string()));
  if (lseek(fd.get(), static_cast<off_t>(offset), SEEK_SET) < 0)
    return fail_errno(errno, "reading a stored output");
  std::string text(max_bytes, '\0');
  text.resize(ANCHORHOLD_TRY(read_full(fd.get(), std::as_writable_bytes(std::span(text)))));
  return text;
}

}  // namespace anchorhold::agent
