#include "mounts/share.h"

#include <cerrno>
#include <fmt/format.h>
#include <mutex>
#include <sys/socket.h>
#include <unistd.h>

#include "base/files.h"
#include "base/log.h"
#include "base/paths.h"
#include "folder_watch.h"
#include "listen.h"
#include "mounts/programs.h"
#include "mounts/review.h"
#include "watched_process.h"

namespace anchorhold::mounts {
namespace {

// One for the host's tools, and one for the reader of each guest the session may have, one after another.
constexpr int keeper_clients = 16;

void add_common_arguments(std::vector<std::string>& argv, const std::string& name, Mode mode,
                          const std::optional<std::string>& only_file, const ShareSpec& spec) {
  argv.insert(argv.end(), {"--name", name, "--mode", std::string(to_string(mode))});
  if (only_file) argv.insert(argv.end(), {"--only-file", *only_file});
  for (const auto& pattern : spec.hidden) argv.insert(argv.end(), {"--hidden", pattern});
  if (spec.allow_weak) argv.push_back("--allow-weak");
}

void add_limits(std::vector<std::string>& argv, const ShareLimits& limits) {
  auto add = [&](const char* option, std::uint64_t value) {
    if (value != 0) argv.insert(argv.end(), {option, std::to_string(value)});
  };
  if (limits.no_bulk_guard)
    argv.insert(argv.end(), {"--bulk-changes", "0"});
  else
    add("--bulk-changes", limits.bulk_changes);
  add("--answer-seconds", static_cast<std::uint64_t>(limits.answer.count()));
  add("--max-bytes", limits.bytes_written);
  add("--max-files", limits.files);
  if (limits.refuse_escaping_symlinks) argv.push_back("--refuse-escaping-symlinks");
}

}  // namespace

std::string_view to_string(ShareProcess process) {
  switch (process) {
    case ShareProcess::reader:
      return "reader";
    case ShareProcess::keeper:
      return "keeper";
    case ShareProcess::spares:
      return "spare devices";
  }
  return "process";
}

struct Share::State {
  ShareSpec spec;
  std::string name;
  Mode mode = Mode::ro;
  UniqueFd root;
  std::optional<std::string> only_file;
  HiddenNames hidden = HiddenNames::standard();

  // What is below is destroyed first: the clients of the keeper, the reader, then the keeper itself.
  std::unique_ptr<WatchedProcess> keeper;
  std::vector<UniqueFd> spare_clients;
  std::shared_ptr<KeeperClient> tools;
  std::filesystem::path socket_path;
  std::mutex watch_mutex;
  std::unique_ptr<FolderWatch> watch;  // guarded by the mutex
  std::unique_ptr<WatchedProcess> reader;

