#include "mounts/spares.h"

#include <cerrno>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/paths.h"
#include "listen.h"
#include "mounts/programs.h"
#include "watched_process.h"

namespace anchorhold::mounts {
namespace {

// Longer than the process waits for a reader.
constexpr int answer_limit_ms = 60'000;

}  // namespace

struct Spares::State {
  std::filesystem::path folder;
  std::vector<bool> taken;
  UniqueFd control;
  std::unique_ptr<WatchedProcess> process;
};

Spares::Spares(std::unique_ptr<State> state) : state_(std::move(state)) {}

Spares::~Spares() {
  state_->process.reset();
  for (std::size_t index = 0; index < count(); ++index) unlink(socket_path(index).c_str());
}

Result<std::unique_ptr<Spares>> Spares::start(SparesSpec spec) {
  if (spec.count > spares_fd::most_spares)
    return fail(ErrorCode::invalid_argument, fmt::format("{} spare devices are too many", spec.count));
  auto state = std::make_unique<State>();
  state->folder = spec.folder;
  state->taken.resize(spec.count);
  std::unique_ptr<Spares> spares(new Spares(std::move(state)));
  auto program = ANCHORHOLD_TRY(own_program("anchorhold-spares"));
  auto [ours, theirs] = ANCHORHOLD_TRY(socket_pair(SOCK_SEQPACKET));
  SpawnSpec spawn;
  spawn.argv = {program.string(), "--count", std::to_string(spec.count)};
  if (spec.allow_weak) spawn.argv.push_back("--allow-weak");
  spawn.descriptors = {{2, 2}, {theirs.get(), spares_fd::control}};
  std::vector<UniqueFd> listeners;
  for (std::size_t index = 0; index < spec.count; ++index) {
    listeners.push_back(ANCHORHOLD_TRY(listen_at(spares->socket_path(index))));
    spawn.descriptors.push_back(
        {listeners.back().get(), spares_fd::first_listener + static_cast<int>(index)});
  }
  spares->state_->process = ANCHORHOLD_TRY(WatchedProcess::start(
      {ShareProcess::spares, "the guest", std::move(spawn), spares_fd::reports, std::move(spec.on_notice)}));
  spares->state_->control = std::move(ours);
  return spares;
}

std::size_t Spares::count() const {
  return state_->taken.size();
}
std::filesystem::path Spares::socket_path(std::size_t index) const {
  return state_->folder / fmt::format("spare-{}", index);
}
std::string Spares::tag(std::size_t index) {
  return fmt::format("spare.{}", index);
}
pid_t Spares::pid() const {
  return state_->process->pid();
}

std::optional<std::size_t> Spares::free() const {
  for (std::size_t index = 0; index < count(); ++index)
    if (!state_->taken[index]) return index;
  return std::nullopt;
}

Status Spares::take(std::size_t index, const std::filesystem::path& reader_socket) {
  if (index >= count() || state_->taken[index])
    return fail(ErrorCode::failed_precondition, "that spare device is not free");
  auto reader = ANCHORHOLD_TRY(connect_to(reader_socket));
  const auto number = static_cast<std::uint32_t>(index);
  const int descriptor = reader.get();
  const int control = state_->control.get();
  ANCHORHOLD_CHECK(
      send_with_descriptors(control, std::as_bytes(std::span(&number, 1)), std::span(&descriptor, 1)));
  pollfd entry{control, POLLIN, 0};
  if (poll(&entry, 1, answer_limit_ms) <= 0)
    return fail(ErrorCode::deadline_exceeded, "the process of the spare devices does not answer");
  std::string answer(spares_fd::max_answer_bytes, '\0');
  ssize_t size = recv(control, answer.data(), answer.size(), 0);
  if (size < 0) return fail_errno(errno, "the process of the spare devices");
  answer.resize(static_cast<std::size_t>(size));
  // An empty message and a closed socket look alike; a process that is gone has nothing attached.
  if (answer != spares_fd::taken)
    return fail(ErrorCode::unavailable, answer.empty() ? "the process of the spare devices is gone" : answer);
  state_->taken[index] = true;
  return {};
}

}  // namespace anchorhold::mounts
