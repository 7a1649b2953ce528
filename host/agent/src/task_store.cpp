#include "agent/task_store.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "base/files.h"
#include "progress.h"
#include "rows.h"
#include "spec_json.h"
#include "text.h"

namespace anchorhold::agent {
namespace {

constexpr std::int64_t schema_version = 1;

constexpr const char* schema = R"(
CREATE TABLE task(
  only INTEGER PRIMARY KEY CHECK (only = 1),
  spec TEXT NOT NULL,
  state TEXT NOT NULL,
  reason TEXT NOT NULL DEFAULT '',
  hint TEXT NOT NULL DEFAULT '',
  created_ms INTEGER NOT NULL,
  changed_ms INTEGER NOT NULL,
  plan TEXT NOT NULL DEFAULT '[]',
  turns INTEGER NOT NULL DEFAULT 0,
  input_tokens INTEGER NOT NULL DEFAULT 0,
  output_tokens INTEGER NOT NULL DEFAULT 0,
  cache_read_tokens INTEGER NOT NULL DEFAULT 0,
  cache_write_tokens INTEGER NOT NULL DEFAULT 0,
  active_ms INTEGER NOT NULL DEFAULT 0,
  shortened_through INTEGER NOT NULL DEFAULT 0);
CREATE TABLE message(number INTEGER PRIMARY KEY AUTOINCREMENT, role TEXT NOT NULL, content TEXT NOT NULL,
  stop_reason TEXT NOT NULL DEFAULT '');
CREATE TABLE call(
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  message INTEGER NOT NULL REFERENCES message(number),
  tool_use_id TEXT NOT NULL,
  name TEXT NOT NULL,
  input TEXT NOT NULL,
  call_summary TEXT NOT NULL,
  state TEXT NOT NULL,
  verdict TEXT NOT NULL DEFAULT '',
  text TEXT NOT NULL DEFAULT '',
  summary TEXT NOT NULL DEFAULT '',
  duration_ms INTEGER NOT NULL DEFAULT 0,
  output_bytes INTEGER NOT NULL DEFAULT 0);
CREATE INDEX call_message ON call(message);
CREATE TABLE output(
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  path TEXT NOT NULL UNIQUE,
  host_path TEXT NOT NULL,
  description TEXT NOT NULL,
  size INTEGER NOT NULL);
PRAGMA user_version = 1;
)";

// What was granted after the task was made. Tasks of earlier versions get it when they are opened.
constexpr const char* granted_table = R"(
CREATE TABLE IF NOT EXISTS granted(
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  host TEXT NOT NULL,
  guest TEXT NOT NULL,
  mode TEXT NOT NULL,
  told INTEGER NOT NULL DEFAULT 0);
)";

WallTime from_milliseconds(std::int64_t count) {
  return WallTime(std::chrono::milliseconds(count));
}

TaskState state_from(std::string_view text) {
  for (TaskState state :
       {TaskState::ready, TaskState::running, TaskState::completed, TaskState::stopped, TaskState::limit}) {
    if (text == to_string(state)) return state;
  }
  return TaskState::failed;
}

// A lock that can be looked at without being taken (F_OFD_GETLK, fcntl(2)), so that listing never disturbs an
// opening.
struct flock whole_file() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

Result<UniqueFd> take_lock(const std::filesystem::path& folder) {
  auto path = folder / "lock";
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return fail_errno(errno, fmt::format("opening {}", path.string()));
  auto lock = whole_file();
  if (fcntl(fd.get(), F_OFD_SETLK, &lock) == 0) return fd;
  if (errno == EAGAIN || errno == EACCES)
    return fail(ErrorCode::unavailable,
                fmt::format("task {} is run by another process", folder.filename().string()));
  return fail_errno(errno, fmt::format("locking {}", path.string()));
}

