// The door to a running session for other programs of the same person (proto/host.proto): a unix socket below
// the runtime directory. Who connects is looked at before a byte is read.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/id.h"
#include "mounts/mode.h"

namespace anchorhold::session {

struct GrantedFolder {
  std::filesystem::path host_path;
  std::string guest_path;
};

// What the session does when it is asked. Called one after another, on a thread of the server's; may block.
struct ControlHandlers {
  std::function<Result<GrantedFolder>(const std::filesystem::path& path, mounts::Mode mode)> grant;
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

 private:
  struct State;
  explicit ControlClient(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace anchorhold::session
