// What is known about whether a guest lives, gathered from everybody who may notice its end. Its only job is
// to find the first true cause: when the machine dies, the vsock device, the file servers and the gRPC stream
// all end too, in any order.
#pragma once

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>

#include "base/error.h"
#include "base/executor.h"
#include "base/fd.h"
#include "hypervisor/hypervisor.h"

namespace anchorhold::session {

// Safe from any thread.
class GuestLife {
 public:
  // The executor may end before it.
  GuestLife(std::filesystem::path console, Executor& executor)
      : console_(std::move(console)), executor_(executor) {}

  // The agent dialled. Only the first stream counts; others are closed.
  void stream_arrived(UniqueFd stream);
  // A part other than the machine is gone. A code of unavailable means that perhaps the machine closed it:
  // its own end, if it comes soon, tells the cause.
  void part_ended(const std::string& part, const Error& why);
  void machine_ended(const hypervisor::MachineExit& exit);
  // We end it ourselves: what is noticed from now on is no loss.
  void stopping();

  // Called once, on the thread that noticed, when the guest is lost.
  void on_lost(std::function<void(const std::string& cause)> callback);

  // The stream, or why there will be none: lost, cancelled, or deadline_exceeded with the console's end.
  Result<UniqueFd> wait_for_stream(std::chrono::milliseconds limit, std::stop_token stop);

  bool lost() const;
  bool reached_wall_time() const;
  // The cause; when it is not known within the limit, what is known.
  std::string cause(std::chrono::milliseconds limit) const;

 private:
  void lose(std::unique_lock<std::mutex>& lock, std::string cause);

  const std::filesystem::path console_;
  Executor& executor_;
  mutable std::mutex mutex_;
  mutable std::condition_variable_any changed_;
  std::optional<UniqueFd> stream_;
  std::optional<std::string> cause_;
  std::string suspicion_;  // what part ended first, when its cause is still to come
  std::optional<hypervisor::MachineExit> exit_;
  bool stream_seen_ = false;
  bool stopping_ = false;
  std::function<void(const std::string&)> on_lost_;
};

// What the guest printed, for an error message: the beginning of a kernel's oops when there is one, else the
// last lines; empty when there are none.
std::string console_excerpt(const std::filesystem::path& console, std::size_t max_lines = 8);

}  // namespace anchorhold::session
