// The sealed process that looks at a ledger and undoes it: started, and what it says taken apart.
#include "mounts/review.h"

#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/file_time.h"
#include "base/files.h"
#include "base/paths.h"
#include "base/process.h"
#include "mounts/programs.h"
#include "review_wire.h"

namespace anchorhold::mounts {
namespace {

// The folder that was granted, or why it is not there. A single file's is the one the file is in.
Result<UniqueFd> open_granted(const LedgerPlace& place) {
  auto path = place.only_file ? place.host_path.parent_path() : place.host_path;
  UniqueFd root(open(path.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!root) return fail_errno(errno, path.string(), "put the folder back where it was");
  struct statx info;
  if (statx(root.get(), "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &info) != 0)
    return fail_errno(errno, path.string());
  // The device's number may be another one after a restart.
  std::int64_t birth =
      info.stx_mask & STATX_BTIME ? file_time_nanoseconds(info.stx_btime.tv_sec, info.stx_btime.tv_nsec) : 0;
  if (info.stx_ino != place.inode || birth != place.birth_ns)
    return fail(
        ErrorCode::failed_precondition,
        fmt::format("{} is not the folder that was granted: another one is in its place", path.string()),
        "put the folder back where it was");
  return root;
}

std::string from_root(const std::string& path, const LedgerPlace& place) {
  if (place.only_file && path.empty()) return *place.only_file;
  return path;
}

template <typename Outcome>
Result<Outcome> run(const LedgerPlace& place, std::vector<std::string> words,
                    const std::vector<std::string>& paths) {
  auto root = ANCHORHOLD_TRY(open_granted(place));
  auto program = ANCHORHOLD_TRY(own_program("anchorhold-ledger"));
  auto said = ANCHORHOLD_TRY(make_pipe());
  SpawnSpec spawn;
  spawn.argv = {program.string()};
  spawn.argv.insert(spawn.argv.end(), words.begin(), words.end());
  spawn.argv.insert(spawn.argv.end(), {"--ledger", std::filesystem::absolute(place.folder).string()});
  if (place.only_file) spawn.argv.push_back("--only-file=" + *place.only_file);
  for (const auto& path : paths) spawn.argv.push_back("--path=" + from_root(path, place));
  spawn.descriptors = {{2, 2}, {said.write_end.get(), ledger_fd::output}, {root.get(), ledger_fd::root}};
  auto child = ANCHORHOLD_TRY(Child::spawn(spawn));
  said.write_end.reset();
  Outcome outcome;
  std::string text;
  std::size_t lines = 0;
  char buffer[65536];
  for (;;) {
    ssize_t got = read(said.read_end.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(buffer, static_cast<std::size_t>(got));
    std::size_t begin = 0;
    for (auto end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
      if (++lines > max_review_lines)
        return fail(ErrorCode::resource_exhausted, "there are too many changes to show");
      if (ANCHORHOLD_TRY(decode_line(std::string_view(text).substr(begin, end - begin), outcome))) {
        child.wait();
        return outcome;
      }
      begin = end + 1;
    }
    text.erase(0, begin);
    if (text.size() > max_review_line_bytes)
      return fail(ErrorCode::internal, "anchorhold-ledger does not come to an end");
  }
  return fail(
      ErrorCode::unavailable,
      fmt::format("looking at the ledger of {} was cut short: {}", place.name, to_string(child.wait())),
      "try again");
}

}  // namespace

Result<Review> review(const LedgerPlace& place, const ReviewOptions& options) {
  std::vector<std::string> words{"review"};
  if (options.diff) words.push_back("--diff");
  return run<Review>(place, std::move(words), options.paths);
}

Result<UndoOutcome> undo(const LedgerPlace& place, const UndoOptions& options) {
  auto lock = ANCHORHOLD_TRY(FileLock::acquire(place.folder.parent_path() / "undo.lock", FileLock::Wait::no));
  std::vector<std::string> words{"undo"};
  if (options.redo) words.push_back("--redo");
  if (options.force) words.push_back("--force");
  if (options.dry_run) words.push_back("--dry-run");
  return run<UndoOutcome>(place, std::move(words), options.paths);
}

}  // namespace anchorhold::mounts
