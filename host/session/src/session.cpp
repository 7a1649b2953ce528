#include "session/session.h"

#include <condition_variable>
#include <fmt/format.h>
#include <future>
#include <mutex>

#include "base/executor.h"
#include "base/log.h"
#include "base/paths.h"
#include "commands.h"
#include "share_set.h"
#include "way_out.h"

namespace anchorhold::session {
namespace {

events::Attributes context_of(const SessionSpec& spec) {
  events::Attributes context{{std::string(events::key::session_id), spec.id.value()}};
  if (!spec.task.empty()) context.emplace(events::key::task_id, spec.task.value());
  return context;
}

}  // namespace

struct Session::State {
  State(SessionSpec session_spec, SessionParts session_parts)
      : spec(std::move(session_spec)),
        parts(std::move(session_parts)),
        events(parts.events, context_of(spec)),
        questions(
            std::make_shared<QuestionDesk>(spec.id, parts.asker, events, [this] { return running.text(); })) {
    for (auto& grant : spec.grants) grants.push_back(std::make_shared<mounts::Grant>(std::move(grant)));
    spec.grants.clear();
  }

  void begin_start();      // with the mutex held
  void start_on_worker();  // on the worker
  Result<std::unique_ptr<Guest>> make_guest();
  Status start_way_out();
  void report(Stage stage);
  void retire(std::shared_ptr<Guest> guest, std::string_view reason, std::chrono::milliseconds grace);
  void add_variables(ExecSpec& exec);
  Status record(const events::EventName& name, const mounts::Grant& grant, std::string_view cause = {});
  Result<std::shared_ptr<const mounts::Grant>> add_grant(const std::filesystem::path& path,
                                                         mounts::Mode mode);

  SessionSpec spec;  // without the grants
  SessionParts parts;
  events::ContextSink events;

  mutable std::mutex mutex;
  std::condition_variable_any changed;
  bool starting = false;
  bool closed = false;
  std::uint64_t attempts = 0;       // starts that have come to their end
  std::optional<Error> last_error;  // of the last attempt
  std::shared_ptr<Guest> guest;
  std::stop_source stop_starting;
  std::vector<std::shared_ptr<const mounts::Grant>> grants;  // added to by the worker only

