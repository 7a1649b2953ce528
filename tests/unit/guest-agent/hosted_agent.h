// The real agent as an ordinary process over a socket pair, and a client of it.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <memory>
#include <string>

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

struct Outcome {
  ExecStatus status;
  std::string out;
  std::string err;
};

inline Outcome run(GuestClient& client, ExecSpec spec, std::string_view input = {}) {
  Outcome outcome;
  if (spec.working_directory.empty()) spec.working_directory = "/";
  auto status = client.run(spec,
                           {[&](std::string_view bytes) { outcome.out += bytes; },
                            [&](std::string_view bytes) { outcome.err += bytes; }},
                           input);
  EXPECT_TRUE(status) << (status ? "" : status.error().message);
  if (status) outcome.status = *status;
  return outcome;
}

inline ExecSpec shell(std::string command) {
  ExecSpec spec;
  spec.shell_command = std::move(command);
  spec.working_directory = "/";
  return spec;
}

inline ExecSpec program(std::vector<std::string> argv) {
  ExecSpec spec;
  spec.argv = std::move(argv);
  spec.working_directory = "/";
  return spec;
}

}  // namespace anchorhold::session
