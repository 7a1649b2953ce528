// The door to a running session for other programs of the same person (proto/host.proto): a unix socket below
// the runtime directory. Who connects is looked at before a byte is read.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/id.h"
#include "mounts/mode.h"
#include "policy/egress_policy.h"
#include "session/questions.h"

namespace anchorhold::session {

struct GrantedFolder {
  std::filesystem::path host_path;
  std::string guest_path;
};

// What may be reached by a session, as it is now.
struct NetworkView {
  policy::EgressPolicy rules;
  policy::Person person = policy::Person::absent;
  std::chrono::milliseconds ask_timeout{0};
};

// What the session does when it is asked. Functions are called one after another, on a thread of the
// server's; may block.
struct ControlHandlers {
  std::function<Result<GrantedFolder>(const std::filesystem::path& path, mounts::Mode mode)> grant;
  std::function<Result<NetworkView>()> network;
  // Outlives the server.
  Questions* questions = nullptr;
};

class ControlServer {
 public:
  // Listens when it returns.
  static Result<std::unique_ptr<ControlServer>> start(const SessionId& session, ControlHandlers handlers);
  // Answers what was asked before: whatever a handler waits for must be on its way to an end.
  ~ControlServer();

 private:
  struct State;
  explicit ControlServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

class ControlClient {
 public:
  // failed_precondition: nobody serves this session; it has ended, or ends.
  static Result<ControlClient> connect(const SessionId& session);
  ControlClient(ControlClient&&) noexcept;
  ~ControlClient();

  // The path is made absolute here; what it leads to is for the session to see.
  Result<GrantedFolder> grant(const std::filesystem::path& path, mounts::Mode mode);
  // Those that wait now.
  Result<std::vector<Questions::Pending>> questions();
  // As Questions::answer.
  Result<Approval> answer(std::uint64_t number, Approval answer);
  Result<NetworkView> network();

 private:
  struct State;
  explicit ControlClient(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace anchorhold::session
