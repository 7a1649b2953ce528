#include "reader/reader_program.h"

#include <algorithm>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mounts/keeper_client.h"
#include "mounts/programs.h"
#include "reader/dispatcher.h"
#include "reader/reader_device.h"
#include "reader/reader_seal.h"

namespace anchorhold::mounts {
namespace {

constexpr std::size_t pool_threads = 4;

Result<UniqueFd> adopt(int number, const char* what) {
  if (fcntl(number, F_SETFD, FD_CLOEXEC) != 0) return fail_errno(errno, what);
  return UniqueFd(number);
}

// Half of the descriptors are for what the guest has open, a quarter each for looked-up names and for names
// that are gone.
void divide_descriptors(FileSystemSpec& spec) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  constexpr rlim_t own = 64, most_cached = 8192;
  rlim_t all = limit.rlim_cur > 4 * own ? limit.rlim_cur - own : 3 * own;
  spec.nodes.descriptors = static_cast<std::size_t>(std::min(all / 4, most_cached));
  spec.handles = static_cast<std::size_t>(all - 2 * spec.nodes.descriptors);
}

}  // namespace

Result<ReaderProgram> ReaderProgram::seal(const ReaderArguments& arguments) {
  ReaderProgram program;
  program.arguments_ = arguments;
  program.reports_ =
      std::make_unique<Reporter>(ANCHORHOLD_TRY(adopt(reader_fd::reports, "the reports' socket")));
  program.listener_ = ANCHORHOLD_TRY(adopt(reader_fd::listener, "the front end's socket"));
  program.root_ = ANCHORHOLD_TRY(adopt(reader_fd::root, "the granted folder"));
  if (arguments.mode != Mode::ro)
    program.keeper_ = ANCHORHOLD_TRY(adopt(reader_fd::keeper, "the keeper's socket"));
  if (arguments.watch) {
    program.watch_ = ANCHORHOLD_TRY(adopt(reader_fd::watch, "the socket about watching"));
    program.events_ = ANCHORHOLD_TRY(adopt(reader_fd::events, "the folder's events"));
  }
  program.own_descriptors_.reset(open("/proc/self/fd", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!program.own_descriptors_) return fail_errno(errno, "/proc/self/fd", "mount /proc");

  ReaderSeal seal;
  seal.root = program.root_.get();
  seal.own_descriptors = program.own_descriptors_.get();
  seal.sockets = {program.listener_.get(), program.reports_->descriptor(), program.keeper_.get(),
                  program.watch_.get(), program.events_.get()};
  seal.writes = static_cast<bool>(program.keeper_);
  seal.allow_weak = arguments.allow_weak;
  ANCHORHOLD_CHECK(drop_capabilities());
  (void)ANCHORHOLD_TRY(anchorhold::seal(reader_policy(seal)));
  return program;
}

Status ReaderProgram::run() {
  FileSystemSpec spec;
  spec.root = std::move(root_);
  spec.own_descriptors = std::move(own_descriptors_);
  spec.only_file = arguments_.only_file;
  if (!arguments_.hidden.empty()) spec.hidden = ANCHORHOLD_TRY(HiddenNames::create(arguments_.hidden));
  divide_descriptors(spec);
  if (watch_) spec.watch = {std::move(watch_), std::move(events_)};
  std::unique_ptr<KeeperClient> keeper;
  if (keeper_) keeper = std::make_unique<KeeperClient>(std::move(keeper_));
  spec.keeper = keeper.get();
  Notices notices(*reports_);
  auto files = ANCHORHOLD_TRY(FileSystem::create(std::move(spec), notices));
  Dispatcher dispatcher(*files, owners_, notices);

  auto loop = ANCHORHOLD_TRY(vsock::EventLoop::create());
  ReaderDevice device(*loop, dispatcher, pool_threads);
  ANCHORHOLD_CHECK(set_nonblocking(listener_.get()));
  vsock::EventLoop::Watch listening;
  listening = ANCHORHOLD_TRY(loop->watch(listener_.get(), vsock::ready::readable, [&](std::uint32_t) {
    UniqueFd connection(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!connection) return;
    listening = {};
    listener_.reset();
    if (auto served = device.serve(std::move(connection)); !served) loop->stop(std::move(served));
  }));
  // The host has gone: nobody is left to serve for.
  auto host = ANCHORHOLD_TRY(
      loop->watch(reports_->descriptor(), vsock::ready::peer_done, [&](std::uint32_t) { loop->stop({}); }));
  Report ready;
  ready.kind = ReportKind::ready;
  reports_->send(ready);
  return loop->run();
}

}  // namespace anchorhold::mounts
