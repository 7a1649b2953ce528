// The door as it is: the thread that runs the process (door_process.cpp), what the process asks for
// (door_requests.cpp), and what the session says (door.cpp).
#pragma once

#include <chrono>
#include <deque>
#include <future>
#include <mutex>
#include <optional>
#include <set>
#include <sys/eventfd.h>
#include <thread>

#include "base/process.h"
#include "egress/control.h"
#include "egress/door.h"

namespace anchorhold::egress {

class ProcessDoor final : public Door, public std::enable_shared_from_this<ProcessDoor> {
 public:
  ProcessDoor(DoorSpec spec, DoorHost host, std::string trust)
      : spec_(std::move(spec)), host_(std::move(host)), policy_(spec_.policy), trust_(std::move(trust)) {}

  Status begin();
  void end();

  Status adopt(UniqueFd stream) override;
  Status replace_policy(DoorPolicy policy) override;
  Status replace_trust(const TrustSpec& trust) override;
  Status replace_upstream(ResolverSpec resolver, UpstreamProxies proxies) override;
  DoorPolicy policy() const override;
  std::string ca_certificate_pem() const override;
  pid_t pid() const override;
  DoorStatistics statistics() const override;

 private:
  // Between two starts of a process that keeps dying.
  static constexpr std::chrono::milliseconds first_pause{50}, longest_pause{30'000};

  void run();
  // On the door's thread.
  Status start_process();
  Result<std::string> await_sealed(int control);
  void serve_process();
  bool flush();
  bool take_messages();
  void take(ControlMessage message);
  void take_event(const ControlMessage& message);
  void take_question(const ControlMessage& message);
  void take_secret_request(const ControlMessage& message);
  void process_ended();
  bool pause_before_restart();

  // From any thread.
  void answer(std::uint64_t process, Question question, Answer answer);
  void give(std::uint64_t process, std::uint64_t id, Result<std::string> secret);
  void send(ControlMessage message);  // with the mutex held
  Status send_configuration();        // with the mutex held
  void wake();
  bool record(events::Event event);

  DoorSpec spec_;
  DoorHost host_;
  UniqueFd wake_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::thread thread_;
  std::promise<Status> started_;

  // The thread's own.
  std::optional<Child> child_;
  UniqueFd control_;
  std::chrono::steady_clock::time_point started_at_{};
  std::chrono::milliseconds pause_ = first_pause;
  std::string last_words_;

  mutable std::mutex mutex_;  // guards what follows
  DoorPolicy policy_;
  std::string trust_;
  std::deque<ControlMessage> outgoing_;
  std::set<std::uint64_t> questions_;   // of the process that runs
  std::set<policy::Destination> once_;  // what was allowed for once in it
  std::string ca_;
  pid_t pid_ = -1;
  std::uint64_t process_ = 0;  // counts them; what was asked by an earlier one is void
  std::uint64_t generation_ = 0;
  bool stopping_ = false;
  DoorStatistics statistics_;
};

}  // namespace anchorhold::egress
