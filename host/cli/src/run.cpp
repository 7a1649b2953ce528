// anchorhold run: one command in a fresh guest, its streams and its exit status passed through.
#include <atomic>
#include <condition_variable>
#include <fmt/format.h>
#include <mutex>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>

#include "commands.h"
#include "host.h"
#include "session/session_store.h"
#include "session_door.h"
#include "terminal.h"

namespace anchorhold::cli {
namespace {

using session::GuestExec;
using session::OutputStream;

// The guest ends a command at its time limit; the host ends the guest if that did not happen this much later.
constexpr std::chrono::milliseconds host_time_allowance = std::chrono::seconds(10);
// And the hypervisor ends the machine, whatever host and guest think, this much later still.
constexpr std::chrono::milliseconds machine_time_allowance = std::chrono::seconds(30);

std::string title_of(const std::vector<std::string>& argv) {
  std::string title;
  for (const auto& word : argv) {
    title += (title.empty() ? "" : " ") + word;
    if (title.size() > 400) break;
  }
  return one_line(title, 200);
}

session::ExecSpec exec_spec(const RunCommand& command) {
  session::ExecSpec spec;
  spec.argv = command.argv;
  spec.environment = {command.environment.begin(), command.environment.end()};
  spec.working_directory = command.working_directory;
  spec.user = command.user;
  spec.input = session::ExecSpec::Input::pipe;
  if (command.tty) spec.terminal = terminal_size();
  if (command.timeout) spec.time_limit = *command.timeout;
  return spec;
}

// Feeds our standard input to the command on a thread of its own, until its end or the end of this object.
class InputPump {
 public:
  explicit InputPump(GuestExec& exec)
      : exec_(exec), wake_(eventfd(0, EFD_CLOEXEC)), thread_([this] { pump(); }) {}
  ~InputPump() {
    stop_.request_stop();
    std::uint64_t one = 1;
    (void)!::write(wake_.get(), &one, sizeof one);
    thread_.join();
  }

  // Nothing is read while somebody else reads the terminal.
  void pause(bool paused) {
    std::lock_guard lock(mutex_);
    paused_ = paused;
    changed_.notify_all();
  }

 private:
  // Reads what is there; nothing when it is not ours to read.
  ssize_t read_input(std::span<std::byte> buffer) {
    std::unique_lock lock(mutex_);
    if (changed_.wait(lock, stop_.get_token(), [&] { return !paused_; }), paused_) return -1;
    pollfd waited{STDIN_FILENO, POLLIN, 0};
    errno = EAGAIN;
    if (poll(&waited, 1, 0) <= 0) return -1;
    return read(STDIN_FILENO, buffer.data(), buffer.size());
  }

  void pump() {
    std::vector<std::byte> buffer(session::max_chunk_bytes);
    for (;;) {
      pollfd waited[2] = {{STDIN_FILENO, POLLIN, 0}, {wake_.get(), POLLIN, 0}};
      if (poll(waited, 2, -1) < 0) continue;
      if (waited[1].revents != 0) return;
      ssize_t got = read_input(buffer);
      if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (got <= 0) {
        (void)exec_.close_input();
        return;
      }
      if (!exec_.write_input(std::span(buffer).first(static_cast<std::size_t>(got)), stop_.get_token()))
        return;
    }
  }

  GuestExec& exec_;
  UniqueFd wake_;
  std::stop_source stop_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  bool paused_ = false;
  std::thread thread_;
};

// Copies one output of the command to ours, until its end. An error: ours can no longer be written.
Status copy_output(GuestExec& exec, OutputStream stream, int fd) {
  for (;;) {
    auto piece = exec.read(stream);
    if (!piece || !*piece) return {};
    const std::string bytes = std::move(**piece);
    ANCHORHOLD_CHECK(write_all(fd, std::as_bytes(std::span(bytes))));
  }
}

// One `run`: the session and the command in it, and what signals do to them.
class Run {
 public:
  Run(const RunCommand& command, Host& host) : command_(command), host_(host) {}

  Result<int> go(session::Session& session);
  // On the thread of the signals.
  void signalled(int number);

 private:
  Result<int> command_in(session::Session& session, session::Guest& guest);
  int exit_code(const Result<session::ExecStatus>& status);

