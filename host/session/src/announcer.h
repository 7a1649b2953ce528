// Tells the guest's agent what programs of the host change in the granted folders, one call after another, as
// many changes in each as came meanwhile.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
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
  // Until the guest knows all that was added before, or is not to be told any more. False: not until the
  // limit, or it got no further for so long.
  bool wait_until_told(std::chrono::milliseconds patience, std::chrono::steady_clock::time_point limit);

 private:
  struct Pending {
    std::uint64_t number;
    std::string name;
    ShareChange change;
  };
  void drop_all();
  void run(std::stop_token stop);
  // Instead of all that is pending of a share.
  void lose(const std::string& name);
  // As many from the front as are of one share; the number of the last.
  std::vector<ShareChange> take(std::string& name, std::uint64_t& last);

  std::mutex mutex_;
  std::condition_variable_any changed_;
  GuestClient* client_ = nullptr;
  bool calling_ = false;
  bool failed_ = false;
  std::deque<Pending> pending_;
  std::uint64_t added_ = 0, told_ = 0;  // the latest numbers
  std::jthread thread_;
};

}  // namespace anchorhold::session
