// The real agent as an ordinary process over a socket pair, and a client of it.
#pragma once

#include <gtest/gtest.h>
#include <memory>
#include <stdexcept>
#include <string>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/process.h"
#include "session/guest_client.h"

namespace anchorhold::session {

class HostedAgent {
 public:
  explicit HostedAgent(GuestClientSpec spec = {}) {
    auto pair = socket_pair(SOCK_STREAM);
    if (!pair) throw std::runtime_error(pair.error().message);
    SpawnSpec program;
    program.argv = {ANCHORHOLD_PROGRAM_DIR "/anchorhold-guest", "--serve-fd", "3"};
    program.descriptors = {{2, 2}, {pair->second.get(), 3}};
    auto child = Child::spawn(program);
    if (!child) throw std::runtime_error(child.error().message);
    child_ = std::make_unique<Child>(std::move(*child));
    stream_ = std::move(pair->first);
    pair->second.reset();
    auto connected = GuestClient::connect(std::move(stream_), std::move(spec));
    if (!connected) throw std::runtime_error(connected.error().message);
    client_ = std::move(*connected);
  }
  ~HostedAgent() {
    client_.reset();
    // With its stream it ends by itself; the wait is what shows that it does.
    if (child_ && !child_->wait(std::chrono::seconds(30))) ADD_FAILURE() << "the agent outlives its stream";
  }

  GuestClient& client() { return *client_; }
  Child& process() { return *child_; }
  void drop_client() { client_.reset(); }

 private:
  std::unique_ptr<Child> child_;
  UniqueFd stream_;
  std::unique_ptr<GuestClient> client_;
};

inline const bool agent_is_root = geteuid() == 0;
inline std::string default_uid() {
  return std::to_string(agent_is_root ? 1000 : geteuid());
}

}  // namespace anchorhold::session
