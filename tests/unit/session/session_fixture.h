// A session without a virtual machine: a fake hypervisor, a door that leads to an agent running as an
// ordinary process of this computer, a real event log, real keepers.
#pragma once

#include <condition_variable>
#include <gtest/gtest.h>
#include <mutex>

#include "base/files.h"
#include "base/process.h"
#include "events/event_log.h"
#include "fakes/hypervisor.h"
#include "session/session.h"
#include "small_image.h"

namespace anchorhold::session {

// What the session believes to be its vsock device.
class FakeDoor : public vsock::VsockDevice {
 public:
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    Accept accept;
    vsock::VsockDeviceCallbacks callbacks;
    bool open = false;
  };
  FakeDoor(std::shared_ptr<Shared> shared, std::filesystem::path path)
      : shared_(std::move(shared)), path_(std::move(path)) {}
  ~FakeDoor() override;

  Status listen(std::uint32_t port, Accept accept) override;
  Status unlisten(std::uint32_t) override { return {}; }
  void dial(std::uint32_t, std::chrono::milliseconds, Dialed dialed) override;
  Result<vsock::VsockStatistics> statistics() override { return vsock::VsockStatistics{}; }
  const std::filesystem::path& socket_path() const override { return path_; }
  int pid() const override { return -1; }
  int pidfd() const override { return -1; }

 private:
  std::shared_ptr<Shared> shared_;
  std::filesystem::path path_;
};

class SessionTest : public testing::Test {
 protected:
  SessionTest();
  ~SessionTest() override;

  std::unique_ptr<Session> open_session(std::vector<mounts::Grant> grants = {});
  // What happens when the machine runs: normally an agent dials; a test may do something else.
  std::function<void(const hypervisor::MachineSpec&)> when_running;
  void connect_agent();
  void kill_agent();

  std::vector<std::string> event_names(const std::string& prefix = "");
  std::string cause_of_last(const std::string& name);

  hypervisor::FakeHypervisor* fake() { return fake_; }
  FakeDoor::Shared& door() { return *door_; }

  TemporaryDirectory folder_ = *TemporaryDirectory::create("ahs");
  std::string image_ = "small";
  std::optional<Error> no_hypervisor_;
  GuestSpec guest_spec_;

 private:
  SystemClock clock_;
  std::optional<images::ImageStore> store_;
  std::unique_ptr<events::EventLog> log_;
  std::shared_ptr<FakeDoor::Shared> door_ = std::make_shared<FakeDoor::Shared>();
  hypervisor::FakeHypervisor* fake_ = nullptr;  // the session's
  std::mutex agents_mutex_;
  std::vector<Child> agents_;
};

}  // namespace anchorhold::session
