// A connection of the guest that is opened, as whoever speaks HTTP/2 in it sees it: what was decided about
// it, its server, and what the host records and gives.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "decided.h"
#include "egress/control.h"
#include "refusal.h"
#include "stream.h"

namespace anchorhold::egress {

class OpenedConnection {
 public:
  virtual ~OpenedConnection() = default;
  virtual asio::io_context& loop() = 0;
  virtual const policy::Destination& destination() const = 0;
  // In force now; a change of the policy replaces it.
  virtual const Decided& decided() const = 0;
  // None once it is let go of, until it is dialled again.
  virtual Stream* server() = 0;
  virtual std::unique_ptr<Stream> let_go_of_server() = 0;
  // By what is in force now: resolved, judged, recorded, dialled and verified as the first time; or why not.
  virtual Awaitable<std::optional<Refusal>> dial_server() = 0;
  // Something moved: it is not quiet.
  virtual void moves() = 0;
  // Nothing is asked of it: when that stays so, Http2Bridge::time_is_over().
  virtual void rests(std::chrono::milliseconds limit) = 0;
  virtual EventReport report_of(EventKind kind, std::string cause) const = 0;
  // True once the host has recorded it.
  virtual Awaitable<bool> record(EventReport report) = 0;
  virtual Awaitable<Result<std::string>> secret(SecretRequest request) = 0;
  // What was recorded last of what it does with Git.
  virtual std::string& last_git() = 0;
};

}  // namespace anchorhold::egress
