#include "program.h"

#include <CLI/CLI.hpp>
#include <cerrno>
#include <fcntl.h>
#include <linux/fs.h>
#include <sodium/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "mounts/programs.h"
#include "net_changes.h"
#include "restore.h"
#include "review_wire.h"

namespace anchorhold::mounts {
namespace {

struct LedgerArguments {
  bool undo = false;
  bool diff = false, redo = false, force = false, dry_run = false, allow_weak = false;
  std::filesystem::path ledger;
  std::optional<std::string> only_file;
  std::vector<std::string> paths;
};

Result<LedgerArguments> parse(int argc, const char* const* argv) {
  LedgerArguments arguments;
  std::string ledger, only_file;
  CLI::App app(
      "Looks at what a session changed in one folder, or undoes it. Started by anchorhold, not by people.",
      "anchorhold-ledger");
  app.require_subcommand(1);
  auto* review = app.add_subcommand("review", "");
  auto* undo = app.add_subcommand("undo", "");
  review->add_flag("--diff", arguments.diff);
  undo->add_flag("--redo", arguments.redo);
  undo->add_flag("--force", arguments.force);
  undo->add_flag("--dry-run", arguments.dry_run);
  for (auto* command : {review, undo}) {
    command->add_option("--ledger", ledger)->required();
    command->add_option("--only-file", only_file);
    command->add_option("--path", arguments.paths)->allow_extra_args(false);
    command->add_flag("--allow-weak", arguments.allow_weak);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return fail(ErrorCode::invalid_argument, error.what());
  }
  arguments.undo = undo->parsed();
  arguments.ledger = ledger;
  if (!arguments.ledger.is_absolute())
    return fail(ErrorCode::invalid_argument, "the ledger's path must be absolute");
  if (!only_file.empty()) arguments.only_file = only_file;
  return arguments;
}

// Lines are gathered: a pipe takes few and large pieces faster.
class Output {
 public:
  ~Output() { flush(); }
  void line(const std::string& text) {
    gathered_ += text;
    if (gathered_.size() > 64 * 1024) flush();
  }

