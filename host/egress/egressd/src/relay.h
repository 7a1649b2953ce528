// Bytes from one stream to another, unread, both ways at once, with both half-closes. At most one scratch
// buffer of bytes waits for a slow reader, in each direction.
#pragma once

#include <functional>
#include <memory>

#include "egress/upstream.h"
#include "relay_loops.h"
#include "signal.h"
#include "stream.h"

namespace anchorhold::egress {

struct RelaySpec {
  asio::io_context& loop;  // on which this is called, and returns
  RelayLoops& others;      // for two that are sockets and nothing else
  Stream& left;
  Stream& right;
  Deadline& deadline;
  const ConnectionLimits& limits;
  // Before anything of the left one moves, while the right one is heard already; false ends both.
  std::function<Awaitable<bool>()> first;
};

// Returns when both directions have ended.
Awaitable<void> relay(RelaySpec spec);

// Writes what can be written at once; false when the stream failed. `bytes` is what is left.
bool write_now(Stream& stream, std::string_view& bytes);

// Reads what a guest still sends, for a moment, so that it gets to read why nothing comes of it.
Awaitable<void> linger(asio::io_context& loop, Stream& stream);

}  // namespace anchorhold::egress
