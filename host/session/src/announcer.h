// Tells the guest's agent what programs of the host change in the granted folders, one call after another, as
// many changes in each as came meanwhile.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include "mounts/host_change.h"
#include "session/guest_client.h"

namespace anchorhold::session {

// Safe from any thread.
class Announcer {
 public:
  Announcer();
  ~Announcer();

  // From now on; none: changes are dropped, there is nobody who could have seen anything else. Waits for the
  // call that is under way. The client outlives its service.
  void serve(GuestClient* client);
  // Of the share at /mnt/<name>. Never waits. False: this guest cannot be told (any more).
  bool add(const std::string& name, mounts::HostChange change);

 private:
  struct Pending {
    std::string name;
    ShareChange change;
  };
  void run(std::stop_token stop);
  // As many from the front as are of one share.
  std::vector<ShareChange> take(std::string& name);

  std::mutex mutex_;
  std::condition_variable_any changed_;
  GuestClient* client_ = nullptr;
  bool calling_ = false;
  bool failed_ = false;
  std::deque<Pending> pending_;
  std::jthread thread_;
};

}  // namespace anchorhold::session