 private:
  void flush() {
    (void)write_all(ledger_fd::output, std::as_bytes(std::span(gathered_)));
    gathered_.clear();
  }
  std::string gathered_;
};

Status tell_review(const LedgerArguments& arguments, Output& output) {
  auto book = ANCHORHOLD_TRY(Book::open(arguments.ledger, database::Database::Mode::read_only));
  UniqueFd kept(open((arguments.ledger / "kept").c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!kept) return fail_errno(errno, "the kept files");
  auto situation =
      ANCHORHOLD_TRY(Situation::find(book, session_epoch, ledger_fd::root, kept.get(), arguments.only_file));
  Review review;
  for (const auto& change : net_changes(situation, ledger_fd::root, kept.get(),
                                        {.diff = arguments.diff, .paths = arguments.paths}, review.left_out))
    output.line(encode(change));
  for (const auto& epoch : ANCHORHOLD_TRY(book.epochs())) {
    for (const auto& row : ANCHORHOLD_TRY(book.objects(epoch.number))) {
      if (!row.content_is_kept()) continue;
      if (epoch.number == session_epoch) ++review.objects_kept;
      (epoch.number == session_epoch ? review.bytes_kept : review.undo_bytes_kept) += row.kept_bytes;
    }
    if (epoch.number == session_epoch) continue;
    UndoRecord undo{.number = epoch.number,
                    .redo = epoch.inverts != session_epoch,
                    .finished = epoch.ended_ns > 0,
                    .taken_back = epoch.taken_back,
                    .begun = std::chrono::system_clock::time_point(std::chrono::nanoseconds(epoch.begun_ns)),
                    .paths = {}};
    for (std::size_t at = 0, end; (end = epoch.paths.find('\0', at)) != std::string::npos; at = end + 1)
      undo.paths.push_back(epoch.paths.substr(at, end - at));
    output.line(encode(undo));
  }
  output.line(encode_end(review));
  return {};
}

UndoStep::Kind kind_of(StepKind kind) {
  return static_cast<UndoStep::Kind>(kind);
}
static_assert(static_cast<int>(StepKind::left_in_place) == static_cast<int>(UndoStep::Kind::left_in_place));

Status tell_undo(const LedgerArguments& arguments, Output& output) {
  RestoreSpec spec;
  spec.root = ledger_fd::root;
  spec.only_file = arguments.only_file;
  spec.ledger = arguments.ledger;
  spec.redo = arguments.redo;
  spec.paths = arguments.paths;
  spec.force = arguments.force;
  spec.dry_run = arguments.dry_run;
  auto result = ANCHORHOLD_TRY(restore(spec));
  for (const auto& step : result.steps)
    output.line(encode(UndoStep{kind_of(step.kind), step.path, step.other}));
  for (const auto& refusal : result.refused) output.line(encode(UndoRefusal{refusal.path, refusal.reason}));
  output.line(encode_end(UndoOutcome{.steps = {}, .refused = {}, .number = result.epoch}));
  return {};
}

Status seal_and_work(const LedgerArguments& arguments, Output& output) {
  umask(0);
  if (sodium_init() < 0) return fail(ErrorCode::internal, "libsodium cannot be used");
  UniqueFd ledger_folder(open(arguments.ledger.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!ledger_folder) return fail_errno(errno, arguments.ledger.string());
  UniqueFd only_file;
  if (arguments.only_file) {
    only_file =
        UniqueFd(openat(ledger_fd::root, arguments.only_file->c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    if (!only_file) return fail_errno(errno, *arguments.only_file);
  }
  bool changes = arguments.undo && !arguments.dry_run;
  ANCHORHOLD_TRY(seal(ledger_seal(only_file ? only_file.get() : ledger_fd::root, ledger_folder.get(), changes,
                                  arguments.allow_weak)));
  return arguments.undo ? tell_undo(arguments, output) : tell_review(arguments, output);
}

}  // namespace

SealPolicy ledger_seal(int root, int ledger_folder, bool changes, bool allow_weak) {
  SealPolicy policy;
  policy.files = {{root, changes ? FileRight::Access::read_write : FileRight::Access::read},
                  // The journal's library locks and maps what it only reads.
                  {ledger_folder, FileRight::Access::read_write}};
  policy.syscalls = base_syscalls();
  allow(policy, {"openat",     "openat2",   "name_to_handle_at", "statx",  "readlink",  "readlinkat",
                 "getdents64", "getxattr",  "listxattr",         "open",   "stat",      "lstat",
                 "access",     "faccessat", "faccessat2",        "getcwd", "statfs",    "fstatfs",
                 "unlink",     "ftruncate", "fallocate",         "fsync",  "fdatasync", "pwrite64",
                 "fadvise64"});
  // The journal's library would give a file it makes the owner and mode of the others. Whoever only looks has
  // no right to that: it would also hold for what is read in the granted folder.
  for (const char* name : {"fchmod", "fchown"}) policy.syscalls.push_back({name, {}, !changes});
  if (changes) {
    allow(policy,
          {"mkdir", "mkdirat", "symlinkat", "linkat", "unlinkat", "rename", "renameat", "renameat2", "chmod",
           "fchmodat", "fchownat", "utimensat", "setxattr", "removexattr", "copy_file_range", "syncfs"});
    // Pipes and sockets that were there before.
    for (std::uint64_t kind : {S_IFIFO, S_IFSOCK})
      policy.syscalls.push_back({"mknodat", {{2, S_IFMT, kind}}});
    policy.syscalls.push_back({"ioctl", {{1, 0xffffffff, FICLONE}}});
  }
  policy.limits = {{RLIMIT_CORE, 0}, {RLIMIT_NOFILE, 1024}};
  policy.kept_descriptors = {ledger_fd::root, ledger_fd::output};
  policy.allow_weak = allow_weak;
  return policy;
}

int run_ledger(int argc, const char* const* argv) {
  start_log("anchorhold-ledger", LogLevel::warning);
  auto arguments = parse(argc, argv);
  if (!arguments) {
    log_error(arguments.error().message);
    return 1;
  }
  Output output;
  auto done = seal_and_work(*arguments, output);
  if (done) return 0;
  output.line(encode_error(done.error()));
  return 1;
}

}  // namespace anchorhold::mounts
