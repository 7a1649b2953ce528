#include "guest_harness.h"

#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <signal.h>
#include <stdexcept>

#include "base/files.h"
#include "base/id.h"
#include "test_image.h"

namespace anchorhold::testing {
namespace {

Result<images::VerifiedImage> verify(const std::string& name) {
  auto store = ANCHORHOLD_TRY(images::ImageStore::open_default());
  return images::VerifiedImage::verify(store, name);
}

std::unique_ptr<RealGuest> shared;

}  // namespace

// The harness is about guests; events have tests of their own.
class RealGuest::Sink : public events::EventSink {
 public:
  Status record(events::Event) override { return {}; }
};

RealGuest::RealGuest() : sink_(std::make_unique<Sink>()) {}

RealGuest::~RealGuest() {
  guest_.reset();
  if (session_) session_->close("the test ended");
}

std::string RealGuest::why_not() {
  return test_image() ? "" : no_test_image;
}

Result<std::unique_ptr<RealGuest>> RealGuest::boot(RealGuestOptions options) {
  std::unique_ptr<RealGuest> guest(new RealGuest);
  session::SessionSpec spec;
  spec.id = SessionId(new_short_id());
  spec.grants = std::move(options.grants);
  spec.guest.image = test_image()->name;
  spec.guest.cpus = options.cpus;
  spec.guest.memory = options.memory;
  session::SessionParts parts{
      .events = *guest->sink_,
      .clock = options.clock != nullptr ? *options.clock : guest->clock_,
      .make_hypervisor = [hypervisor =
                              options.hypervisor] { return hypervisor::make_libvirt_hypervisor(hypervisor); },
      .verify_image = verify,
      .start_vsock =
          [self = guest.get()](vsock::VsockDeviceSpec device, vsock::VsockDeviceCallbacks callbacks) {
            auto started = vsock::VsockDevice::start(std::move(device), std::move(callbacks));
            if (started) self->device_ = started->get();
            return started;
          },
  };
  guest->session_ = ANCHORHOLD_TRY(session::Session::open(std::move(spec), std::move(parts)));
  guest->guest_ = ANCHORHOLD_TRY(guest->session_->guest());
  return guest;
}

Status RealGuest::kill_machine() {
  const std::string& id = guest_->id().value();
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    int pid = std::atoi(entry.path().filename().c_str());
    if (pid <= 1) continue;
    std::string program = std::filesystem::read_symlink(entry.path() / "exe", ignored).filename();
    if (!program.starts_with("qemu-system")) continue;
    FILE* file = std::fopen((entry.path() / "cmdline").c_str(), "r");
    if (file == nullptr) continue;
    std::string words(65536, '\0');
    words.resize(std::fread(words.data(), 1, words.size(), file));
    std::fclose(file);
    if (words.find(id) == std::string::npos) continue;
    if (kill(pid, SIGKILL) != 0) return fail_errno(errno, "killing the machine");
    return {};
  }
  return fail(ErrorCode::not_found, fmt::format("no QEMU runs the machine {}", id));
}

std::vector<pid_t> children_named(pid_t parent, std::string_view name) {
  const std::string wanted = fmt::format("({})", name.substr(0, 15));  // the kernel keeps so much of it
  std::vector<pid_t> found;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    if (pid <= 1) continue;
    const std::string stat = read_file(entry.path() / "stat", 4096).value_or("");  // pid (name) state parent
    const auto behind = stat.rfind(") ");
    if (behind == std::string::npos || std::atoi(stat.c_str() + behind + 4) != parent) continue;
    if (stat.find(wanted) != std::string::npos) found.push_back(pid);
  }
  return found;
}

RealGuest& shared_guest() {
  if (shared && shared->guest().lost()) shared.reset();
  if (!shared) {
    auto booted = RealGuest::boot();
    if (!booted) throw std::runtime_error("no guest: " + booted.error().message);
    shared = std::move(*booted);
  }
  return *shared;
}

void end_shared_guest() {
  shared.reset();
}

}  // namespace anchorhold::testing
