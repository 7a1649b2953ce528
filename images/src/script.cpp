#include "script.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <deque>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <set>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/process.h"

extern char** environ;

namespace anchorhold::images {
namespace {

constexpr std::size_t max_line_bytes = 4096;
constexpr std::size_t max_log_bytes = 16 << 20;
constexpr std::size_t kept_lines = 12;

// Waits on descriptor 3: a byte means that the script ended well; the end of the file means that nobody waits
// for it.
constexpr const char* watchdog = R"(
{ trap '' TERM INT HUP
  if ! read -r -u 3 _; then kill -TERM 0; sleep 5; kill -KILL 0; fi
} >/dev/null 2>&1 &
exec 3<&-
exec "$@"
)";

// Programs of system administration (veritysetup, mkfs.*) are used here by ordinary users.
std::string search_path() {
  const char* path = getenv("PATH");
  return std::string(path && *path ? path : "/usr/local/bin:/usr/bin:/bin") +
         ":/usr/local/sbin:/usr/sbin:/sbin";
}

std::vector<std::string> merged_environment(const std::vector<std::string>& added) {
  auto key_of = [](std::string_view entry) { return std::string(entry.substr(0, entry.find('='))); };
  std::set<std::string> replaced{"PATH"};
  for (const auto& entry : added) replaced.insert(key_of(entry));
  std::vector<std::string> environment = added;
  environment.push_back("PATH=" + search_path());
  for (char** entry = environ; *entry; ++entry)
    if (!replaced.contains(key_of(*entry))) environment.emplace_back(*entry);
  return environment;
}

// Splits output into lines, writes it to the log and remembers the end of it.
class OutputSink {
 public:
  OutputSink(const Script& script, UniqueFd log) : script_(script), log_(std::move(log)) {}

  void take(std::string_view bytes) {
    if (logged_ < max_log_bytes && write_all(log_.get(), std::as_bytes(std::span(bytes))))
      logged_ += bytes.size();
    for (char c : bytes) {
      if (c == '\n' || c == '\r') {
        end_line();
      } else if (line_.size() < max_line_bytes) {
        line_ += c;
      }
    }
  }
  void end_line() {
    if (line_.empty()) return;
    if (!line_.starts_with("progress:")) last_.push_back(line_);
    if (last_.size() > kept_lines) last_.pop_front();
    if (script_.on_line) script_.on_line(line_);
    line_.clear();
  }
  // What the script said about its failure: its "error:" lines, else its last lines.
  std::string tail() const {
    std::string errors, all;
    for (const auto& line : last_) {
      all += "\n  " + line;
      if (line.starts_with("error:")) errors += "\n  " + line;
    }
    return errors.empty() ? all : errors;
  }

 private:
  const Script& script_;
  UniqueFd log_;
  std::size_t logged_ = 0;
  std::string line_;
  std::deque<std::string> last_;
};

// Passes output on until every process of the script has closed it; a stop closes the lifeline once.
Status pump(int output, int stop_event, UniqueFd& lifeline, OutputSink& sink) {
  std::array<char, 16384> buffer;
  std::array<pollfd, 2> entries{pollfd{output, POLLIN, 0}, pollfd{stop_event, POLLIN, 0}};
  for (;;) {
    if (poll(entries.data(), entries.size(), -1) < 0) {
      if (errno == EINTR) continue;
      return fail_errno(errno, "poll");
    }
    if (entries[1].revents != 0) {
      lifeline.reset();
      entries[1].fd = -1;
      entries[1].revents = 0;
    }
    if (entries[0].revents == 0) continue;
    ssize_t got = read(output, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_errno(errno, "reading the output of a script");
    if (got == 0) return {};
    sink.take({buffer.data(), static_cast<std::size_t>(got)});
  }
}

}  // namespace

Status run_script(const Script& script, std::stop_token stop) {
  UniqueFd log(open(script.log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!log) return fail_errno(errno, fmt::format("opening {}", script.log.string()));
  Pipe output = ANCHORHOLD_TRY(make_pipe());
  auto [lifeline, watchdog_end] = ANCHORHOLD_TRY(socket_pair(SOCK_STREAM));
  UniqueFd stop_event(eventfd(0, EFD_CLOEXEC));
  if (!stop_event) return fail_errno(errno, "eventfd");

  SpawnSpec spec;
  spec.argv = {"/bin/bash", "-c", watchdog, "anchorhold-build"};
  spec.argv.insert(spec.argv.end(), script.argv.begin(), script.argv.end());
  spec.environment = merged_environment(script.environment);
  spec.descriptors = {{output.write_end.get(), 1}, {output.write_end.get(), 2}, {watchdog_end.get(), 3}};
  spec.working_directory = script.working_directory;
  spec.die_with_parent = false;  // the watchdog ends the whole group instead, and lets it clean up
  auto child = ANCHORHOLD_TRY(Child::spawn(spec));
  output.write_end.reset();
  watchdog_end.reset();

  OutputSink sink(script, std::move(log));
  std::stop_callback on_stop(stop, [&] { eventfd_write(stop_event.get(), 1); });
  auto pumped = pump(output.read_end.get(), stop_event.get(), lifeline, sink);
  sink.end_line();
  if (!pumped) {
    lifeline.reset();
    child.wait();
    return fail(pumped.error());
  }
  ExitStatus status = child.wait();
  if (lifeline) (void)!send(lifeline.get(), "\n", 1, MSG_NOSIGNAL);
  if (stop.stop_requested()) return fail(ErrorCode::cancelled, "the build was stopped");
  if (status.ok()) return {};
  return fail(ErrorCode::failed_precondition,
              fmt::format("{} failed ({}):{}", script.argv[0], to_string(status), sink.tail()),
              fmt::format("all of its output is in {}", script.log.string()));
}

Result<std::string> capture_output(const std::vector<std::string>& argv) {
  Pipe output = ANCHORHOLD_TRY(make_pipe());
  SpawnSpec spec;
  spec.argv = argv;
  spec.environment = merged_environment({"LC_ALL=C"});
  spec.descriptors = {{output.write_end.get(), 1}, {output.write_end.get(), 2}};
  auto child = ANCHORHOLD_TRY(Child::spawn(spec));
  output.write_end.reset();
  std::string text(64 * 1024, '\0');
  text.resize(ANCHORHOLD_TRY(read_full(output.read_end.get(), std::as_writable_bytes(std::span(text)))));
  output.read_end.reset();
  auto status = child.wait();
  if (!status.ok())
    return fail(ErrorCode::failed_precondition,
                fmt::format("{} failed ({}): {}", argv[0], to_string(status), text));
  return text;
}

std::string find_program(std::string_view name) {
  std::string path = search_path();
  for (std::size_t start = 0; start <= path.size();) {
    std::size_t end = std::min(path.find(':', start), path.size());
    std::string candidate = fmt::format("{}/{}", path.substr(start, end - start), name);
    if (candidate.front() == '/' && access(candidate.c_str(), X_OK) == 0) return candidate;
    start = end + 1;
  }
  return {};
}

}  // namespace anchorhold::images