  const RunCommand& command_;
  Host& host_;
  std::stop_source stop_;
  std::atomic<int> ended_by_ = 0;
  std::atomic<bool> timed_out_ = false;
  std::mutex mutex_;
  GuestExec* exec_ = nullptr;  // while it runs
  int last_signal_ = 0;
  std::optional<Error> output_fault_;  // why one of our outputs cannot be written
};

void Run::signalled(int number) {
  std::lock_guard lock(mutex_);
  if (number == SIGWINCH) {
    if (exec_ && command_.tty) (void)exec_->resize(terminal_size());
    return;
  }
  // To the command, which may handle it. The same signal again, or one before the command runs, ends
  // everything.
  if (exec_ && last_signal_ != number) {
    last_signal_ = number;
    (void)exec_->signal(number);
    return;
  }
  ended_by_ = number;
  stop_.request_stop();
}

Result<int> Run::go(session::Session& session) {
  auto guest = session.guest(stop_.get_token());
  host_.console().progress("");
  if (!guest) {
    if (int number = ended_by_) return 128 + number;
    return fail(std::move(guest).error());
  }
  for (const auto& [stage, time] : (*guest)->stages())
    host_.console().detail(
        fmt::format("{}: {} ms", session::to_string(stage), time / std::chrono::milliseconds(1)));
  return command_in(session, **guest);
}

Result<int> Run::command_in(session::Session& session, session::Guest& guest) {
  auto exec = ANCHORHOLD_TRY(session.start_exec(guest, exec_spec(command_)));
  {
    std::lock_guard lock(mutex_);
    exec_ = exec.get();
  }
  Result<session::ExecStatus> status = fail(ErrorCode::internal, "the command was not waited for");
  SerialExecutor timer("time limit");
  if (command_.timeout) {
    timer.post_after(*command_.timeout + host_time_allowance, [&] {
      timed_out_ = true;
      session.close("the command's time limit");
    });
  }
  {
    std::optional<RawTerminal> raw;
    if (command_.tty) raw.emplace();
    InputPump input(*exec);
    host_.asker().while_asking([&](bool paused) { input.pause(paused); });
    // A command that nobody hears any more ends, as it would on this computer.
    auto copy = [&](OutputStream stream, int fd) {
      auto copied = copy_output(*exec, stream, fd);
      if (copied) return;
      {
        std::lock_guard lock(mutex_);
        if (!output_fault_) output_fault_ = std::move(copied).error();
      }
      (void)exec->kill();
    };
    std::thread errors(copy, OutputStream::standard_error, STDERR_FILENO);
    std::thread output(copy, OutputStream::standard_output, STDOUT_FILENO);
    status = exec->wait(stop_.get_token());
    errors.join();
    output.join();
    host_.asker().while_asking({});
  }
  {
    std::lock_guard lock(mutex_);
    exec_ = nullptr;
  }
  if (guest.reached_wall_time()) timed_out_ = true;
  session.exec_ended(guest, exec->id(), status);
  if (!status && !timed_out_ && ended_by_ == 0)
    return fail(with_context(std::move(status).error(), "the command was cut off"));
  return exit_code(status);
}

int Run::exit_code(const Result<session::ExecStatus>& status) {
  if (output_fault_) return host_.console().unsaid(*output_fault_);
  if (int number = ended_by_) return 128 + number;
  if (!status) return timed_out_ ? exit_status::time_limit : exit_status::own_failure;
  using Cause = session::ExecStatus::Cause;
  if (status->cause == Cause::not_started)
    host_.console().error({ErrorCode::not_found, fmt::format("{}: {}", command_.argv.front(), status->detail),
                           "check the command's name and --cwd: they are the guest's, not this computer's"});
  else if (status->cause != Cause::exited && status->cause != Cause::signalled)
    host_.console().note("note: the command was ended: " + to_string(*status));
  return session::shell_exit_code(*status);
}

// "exited with 1" and the like, for the list of sessions.
std::string describe_end(const Result<int>& result) {
  if (!result) return one_line(result.error().message, 300);
  return fmt::format("exit status {}", *result);
}

}  // namespace

Result<int> run_command(const RunCommand& command, Console& console, Signals& signals) {
  auto host = ANCHORHOLD_TRY(Host::open(console));
  if (command.guest.wait_for_answers) host->asker().wait_for_answers();
  auto store = ANCHORHOLD_TRY(session::SessionStore::open_default());
  session::SessionSpec spec;
  spec.id = SessionId(new_short_id());
  spec.grants = ANCHORHOLD_TRY(Host::resolve_grants(command.guest.grants));
  spec.guest = Host::guest_spec(command.guest);
  spec.limits = Host::share_limits(command.guest);
  spec.egress = ANCHORHOLD_TRY(host->egress_spec(command.guest));
  // Whatever else fails, the machine does not outlive the command's time by much.
  if (command.timeout)
    spec.guest.wall_time = spec.guest.boot_limit + *command.timeout + machine_time_allowance;
  session::SessionRecord record;
  record.id = spec.id;
  record.kind = session::SessionKind::run;
  record.title = title_of(command.argv);
  record.image = command.guest.image;
  record.grants = describe(spec.grants);
  record.network = command.guest.network;
  record.credentials = command.guest.credentials;
  ANCHORHOLD_CHECK(store.begin(record, host->clock()));
  console.detail("session " + record.id.value());

  auto finish = [&](Result<int> result) {
    if (auto status = store.end(record.id, describe_end(result), host->clock()); !status)
      console.error(status.error());
    return result;
  };
  auto parts = host->session_parts(command.guest);
  parts.answered = [&](const auto& answers) { keep_answers(record.id, answers, console, host->clock()); };
  auto session = session::Session::open(std::move(spec), std::move(parts));
  if (!session) return finish(fail(std::move(session).error()));
  auto door = open_door(**session, {}, console, host->clock());
  if (!door) return finish(fail(std::move(door).error()));
  Run run(command, *host);
  signals.set_handler([&run](int number) { run.signalled(number); });
  auto result = run.go(**session);
  (*session)->close("the command ended");
  door->reset();
  signals.set_handler({});
  return finish(std::move(result));
}

}  // namespace anchorhold::cli
