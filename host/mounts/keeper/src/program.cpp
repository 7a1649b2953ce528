#include "program.h"

#include <CLI/CLI.hpp>
#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "mounts/programs.h"
#include "server.h"

namespace anchorhold::mounts {
namespace {

constexpr int max_clients = 32;

Result<Tree> open_tree(const KeeperArguments& arguments) {
  HiddenNames hidden = HiddenNames::standard();
  if (!arguments.hidden.empty()) hidden = ANCHORHOLD_TRY(HiddenNames::create(arguments.hidden));
  return Tree::open(UniqueFd(keeper_fd::root), std::move(hidden), arguments.only_file);
}

Status seal_and_serve(const KeeperArguments& arguments, Reporter& reporter) {
  // Modes are taken as they are asked for.
  umask(0);
  UniqueFd ledger_folder(open(arguments.ledger.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!ledger_folder) return fail_errno(errno, arguments.ledger.string());
  auto tree = ANCHORHOLD_TRY(open_tree(arguments));
  UniqueFd only_file;
  if (arguments.only_file) {
    only_file = UniqueFd(openat(tree.root(), arguments.only_file->c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    if (!only_file) return fail_errno(errno, *arguments.only_file);
  }
  int reachable = only_file ? only_file.get() : tree.root();
  ANCHORHOLD_TRY(seal(keeper_seal(reachable, ledger_folder.get(), arguments.clients, arguments.allow_weak)));
  auto ledger = ANCHORHOLD_TRY(Ledger::open(arguments.ledger, arguments.limits, tree.root()));
  if (!identity_of(tree.root_attributes(), generation_of(tree.root())).is_certain())
    reporter.send({.kind = ReportKind::warning,
                   .operation = "identity",
                   .reason = "this file system has neither birth times nor file handles: everything in it "
                             "counts as having been "
                             "there before the session"});
  Keeper keeper(arguments.mode, std::move(tree), std::move(ledger), reporter, arguments.session);
  std::vector<UniqueFd> clients;
  for (int i = 0; i < arguments.clients; ++i) clients.emplace_back(keeper_fd::first_client + i);
  reporter.send({.kind = ReportKind::ready, .operation = "keeper"});
  return serve_clients(keeper, std::move(clients));
}

}  // namespace

Result<KeeperArguments> parse_keeper_arguments(int argc, const char* const* argv) {
  KeeperArguments arguments;
  std::string mode, ledger, only_file;
  CLI::App app("Makes the changes to one granted folder. Started by anchorhold, not by people.",
               "anchorhold-keeper");
  app.add_option("--name", arguments.name)->required();
  app.add_option("--mode", mode)->required();
  app.add_option("--ledger", ledger)->required();
  app.add_option("--clients", arguments.clients)->required()->check(CLI::Range(1, max_clients));
  app.add_option("--only-file", only_file);
  app.add_option("--hidden", arguments.hidden);
  app.add_option("--quota", arguments.limits.quota_bytes);
  std::uint32_t bulk_seconds = 60, answer_seconds = 60;
  app.add_option("--bulk-changes", arguments.session.bulk.changes);
  app.add_option("--bulk-seconds", bulk_seconds)->check(CLI::Range(1, 86'400));
  app.add_option("--answer-seconds", answer_seconds)->check(CLI::Range(0, 3'600));
  app.add_option("--max-bytes", arguments.session.bytes_written);
  app.add_option("--max-files", arguments.session.files);
  app.add_flag("--refuse-escaping-symlinks", arguments.session.refuse_escaping_symlinks);
  app.add_flag("--allow-weak", arguments.allow_weak);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return fail(ErrorCode::invalid_argument, error.what());
  }
  auto parsed = parse_mode(mode);
  if (!parsed || *parsed == Mode::ro)
    return fail(ErrorCode::invalid_argument, fmt::format("'{}' is not a mode that has a keeper", mode));
  arguments.mode = *parsed;
  arguments.session.bulk.window = std::chrono::seconds(bulk_seconds);
  arguments.session.bulk.patience = std::chrono::seconds(answer_seconds);
  arguments.ledger = ledger;
  if (!arguments.ledger.is_absolute())
    return fail(ErrorCode::invalid_argument, "the ledger's path must be absolute");
  if (!only_file.empty()) arguments.only_file = only_file;
  return arguments;
}

SealPolicy keeper_seal(int root, int ledger_folder, int clients, bool allow_weak) {
  SealPolicy policy;
  policy.files = {{root, FileRight::Access::read_write}, {ledger_folder, FileRight::Access::read_write}};
  policy.syscalls = base_syscalls();
  allow(policy,
        {// Finding and opening.
         "openat", "openat2", "name_to_handle_at", "statx", "readlink", "readlinkat", "getdents64",
         // Changing.
         "mkdir", "mkdirat", "symlinkat", "linkat", "unlink", "unlinkat", "rename", "renameat", "renameat2",
         "chmod", "fchmodat", "utimensat", "ftruncate", "fallocate", "setxattr", "removexattr",
         // Keeping.
         "getxattr", "listxattr", "copy_file_range", "fsync", "fdatasync", "pwrite64",
         // The journal's library, besides.
         "open", "stat", "lstat", "access", "faccessat", "faccessat2", "getcwd", "fchmod", "fchown", "statfs",
         "fstatfs"});
  policy.syscalls.push_back({"ioctl", {{1, 0xffffffff, FICLONE}}});
  policy.syscalls.push_back({"sched_setaffinity", {{0, 0xffffffff, 0}}});  // of the calling thread
  policy.limits = {{RLIMIT_CORE, 0}, {RLIMIT_NOFILE, 1024}};
  policy.kept_descriptors = {keeper_fd::root, keeper_fd::reports};
  for (int i = 0; i < clients; ++i) policy.kept_descriptors.push_back(keeper_fd::first_client + i);
  policy.allow_weak = allow_weak;
  return policy;
}

int run_keeper(int argc, const char* const* argv) {
  start_log("anchorhold-keeper", LogLevel::warning);
  auto arguments = parse_keeper_arguments(argc, argv);
  if (!arguments) {
    log_error(arguments.error().message);
    return 1;
  }
  Reporter reporter{UniqueFd(keeper_fd::reports)};
  auto served = seal_and_serve(*arguments, reporter);
  if (served) return 0;
  log_error(served.error().message);
  reporter.send({.kind = ReportKind::fatal, .operation = "keeper", .reason = served.error().message});
  return 1;
}

}  // namespace anchorhold::mounts