  Status start_keeper();
};

Status Share::State::start_keeper() {
  const auto ledger = keepers_folder(spec.ledger_folder);
  ANCHORHOLD_CHECK(make_directories(ledger, 0700));
  auto program = ANCHORHOLD_TRY(own_program("anchorhold-keeper"));
  SpawnSpec spawn;
  spawn.argv = {program.string(), "--ledger", std::filesystem::absolute(ledger).string(), "--clients",
                std::to_string(keeper_clients)};
  add_common_arguments(spawn.argv, name, mode, only_file, spec);
  if (spec.ledger_quota != 0)
    spawn.argv.insert(spawn.argv.end(), {"--quota", std::to_string(spec.ledger_quota)});
  add_limits(spawn.argv, spec.limits);
  spawn.descriptors = {{2, 2}, {root.get(), keeper_fd::root}};
  std::vector<UniqueFd> theirs;
  for (int i = 0; i < keeper_clients; ++i) {
    auto [ours, its] = ANCHORHOLD_TRY(socket_pair(SOCK_SEQPACKET));
    spawn.descriptors.push_back({its.get(), keeper_fd::first_client + i});
    spare_clients.push_back(std::move(ours));
    theirs.push_back(std::move(its));
  }
  keeper = ANCHORHOLD_TRY(WatchedProcess::start(
      {ShareProcess::keeper, name, std::move(spawn), keeper_fd::reports, spec.on_notice}));
  tools = std::make_shared<KeeperClient>(std::move(spare_clients.back()));
  spare_clients.pop_back();
  return {};
}

Share::Share(std::unique_ptr<State> state) : state_(std::move(state)) {}

Share::~Share() {
  end_guest();
  state_->spare_clients.clear();
  // Whoever still holds the tools' connection finds it broken.
  if (state_->tools) shutdown(state_->tools->descriptor(), SHUT_RDWR);
}

Result<std::unique_ptr<Share>> Share::start(const Grant& grant, ShareSpec spec) {
  auto state = std::make_unique<State>();
  state->spec = std::move(spec);
  state->name = grant.name;
  state->mode = grant.mode;
  state->only_file = grant.only_file;
  state->root = ANCHORHOLD_TRY(duplicate(grant.root.get()));
  if (!state->spec.hidden.empty()) state->hidden = ANCHORHOLD_TRY(HiddenNames::create(state->spec.hidden));
  if (grant.mode != Mode::ro) {
    ANCHORHOLD_CHECK(make_directories(state->spec.ledger_folder, 0700));
    ANCHORHOLD_CHECK(write_ledger_place(state->spec.ledger_folder, grant, state->spec.ledger_quota));
    ANCHORHOLD_CHECK(state->start_keeper());
  }
  return std::unique_ptr<Share>(new Share(std::move(state)));
}

Status Share::serve_guest(const std::filesystem::path& socket_path) {
  end_guest();
  State& state = *state_;
  auto program = ANCHORHOLD_TRY(own_program("anchorhold-fsd"));
  UniqueFd listener = ANCHORHOLD_TRY(listen_at(socket_path));
  state.socket_path = socket_path;
  SpawnSpec spawn;
  spawn.argv = {program.string()};
  add_common_arguments(spawn.argv, state.name, state.mode, state.only_file, state.spec);
  spawn.descriptors = {{2, 2}, {listener.get(), reader_fd::listener}, {state.root.get(), reader_fd::root}};
  FolderWatch::Ends watching;
  if (state.spec.on_host_change) {
    // It helps speed, not safety: a computer that cannot watch any more folders serves them all the same.
    if (auto watch = FolderWatch::start(state.root.get(), state.spec.on_host_change, watching)) {
      std::lock_guard lock(state.watch_mutex);
      state.watch = std::move(*watch);
      spawn.argv.push_back("--watch");
      spawn.descriptors.push_back({watching.socket.get(), reader_fd::watch});
      spawn.descriptors.push_back({watching.events.get(), reader_fd::events});
    } else {
      log_warning(watch.error().message);
    }
  }
  UniqueFd client;
  if (state.keeper) {
    if (state.spare_clients.empty())
      return fail(ErrorCode::resource_exhausted, fmt::format("{} was served to too many guests", state.name),
                  "start a new session");
    client = std::move(state.spare_clients.back());
    state.spare_clients.pop_back();
    spawn.descriptors.push_back({client.get(), reader_fd::keeper});
  }
  auto started = WatchedProcess::start(
      {ShareProcess::reader, state.name, std::move(spawn), reader_fd::reports, state.spec.on_notice});
  if (!started) {
    end_guest();
    return fail(std::move(started).error());
  }
  state.reader = std::move(*started);
  return {};
}

void Share::end_guest() {
  state_->reader.reset();
  std::unique_ptr<FolderWatch> watch;
  {
    std::lock_guard lock(state_->watch_mutex);
    watch = std::move(state_->watch);
  }
  watch.reset();
  if (!state_->socket_path.empty()) unlink(state_->socket_path.c_str());
  state_->socket_path.clear();
}

void Share::settle(std::function<void()> done) {
  std::unique_lock lock(state_->watch_mutex);
  if (state_->watch) return state_->watch->settle(std::move(done));
  lock.unlock();
  done();
}

Result<AccessibleGrant> Share::accessible() const {
  AccessibleGrant grant;
  grant.name = state_->name;
  grant.root = ANCHORHOLD_TRY(duplicate(state_->root.get()));
  grant.only_file = state_->only_file;
  grant.mode = state_->mode;
  grant.hidden = state_->hidden;
  grant.keeper = state_->tools;
  return grant;
}

void Share::answer(std::uint64_t question, Verdict verdict) {
  if (state_->keeper) state_->keeper->answer({question, verdict});
}

pid_t Share::pid(ShareProcess process) const {
  const auto& watched = process == ShareProcess::reader ? state_->reader : state_->keeper;
  return watched ? watched->pid() : -1;
}

}  // namespace anchorhold::mounts
