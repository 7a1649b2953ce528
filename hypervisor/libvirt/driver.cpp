#include "libvirt/driver.h"

#include <fmt/format.h>
#include <libvirt/libvirt-qemu.h>
#include <libvirt/virterror.h>
#include <nlohmann/json.hpp>

#include "base/paths.h"
#include "libvirt/event_loop.h"

namespace anchorhold::hypervisor {
namespace {

ErrorCode code_of(int libvirt_code) {
  switch (libvirt_code) {
    case VIR_ERR_NO_DOMAIN:
      return ErrorCode::not_found;
    case VIR_ERR_OPERATION_TIMEOUT:
      return ErrorCode::deadline_exceeded;
    case VIR_ERR_ACCESS_DENIED:
    case VIR_ERR_AUTH_FAILED:
      return ErrorCode::permission_denied;
    case VIR_ERR_NO_CONNECT:
    case VIR_ERR_NO_SUPPORT:
      return ErrorCode::failed_precondition;
    case VIR_ERR_CONFIG_UNSUPPORTED:
      return ErrorCode::unsupported;
    default:
      return ErrorCode::internal;
  }
}

std::string version_text(unsigned long version) {
  return fmt::format("{}.{}.{}", version / 1'000'000, version / 1000 % 1000, version % 1000);
}

// {"guest": true, "reason": "guest-reset"}: qapi/run-state.json of QEMU, SHUTDOWN.
std::string shutdown_reason(const char* details) {
  auto parsed = nlohmann::json::parse(details ? details : "", nullptr, false);
  if (!parsed.is_object()) return "";
  auto reason = parsed.find("reason");
  return reason != parsed.end() && reason->is_string() ? reason->get<std::string>() : "";
}

}  // namespace

Error last_libvirt_error(std::string_view doing) {
  virErrorPtr error = virGetLastError();
  if (!error || !error->message)
    return {ErrorCode::internal, fmt::format("{}: libvirt failed without a word", doing), ""};
  return {code_of(error->code), fmt::format("{}: {}", doing, error->message), ""};
}

Result<std::shared_ptr<Driver>> Driver::open(const LibvirtOptions& options) {
  ANCHORHOLD_CHECK(start_event_loop());
  std::shared_ptr<Driver> driver(new Driver);
  if (!options.uri.empty()) {
    ANCHORHOLD_CHECK(driver->connect(options));
    return driver;
  }
  // libvirt opens one embedded driver in a process and keeps it to the end, also when every connection is
  // closed: so does this. The reaper removes the folder when the process is gone.
  static std::mutex mutex;
  static auto& embedded = *new std::shared_ptr<Driver>;
  std::lock_guard lock(mutex);
  if (!embedded) {
    ANCHORHOLD_CHECK(driver->connect(options));
    embedded = std::move(driver);
  }
  return embedded;
}

Status Driver::connect(const LibvirtOptions& options) {
  auto runtime =
      options.runtime_directory.empty() ? ANCHORHOLD_TRY(runtime_directory()) : options.runtime_directory;
  std::string uri = options.uri;
  if (uri.empty()) {
    auto cache =
        options.cache_directory.empty() ? ANCHORHOLD_TRY(cache_directory()) : options.cache_directory;
    folder_ = ANCHORHOLD_TRY(EmbedFolder::create(runtime, cache));
    uri = embed_uri(folder_->path());
  }
  socket_folder_ = folder_ ? folder_->path() / "c" : runtime;
  connection_ = virConnectOpen(uri.c_str());
  if (!connection_) {
    auto error = last_libvirt_error(fmt::format("connecting to {}", uri));
    if (error.hint.empty() && !folder_)
      error.hint =
          "start the libvirt daemon of that address, or leave --hypervisor out: the embedded one needs none";
    return fail(std::move(error));
  }
  unsigned long library = 0, qemu = 0;
  virGetVersion(&library, nullptr, nullptr);
  virConnectGetVersion(connection_, &qemu);
  description_ = fmt::format("libvirt {}, QEMU {}", version_text(library), version_text(qemu));
  return register_events();
}

void Driver::on_close(virConnectPtr, int, void* self) {
  static_cast<Driver*>(self)->publish_lost_connection();
}

Status Driver::register_events() {
  auto on_lifecycle = [](virConnectPtr, virDomainPtr domain, int event, int, void* self) {
    if (event == VIR_DOMAIN_EVENT_STOPPED)
      static_cast<Driver*>(self)->publish(domain, DomainEvent::stopped, "");
    return 0;
  };
  lifecycle_callback_ = virConnectDomainEventRegisterAny(
      connection_, nullptr, VIR_DOMAIN_EVENT_ID_LIFECYCLE,
      VIR_DOMAIN_EVENT_CALLBACK(static_cast<virConnectDomainEventCallback>(on_lifecycle)), this, nullptr);
  if (lifecycle_callback_ < 0) return fail(last_libvirt_error("asking for the machines' events"));
  auto on_shutdown = [](virConnectPtr, virDomainPtr domain, const char*, long long, unsigned,
                        const char* details, void* self) {
    static_cast<Driver*>(self)->publish(domain, DomainEvent::shutdown_seen, shutdown_reason(details));
  };
  // Without this (a libvirt that does not offer it) only the reason of a shutdown stays unknown.
  monitor_callback_ = virConnectDomainQemuMonitorEventRegister(connection_, nullptr, "SHUTDOWN", on_shutdown,
                                                               this, nullptr, 0);
  if (!embedded()) {
    virConnectSetKeepAlive(connection_, 5, 3);
    virConnectRegisterCloseCallback(connection_, on_close, this, nullptr);
  }
  return {};
}

Driver::~Driver() {
  if (!connection_) return;
  if (!embedded()) virConnectUnregisterCloseCallback(connection_, on_close);
  if (monitor_callback_ >= 0) virConnectDomainQemuMonitorEventDeregister(connection_, monitor_callback_);
  if (lifecycle_callback_ >= 0) virConnectDomainEventDeregisterAny(connection_, lifecycle_callback_);
  virConnectClose(connection_);
}

std::filesystem::path Driver::qemu_log(const std::string& domain) const {
  return folder_ ? folder_->path() / "log" / "qemu" / (domain + ".log") : std::filesystem::path();
}

std::filesystem::path Driver::pid_file(const std::string& domain) const {
  return folder_ ? folder_->path() / "run" / "qemu" / (domain + ".pid") : std::filesystem::path();
}

std::filesystem::path Driver::console_socket(const std::string& machine) const {
  return socket_folder_ / machine;
}

void Driver::subscribe(const std::string& domain, OnEvent on_event) {
  std::lock_guard lock(mutex_);
  subscribers_[domain] = std::move(on_event);
}

void Driver::unsubscribe(const std::string& domain) {
  std::lock_guard lock(mutex_);
  subscribers_.erase(domain);
}

void Driver::publish(virDomainPtr domain, DomainEvent event, const std::string& reason) {
  OnEvent on_event;
  {
    std::lock_guard lock(mutex_);
    auto found = subscribers_.find(virDomainGetName(domain));
    if (found == subscribers_.end()) return;
    on_event = found->second;
  }
  on_event(event, reason);
}

void Driver::publish_lost_connection() {
  std::map<std::string, OnEvent> all;
  {
    std::lock_guard lock(mutex_);
    all = subscribers_;
  }
  for (const auto& [name, on_event] : all)
    on_event(DomainEvent::stopped, "the connection to libvirt was lost");
}

}  // namespace anchorhold::hypervisor
