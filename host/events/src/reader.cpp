#include <fmt/format.h>
#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "base/fd.h"
#include "store.h"

namespace anchorhold::events {
namespace {

using database::Database;

std::string conditions(const Filter& filter) {
  std::string where = "sequence > ?1 AND severity >= ?2";
  if (!filter.session.empty()) where += " AND session_id = ?3";
  if (!filter.task.empty()) where += " AND task_id = ?4";
  if (!filter.name_prefix.empty()) where += " AND substr(name, 1, length(?5)) = ?5";
  if (filter.since) where += " AND wall_ns >= ?6";
  return where;
}

std::int64_t since_ns(const Filter& filter) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(filter.since->time_since_epoch()).count();
}

enum class Reading { goes_on, ended };

// Visits what is there now; leaves the last sequence seen in filter.after.
Result<Reading> visit_present(Database& database, Filter& filter, const Visit& visit) {
  std::string query =
      fmt::format("SELECT {} FROM event WHERE {} ORDER BY sequence", record_columns, conditions(filter));
  if (filter.newest > 0) {
    query = fmt::format(
        "SELECT * FROM (SELECT {} FROM event WHERE {} ORDER BY sequence DESC LIMIT ?7) ORDER BY sequence",
        record_columns, conditions(filter));
  }
  auto statement = ANCHORHOLD_TRY(database.prepare(query));
  statement.bind(1, filter.after).bind(2, static_cast<std::int64_t>(filter.at_least));
  if (!filter.session.empty()) statement.bind(3, std::string_view(filter.session));
  if (!filter.task.empty()) statement.bind(4, std::string_view(filter.task));
  if (!filter.name_prefix.empty()) statement.bind(5, std::string_view(filter.name_prefix));
  if (filter.since) statement.bind(6, since_ns(filter));
  if (filter.newest > 0) statement.bind(7, static_cast<std::int64_t>(filter.newest));
  while (ANCHORHOLD_TRY(statement.step())) {
    Record record = ANCHORHOLD_TRY(to_record(read_record(statement)));
    filter.after = record.sequence;
    if (!visit(record)) return Reading::ended;
  }
  return Reading::goes_on;
}

// Wakes when anything in the log's folder is written. The time-out is for file systems without inotify.
class Watch {
 public:
  static Result<Watch> start(const std::filesystem::path& folder) {
    UniqueFd fd(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
    if (!fd) return fail_errno(errno, "watching the event log");
    if (inotify_add_watch(fd.get(), folder.c_str(), IN_MODIFY | IN_CREATE) < 0)
      return fail_errno(errno, "watching " + folder.string());
    return Watch(std::move(fd));
  }

  Reading wait(int stop_fd) {
    pollfd waited[2] = {{fd_.get(), POLLIN, 0}, {stop_fd, POLLIN, 0}};
    poll(waited, stop_fd >= 0 ? 2 : 1, 1000);
    if (stop_fd >= 0 && waited[1].revents != 0) return Reading::ended;
    char buffer[4096];
    while (read(fd_.get(), buffer, sizeof buffer) > 0) {
    }
    return Reading::goes_on;
  }

 private:
  explicit Watch(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace

Status list(const std::filesystem::path& folder, const Filter& filter, const Visit& visit) {
  auto database = Database::open(log_file(folder), Database::Mode::read_only);
  if (!database && database.error().code == ErrorCode::not_found) return {};
  if (!database) return fail(std::move(database).error());
  Filter position = filter;
  ANCHORHOLD_TRY(visit_present(*database, position, visit));
  return {};
}

Status follow(const std::filesystem::path& folder, const Filter& filter, const Visit& visit, int stop_fd) {
  // Opening it as a writer makes an empty log where there is none, which then can be watched.
  auto made = EventLog::open({.folder = folder});
  if (!made) return fail(std::move(made).error());
  auto watch = ANCHORHOLD_TRY(Watch::start(folder));
  auto database = ANCHORHOLD_TRY(Database::open(log_file(folder), Database::Mode::read_only));
  Filter position = filter;
  for (;;) {
    if (ANCHORHOLD_TRY(visit_present(database, position, visit)) == Reading::ended) return {};
    position.newest = 0;
    if (watch.wait(stop_fd) == Reading::ended) return {};
  }
}

}  // namespace anchorhold::events
