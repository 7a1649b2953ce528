// A connection of the guest that is opened, as whoever speaks HTTP/2 in it sees it: what was decided about
// it, its server, and what the host records and gives.
#pragma once

#include <string>

#include "decided.h"
#include "egress/control.h"
#include "stream.h"

namespace anchorhold::egress {

class OpenedConnection {
 public:
  virtual ~OpenedConnection() = default;
  virtual asio::io_context& loop() = 0;
  virtual const policy::Destination& destination() const = 0;
  // In force now; a change of the policy replaces it.
  virtual const Decided& decided() const = 0;
  virtual Stream& server() = 0;
  // Something moved: it is not quiet.
  virtual void moves() = 0;
  virtual EventReport report_of(EventKind kind, std::string cause) const = 0;
  // True once the host has recorded it.
  virtual Awaitable<bool> record(EventReport report) = 0;
  virtual Awaitable<Result<std::string>> secret(SecretRequest request) = 0;
  // What was recorded last of what it does with Git.
  virtual std::string& last_git() = 0;
};

}  // namespace anchorhold::egress
