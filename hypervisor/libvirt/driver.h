// One connection to libvirt with its event loop, the folder of the embedded driver, and the routing of events
// to machines.
#pragma once

#include <functional>
#include <libvirt/libvirt.h>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/error.h"
#include "hypervisor/libvirt.h"
#include "libvirt/embed_folder.h"

namespace anchorhold::hypervisor {

struct DomainRelease {
  void operator()(virDomainPtr domain) const { virDomainFree(domain); }
};
using DomainHandle = std::unique_ptr<virDomain, DomainRelease>;

// The calling thread's last libvirt error.
Error last_libvirt_error(std::string_view doing);

enum class DomainEvent {
  stopped,        // QEMU is gone; always the last
  shutdown_seen,  // QEMU says why it is about to end: the reason is in the text (QMP's ShutdownCause)
};

// Shared by the machines of a process. Every member may be called from any thread, and may block.
class Driver {
 public:
  using OnEvent = std::function<void(DomainEvent, const std::string& reason)>;

  static Result<std::shared_ptr<Driver>> open(const LibvirtOptions& options);
  ~Driver();

  virConnectPtr connection() const { return connection_; }
  bool embedded() const { return folder_ != nullptr; }
  // The embedded driver's; empty for another.
  std::filesystem::path folder() const { return folder_ ? folder_->path() : std::filesystem::path(); }
  std::filesystem::path console_socket(const std::string& machine) const;
  // What QEMU itself said; empty when that is another process's affair.
  std::filesystem::path qemu_log(const std::string& domain) const;
  // Where the embedded driver notes QEMU's process; empty for another driver.
  std::filesystem::path pid_file(const std::string& domain) const;
  // Called on the event loop's thread, which must not be held up.
  void subscribe(const std::string& domain, OnEvent on_event);
  void unsubscribe(const std::string& domain);
  const std::string& description() const { return description_; }

 private:
  Driver() = default;
  Status connect(const LibvirtOptions& options);
  Status register_events();
  void publish(virDomainPtr domain, DomainEvent event, const std::string& reason);
  void publish_lost_connection();
  static void on_close(virConnectPtr, int, void* self);

  std::unique_ptr<EmbedFolder> folder_;
  std::filesystem::path socket_folder_;
  virConnectPtr connection_ = nullptr;
  int lifecycle_callback_ = -1;
  int monitor_callback_ = -1;
  std::string description_;
  std::mutex mutex_;
  std::map<std::string, OnEvent> subscribers_;
};

}  // namespace anchorhold::hypervisor