  RunningCommands running;
  const std::shared_ptr<QuestionDesk> questions;
  std::unique_ptr<ShareSet> shares;
  // Made by the worker, with the mutex, and there until the end; none without EgressSpec.
  std::unique_ptr<WayOut> way_out;
  std::unique_ptr<hypervisor::Hypervisor> hypervisor;  // the worker's, and so is the next
  bool announced = false;
  // Guests are started and ended here: it lives as long as they do, and so do the processes it spawned for
  // them. Last, so that it is gone before anything it uses.
  std::unique_ptr<SerialExecutor> worker = std::make_unique<SerialExecutor>("session");
};

Result<std::unique_ptr<Session>> Session::open(SessionSpec spec, SessionParts parts) {
  std::unique_ptr<Session> session(new Session(std::make_unique<State>(std::move(spec), std::move(parts))));
  for (const auto& grant : session->grants())
    ANCHORHOLD_CHECK(session->state_->record(events::mount_grant, *grant));
  auto ledgers = ANCHORHOLD_TRY(state_directory()) / "ledgers" / session->id().value();
  session->state_->shares =
      ANCHORHOLD_TRY(ShareSet::start(session->grants(), ledgers, session->state_->spec.limits,
                                     session->state_->questions, session->events()));
  return session;
}

Session::Session(std::unique_ptr<State> state) : state_(std::move(state)) {}
Session::~Session() {
  close();
}

const SessionId& Session::id() const {
  return state_->spec.id;
}
std::vector<std::shared_ptr<const mounts::Grant>> Session::grants() const {
  std::lock_guard lock(state_->mutex);
  return state_->grants;
}
const mounts::FileAccess& Session::files() const {
  return state_->shares->files();
}
Result<egress::DoorPolicy> Session::egress_policy() const {
  std::lock_guard lock(state_->mutex);
  if (state_->way_out) return state_->way_out->policy();
  if (state_->spec.egress) return state_->spec.egress->policy;
  return fail(ErrorCode::failed_precondition, "the session has no way to the network");
}
Result<egress::FetchedPage> Session::fetch(const std::string& url, std::stop_token stop) {
  WayOut* way_out = nullptr;
  {
    std::lock_guard lock(state_->mutex);
    if (state_->closed) return fail(ErrorCode::cancelled, "the session was ended");
    if (!state_->spec.egress)
      return fail(ErrorCode::failed_precondition, "the session has no way to the network");
    way_out = state_->way_out.get();
  }
  if (!way_out) {
    std::promise<Status> made;
    auto started = made.get_future();
    state_->worker->post([&] { made.set_value(state_->start_way_out()); });
    ANCHORHOLD_CHECK(started.get());
    std::lock_guard lock(state_->mutex);
    way_out = state_->way_out.get();
  }
  return way_out->fetch(url, std::move(stop));
}
Questions& Session::questions() {
  return *state_->questions;
}
events::EventSink& Session::events() {
  return state_->events;
}

std::string Session::default_directory() const {
  for (const auto& grant : grants())
    if (!grant->only_file) return grant->guest_path();
  return {};
}

Status Session::State::record(const events::EventName& name, const mounts::Grant& grant,
                              std::string_view cause) {
  events::Event event(name);
  event.set("mount.name", grant.name).set("mount.mode", mounts::to_string(grant.mode));
  event.set_content(events::ContentCategory::paths, "mount.host_path", grant.host_path.string());
  if (!cause.empty()) event.set(events::key::cause, cause);
  return events.record(std::move(event));
}

// On the worker, which outlives the processes that it starts.
Result<std::shared_ptr<const mounts::Grant>> Session::State::add_grant(const std::filesystem::path& path,
                                                                       mounts::Mode mode) {
  std::vector<mounts::Grant> others;
  std::shared_ptr<Guest> served;
  {
    std::lock_guard lock(mutex);
    if (closed) return fail(ErrorCode::cancelled, "the session was ended");
    // What they are judged by; their descriptors stay where they are.
    for (const auto& grant : grants)
      others.push_back({grant->host_path, {}, grant->only_file, grant->mode, grant->name, grant->tag});
    if (guest && !guest->lost()) served = guest;
  }
  auto rules = ANCHORHOLD_TRY(mounts::GrantRules::current());
  auto grant =
      std::make_shared<const mounts::Grant>(ANCHORHOLD_TRY(mounts::resolve_grant(path, mode, others, rules)));
  bool recorded = false;
  auto added = shares->add(grant, served ? &served->client() : nullptr, [&]() -> Status {
    ANCHORHOLD_CHECK(record(events::mount_grant, *grant));
    recorded = true;
    return {};
  });
  if (!added) {
    if (recorded)
      if (auto status = record(events::mount_revoke, *grant, added.error().message); !status)
        log_error(status.error().message);
    return fail(with_context(std::move(added).error(), fmt::format("granting {}", path.string())));
  }
  std::lock_guard lock(mutex);
  grants.push_back(grant);
  return grant;
}

Result<std::shared_ptr<const mounts::Grant>> Session::grant(const std::filesystem::path& path,
                                                            mounts::Mode mode) {
  std::promise<Result<std::shared_ptr<const mounts::Grant>>> answer;
  state_->worker->post([&] { answer.set_value(state_->add_grant(path, mode)); });
  return answer.get_future().get();
}

void Session::State::begin_start() {
  starting = true;
  stop_starting = std::stop_source();
  worker->post([this] { start_on_worker(); });
}

void Session::State::start_on_worker() {
  std::shared_ptr<Guest> old;
  {
    std::lock_guard lock(mutex);
    old = std::exchange(guest, nullptr);
  }
  if (old) retire(std::move(old), "it was lost", std::chrono::milliseconds(0));
  auto made = make_guest();
  std::lock_guard lock(mutex);
  starting = false;
  ++attempts;
  if (made) {
    guest = std::move(*made);
    last_error.reset();
  } else {
    last_error = std::move(made).error();
  }
  changed.notify_all();
}

// The worker's.
Status Session::State::start_way_out() {
  if (!spec.egress || way_out) return {};
  WayOutParts way_out_parts{.questions = questions,
                            .asks = parts.asker != nullptr,
                            .notice = parts.notice,
                            .answered = parts.answered};
  auto started = WayOut::start(*spec.egress, std::move(way_out_parts), events);
  if (!started) return fail(std::move(started).error());
  std::lock_guard lock(mutex);
  way_out = std::move(*started);
  return {};
}

Result<std::unique_ptr<Guest>> Session::State::make_guest() {
  // Checking the image and opening the hypervisor take about as long; a missing image is the commoner fault.
  auto image = std::async(std::launch::async, [this] { return parts.verify_image(spec.guest.image); });
  if (!hypervisor) {
    auto made = parts.make_hypervisor();
    if (!made) {
      auto checked = image.get();
      Error error = checked ? std::move(made).error() : std::move(checked).error();
      events::Event event(events::vm_fail);
      if (auto status = events.record(event.set(events::key::cause, error.message)); !status)
        log_error(status.error().message);
      return fail(std::move(error));
    }
    hypervisor = std::move(*made);
    announced = false;
  }
  if (auto started = start_way_out(); !started) return fail(std::move(started).error());
  GuestParts guest_parts{.hypervisor = *hypervisor,
                         .shares = *shares,
                         .way_out = way_out.get(),
                         .events = events,
                         .clock = parts.clock,
                         .verify_image = [&image](const std::string&) { return image.get(); },
                         .progress = [this](Stage stage) { report(stage); }};
  if (parts.start_vsock) guest_parts.start_vsock = parts.start_vsock;
  return Guest::start(spec.guest, guest_parts, stop_starting.get_token());
}

void Session::State::report(Stage stage) {
  // What the guest will run on is of interest once it is sure that there will be one.
  if (stage != Stage::image && !std::exchange(announced, true) && parts.hypervisor_ready)
    parts.hypervisor_ready(hypervisor->capabilities());
  if (parts.progress) parts.progress(stage);
}

// Ends the guest and lets whoever still uses it find out by its calls failing.
void Session::State::retire(std::shared_ptr<Guest> old, std::string_view reason,
                            std::chrono::milliseconds grace) {
  running.all_ended();
  if (auto status = old->stop(reason, grace); !status)
    log_warning("ending the guest: " + status.error().message);
}

void Session::warm_up() {
  std::lock_guard lock(state_->mutex);
  if (!state_->closed && !state_->starting && !state_->guest) state_->begin_start();
}

Result<std::shared_ptr<Guest>> Session::guest(std::stop_token stop) {
  std::unique_lock lock(state_->mutex);
  auto closed = [] { return fail(ErrorCode::cancelled, "the session was ended"); };
  if (state_->closed) return closed();
  if (state_->guest && !state_->guest->lost()) return state_->guest;
  if (!state_->starting) state_->begin_start();
  const std::uint64_t before = state_->attempts;
  state_->changed.wait(lock, stop, [&] { return state_->attempts != before || state_->closed; });
  if (state_->closed) return closed();
  if (state_->attempts == before) return fail(ErrorCode::cancelled, "stopped while the guest was starting");
  if (state_->last_error) return fail(*state_->last_error);
  return state_->guest;
}

std::shared_ptr<Guest> Session::running_guest() const {
  std::lock_guard lock(state_->mutex);
  return state_->guest;
}

// What the person set stays; settings of Git are numbered, so theirs or ours.
void Session::State::add_variables(ExecSpec& exec) {
  std::map<std::string, std::string> variables;
  {
    std::lock_guard lock(mutex);
    if (way_out) variables = way_out->variables();
  }
  const bool own_git = exec.environment.contains("GIT_CONFIG_COUNT");
  for (auto& [name, value] : variables)
    if (!own_git || !name.starts_with("GIT_CONFIG_")) exec.environment.emplace(name, std::move(value));
}

Result<std::unique_ptr<GuestExec>> Session::start_exec(Guest& guest, ExecSpec spec) {
  if (spec.working_directory.empty()) spec.working_directory = default_directory();
  state_->add_variables(spec);
  state_->shares->settle();
  auto exec = ANCHORHOLD_TRY(guest.client().start(spec));
  // Not recorded, not run: the end of `exec` kills the command.
  ANCHORHOLD_CHECK(events().record(exec_start_event(guest.id(), exec->id(), spec, /*background=*/false)));
  state_->running.began(exec->id(), spec);
  return exec;
}

Result<GuestClient::BackgroundStart> Session::start_background(Guest& guest, BackgroundSpec spec) {
  if (spec.exec.working_directory.empty()) spec.exec.working_directory = default_directory();
  state_->add_variables(spec.exec);
  state_->shares->settle();
  auto started = ANCHORHOLD_TRY(guest.client().start_background(spec));
  if (started.failed) return started;
  if (auto status = events().record(exec_start_event(guest.id(), started.id, spec.exec, /*background=*/true));
      !status) {
    (void)guest.client().kill_background(started.id, /*forget=*/true);
    return fail(std::move(status).error());
  }
  state_->running.began(started.id, spec.exec);
  return started;
}

void Session::exec_ended(const Guest& guest, const ExecId& exec, const Result<ExecStatus>& status) {
  state_->running.ended(exec);
  if (auto recorded = events().record(exec_end_event(guest.id(), exec, status)); !recorded)
    log_error(recorded.error().message);
}

void Session::close(std::string_view reason, std::chrono::milliseconds grace) {
  {
    std::lock_guard lock(state_->mutex);
    if (state_->closed) return;
    state_->closed = true;
    state_->stop_starting.request_stop();
    state_->changed.notify_all();
  }
  state_->questions->close();
  std::mutex mutex;
  std::condition_variable done_changed;
  bool done = false;
  state_->worker->post([&] {
    std::shared_ptr<Guest> guest;
    {
      std::lock_guard lock(state_->mutex);
      guest = std::exchange(state_->guest, nullptr);
    }
    if (guest) state_->retire(std::move(guest), reason, grace);
    state_->hypervisor.reset();
    std::lock_guard lock(mutex);
    done = true;
    done_changed.notify_all();
  });
  std::unique_lock lock(mutex);
  done_changed.wait(lock, [&] { return done; });
  state_->questions->finish();
}

}  // namespace anchorhold::session
