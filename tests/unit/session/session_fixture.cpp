#include "session_fixture.h"

#include <cstdlib>
#include <signal.h>
#include <sys/socket.h>

#include "images/verified_image.h"

namespace anchorhold::session {

FakeDoor::~FakeDoor() {
  std::lock_guard lock(shared_->mutex);
  shared_->open = false;
  shared_->accept = nullptr;
  shared_->callbacks = {};
}

Status FakeDoor::listen(std::uint32_t, Accept accept) {
  std::lock_guard lock(shared_->mutex);
  shared_->accept = std::move(accept);
  shared_->open = true;
  return {};
}

void FakeDoor::dial(std::uint32_t, std::chrono::milliseconds, Dialed dialed) {
  dialed(fail(ErrorCode::unavailable, "nobody listens"));
}

SessionTest::SessionTest() {
  for (const char* name : {"run", "state"}) std::filesystem::create_directory(folder_.path() / name);
  std::filesystem::permissions(folder_.path() / "run", std::filesystem::perms::owner_all);
  setenv("XDG_RUNTIME_DIR", (folder_.path() / "run").c_str(), 1);
  setenv("XDG_STATE_HOME", (folder_.path() / "state").c_str(), 1);
  store_ = *make_small_image(folder_.path());
  log_ = std::move(*events::EventLog::open({.folder = folder_.path() / "events"}));
  when_running = [this](const hypervisor::MachineSpec&) { connect_agent(); };
}

SessionTest::~SessionTest() {
  kill_agent();
}

std::unique_ptr<Session> SessionTest::open_session(std::vector<mounts::Grant> grants) {
  SessionSpec spec;
  spec.id = SessionId("session-1");
  spec.task = TaskId("task-1");
  spec.grants = std::move(grants);
  spec.guest = guest_spec_;
  spec.guest.image = image_;
  SessionParts parts{
      .events = *log_,
      .clock = clock_,
      .make_hypervisor = [this]() -> Result<std::unique_ptr<hypervisor::Hypervisor>> {
        if (no_hypervisor_) return fail(*no_hypervisor_);
        auto made = std::make_unique<hypervisor::FakeHypervisor>();
        made->on_running([this](const hypervisor::MachineSpec& machine) { when_running(machine); });
        fake_ = made.get();
        return made;
      },
      .verify_image =
          [this](const std::string& name) { return images::VerifiedImage::verify(*store_, name); }};
  parts.start_vsock =
      [this](vsock::VsockDeviceSpec device,
             vsock::VsockDeviceCallbacks callbacks) -> Result<std::unique_ptr<vsock::VsockDevice>> {
    std::lock_guard lock(door_->mutex);
    door_->callbacks = std::move(callbacks);
    return std::make_unique<FakeDoor>(door_, device.socket_path);
  };
  auto session = Session::open(std::move(spec), std::move(parts));
  EXPECT_TRUE(session) << session.error().message;
  return std::move(*session);
}

void SessionTest::connect_agent() {
  auto [ours, theirs] = *socket_pair(SOCK_STREAM);
  SpawnSpec spec;
  spec.argv = {ANCHORHOLD_PROGRAM_DIR "/anchorhold-guest", "--serve-fd", "3"};
  spec.descriptors = {{theirs.get(), 3}, {2, 2}};
  spec.die_with_parent = false;  // the thread that starts it ends before the test
  auto agent = Child::spawn(spec);
  ASSERT_TRUE(agent) << agent.error().message;
  {
    std::lock_guard lock(agents_mutex_);
    agents_.push_back(std::move(*agent));
  }
  std::lock_guard lock(door_->mutex);
  if (door_->accept) door_->accept(std::move(ours));
}

void SessionTest::kill_agent() {
  std::lock_guard lock(agents_mutex_);
  agents_.clear();
}

std::vector<std::string> SessionTest::event_names(const std::string& prefix) {
  std::vector<std::string> names;
  events::Filter filter;
  filter.name_prefix = prefix;
  auto status = events::list(folder_.path() / "events", filter, [&](const events::Record& record) {
    names.push_back(record.name);
    EXPECT_EQ(record.attributes.at("session.id"), events::Value("session-1"));
    EXPECT_EQ(record.attributes.at("task.id"), events::Value("task-1"));
    return true;
  });
  EXPECT_TRUE(status);
  return names;
}

std::string SessionTest::cause_of_last(const std::string& name) {
  std::string cause;
  events::Filter filter;
  filter.name_prefix = name;
  (void)events::list(folder_.path() / "events", filter, [&](const events::Record& record) {
    if (auto found = record.attributes.find("cause"); found != record.attributes.end())
      cause = std::get<std::string>(found->second);
    return true;
  });
  return cause;
}

}  // namespace anchorhold::session