bool is_locked(const std::filesystem::path& folder) {
  UniqueFd fd(open((folder / "lock").c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  auto lock = whole_file();
  return fd && fcntl(fd.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

bool valid_id(const TaskId& id) {
  const std::string& text = id.value();
  return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
}

tl::unexpected<Error> no_such_task(const TaskId& id) {
  return fail(ErrorCode::not_found, fmt::format("there is no task {}", one_line(id.value())),
              "anchorhold sessions list shows them");
}

// Tasks that were being made or removed when a host died. Anything young may be somebody's work right now.
void remove_leavings(const std::filesystem::path& directory) {
  std::error_code error;
  auto old = std::filesystem::file_time_type::clock::now() - std::chrono::hours(24);
  std::filesystem::directory_iterator entry(directory, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    std::error_code ignored;
    bool leaving =
        entry->path().filename().string().starts_with('.') && entry->last_write_time(ignored) < old;
    if (leaving && !ignored) std::filesystem::remove_all(entry->path(), ignored);
  }
}

Status make_absolute(ProviderSpec& provider) {
  std::error_code error;
  constexpr std::string_view scripted = "scripted:";
  if (provider.model.starts_with(scripted)) {
    auto path = std::filesystem::absolute(provider.model.substr(scripted.size()), error);
    if (error) return fail(ErrorCode::invalid_argument, "the script's path: " + error.message());
    provider.model = std::string(scripted) + path.string();
  }
  if (!provider.key_file.empty()) {
    provider.key_file = std::filesystem::absolute(provider.key_file, error);
    if (error) return fail(ErrorCode::invalid_argument, "the key file's path: " + error.message());
  }
  return {};
}

Status check_schema(database::Database& database) {
  std::int64_t version = ANCHORHOLD_TRY(database.query_integer("PRAGMA user_version")).value_or(0);
  if (version == schema_version) return {};
  if (version > schema_version)
    return fail(ErrorCode::data_loss,
                fmt::format("it was written by a newer Anchorhold (schema {}, this one knows {})", version,
                            schema_version));
  return fail(ErrorCode::data_loss, "it was not made whole");
}

}  // namespace

Result<TaskSpec> read_spec(database::Database& database) {
  auto rows = ANCHORHOLD_TRY(database.prepare("SELECT spec FROM task"));
  if (!ANCHORHOLD_TRY(rows.step())) return fail(ErrorCode::data_loss, "the task's database holds no task");
  auto json = parse_json(string_at(rows, 0));
  if (!json) return fail(ErrorCode::data_loss, "the task's description is damaged: " + json.error().message);
  return spec_from_json(*json);
}

Result<TaskSummary> read_summary(database::Database& database, const TaskId& id) {
  ANCHORHOLD_CHECK(check_schema(database));
  auto spec = ANCHORHOLD_TRY(read_spec(database));
  auto rows = ANCHORHOLD_TRY(
      database.prepare("SELECT state, reason, created_ms, changed_ms, turns, input_tokens, output_tokens,"
                       " cache_read_tokens, cache_write_tokens FROM task"));
  if (!ANCHORHOLD_TRY(rows.step())) return fail(ErrorCode::data_loss, "the task's database holds no task");
  TaskSummary summary;
  summary.id = id;
  summary.state = state_from(string_at(rows, 0));
  summary.reason = string_at(rows, 1);
  summary.prompt = spec.prompt;
  summary.model = spec.provider.model;
  summary.created = from_milliseconds(rows.integer(2));
  summary.changed = from_milliseconds(rows.integer(3));
  summary.turns = static_cast<std::uint32_t>(rows.integer(4));
  summary.usage = {unsigned_at(rows, 5), unsigned_at(rows, 6), unsigned_at(rows, 7), unsigned_at(rows, 8)};
  auto outputs = ANCHORHOLD_TRY(
      database.prepare("SELECT path, host_path, description, size FROM output ORDER BY number"));
  while (ANCHORHOLD_TRY(outputs.step()))
    summary.outputs.push_back(
        {string_at(outputs, 0), string_at(outputs, 1), string_at(outputs, 2), unsigned_at(outputs, 3)});
  return summary;
}

Result<TaskStore> TaskStore::open(std::filesystem::path directory) {
  ANCHORHOLD_CHECK(make_directories(directory));
  remove_leavings(directory);
  return TaskStore(std::move(directory));
}

// Made under a name no reader looks at and renamed: a task is there whole or not at all.
Result<StoredTask> TaskStore::create(TaskSpec spec, const Clock& clock) {
  ANCHORHOLD_CHECK(make_absolute(spec.provider));
  TaskId id(new_short_id());
  auto making = directory_ / ("." + id.value());
  ANCHORHOLD_CHECK(make_directories(making / "outputs"));
  {
    auto database =
        ANCHORHOLD_TRY(database::Database::open(making / "task.db", database::Database::Mode::read_write));
    auto transaction = ANCHORHOLD_TRY(database::Transaction::begin(database));
    ANCHORHOLD_CHECK(database.run(schema));
    auto now = std::chrono::duration_cast<std::chrono::milliseconds>(clock.wall().time_since_epoch()).count();
    ANCHORHOLD_CHECK(execute(
        database, "INSERT INTO task(only, spec, state, created_ms, changed_ms) VALUES (1, ?, 'ready', ?, ?)",
        to_text(to_json(spec)), std::int64_t{now}, std::int64_t{now}));
    ANCHORHOLD_CHECK(execute(database, "INSERT INTO message(role, content) VALUES ('user', ?)",
                             blocks_to_json({TextBlock{spec.prompt, {}}})));
    ANCHORHOLD_CHECK(transaction.commit());
  }
  if (rename(making.c_str(), folder_of(id).c_str()) != 0)
    return fail_errno(errno, fmt::format("making the task {}", id.value()));
  return open_task(id, clock);
}

Result<StoredTask> TaskStore::open_task(const TaskId& id, const Clock& clock) {
  auto folder = folder_of(id);
  std::error_code error;
  if (!valid_id(id) || !std::filesystem::is_directory(folder, error)) return no_such_task(id);
  auto lock = ANCHORHOLD_TRY(take_lock(folder));
  auto load = [&]() -> Result<StoredTask> {
    if (!std::filesystem::exists(folder / "task.db", error))
      return fail(ErrorCode::data_loss, "its database is missing");
    auto database =
        ANCHORHOLD_TRY(database::Database::open(folder / "task.db", database::Database::Mode::read_write));
    ANCHORHOLD_CHECK(check_schema(database));
    ANCHORHOLD_CHECK(database.run("PRAGMA synchronous=FULL"));
    ANCHORHOLD_CHECK(database.run(granted_table));
    auto spec = ANCHORHOLD_TRY(read_spec(database));
    for (auto& granted : ANCHORHOLD_TRY(read_granted(database, "")))
      spec.grants.folders.push_back(std::move(granted));
    return StoredTask(std::make_unique<StoredTask::Progress>(id, std::move(spec), folder, std::move(database),
                                                             std::move(lock), clock));
  };
  auto task = load();
  if (!task) return fail(with_context(task.error(), fmt::format("opening the task {}", id.value())));
  return task;
}

Status StoredTask::change(const Limits& limits, const ProviderSpec& provider) {
  ProviderSpec absolute = provider;
  ANCHORHOLD_CHECK(make_absolute(absolute));
  return progress_->change_spec(limits, absolute);
}

Result<TaskSummary> TaskStore::summary(const TaskId& id) const {
  auto folder = folder_of(id);
  std::error_code error;
  if (!valid_id(id) || !std::filesystem::is_directory(folder, error)) return no_such_task(id);
  auto load = [&]() -> Result<TaskSummary> {
    auto database =
        ANCHORHOLD_TRY(database::Database::open(folder / "task.db", database::Database::Mode::read_only));
    return read_summary(database, id);
  };
  auto summary = load();
  if (!summary) return fail(with_context(summary.error(), fmt::format("reading the task {}", id.value())));
  if (is_locked(folder)) {
    summary->state = TaskState::running;
  } else if (summary->state == TaskState::running) {
    summary->state = TaskState::ready;
  }
  return summary;
}

Result<std::vector<TaskSummary>> TaskStore::list(std::vector<std::string>* damaged) const {
  std::vector<TaskSummary> tasks;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(directory_, error), end; !error && entry != end;
       entry.increment(error)) {
    TaskId id(entry->path().filename().string());
    if (!valid_id(id)) continue;
    auto one = summary(id);
    if (one) {
      tasks.push_back(std::move(*one));
    } else if (damaged && one.error().code != ErrorCode::not_found) {
      damaged->push_back(one.error().message);
    }
  }
  if (error)
    return fail(code_from_errno(error.value()),
                fmt::format("listing {}: {}", directory_.string(), error.message()));
  std::sort(tasks.begin(), tasks.end(), [](const auto& a, const auto& b) {
    return std::tie(a.created, a.id) > std::tie(b.created, b.id);
  });
  return tasks;
}

Status TaskStore::add_folder(const TaskId& id, const FolderGrant& granted) const {
  auto folder = folder_of(id);
  std::error_code error;
  if (!valid_id(id) || !std::filesystem::is_directory(folder, error)) return no_such_task(id);
  auto store = [&]() -> Status {
    auto database =
        ANCHORHOLD_TRY(database::Database::open(folder / "task.db", database::Database::Mode::read_write));
    ANCHORHOLD_CHECK(check_schema(database));
    ANCHORHOLD_CHECK(database.run("PRAGMA synchronous=FULL"));
    ANCHORHOLD_CHECK(database.run(granted_table));
    return execute(database, "INSERT INTO granted(host, guest, mode) VALUES (?, ?, ?)", granted.host_path,
                   granted.guest_path, to_string(granted.mode));
  };
  if (auto stored = store(); !stored)
    return fail(with_context(std::move(stored).error(), fmt::format("changing the task {}", id.value())));
  return {};
}

// The lock is held until the folder has a name no reader looks at.
Status TaskStore::remove(const TaskId& id) {
  auto folder = folder_of(id);
  std::error_code error;
  if (!valid_id(id) || !std::filesystem::is_directory(folder, error)) return no_such_task(id);
  auto lock = ANCHORHOLD_TRY(take_lock(folder));
  auto going = directory_ / fmt::format(".gone-{}-{}", id.value(), random_hex(4));
  if (rename(folder.c_str(), going.c_str()) != 0)
    return fail_errno(errno, fmt::format("removing the task {}", id.value()));
  std::filesystem::remove_all(going, error);
  if (error)
    return fail(code_from_errno(error.value()),
                fmt::format("removing the task {}: {}", id.value(), error.message()));
  return {};
}

StoredTask::StoredTask(std::unique_ptr<Progress> progress) : progress_(std::move(progress)) {}
StoredTask::StoredTask(StoredTask&&) noexcept = default;
StoredTask& StoredTask::operator=(StoredTask&&) noexcept = default;
StoredTask::~StoredTask() = default;
const TaskId& StoredTask::id() const {
  return progress_->id();
}
const TaskSpec& StoredTask::spec() const {
  return progress_->spec();
}
Result<TaskSummary> StoredTask::summary() const {
  return progress_->summary();
}
Result<std::vector<Message>> StoredTask::messages() const {
  return progress_->messages();
}
Result<std::vector<StoredCall>> StoredTask::calls() const {
  return progress_->calls();
}
Result<std::vector<PlanItem>> StoredTask::plan() const {
  return progress_->plan();
}
Result<std::string> StoredTask::read_output(std::uint64_t call, std::uint64_t offset,
                                            std::size_t max_bytes) const {
  return progress_->read_output(call, offset, max_bytes);
}
StoredTask::Progress& StoredTask::progress() {
  return *progress_;
}

}  // namespace anchorhold::agent
