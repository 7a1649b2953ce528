// The sealed process as a function: arguments are parsed, then it seals itself, then it serves.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "base/fd.h"

namespace anchorhold::vsock {

struct VsockdArguments {
  std::uint32_t guest_cid = 0;
  int control_fd = -1;   // SOCK_SEQPACKET, to the host
  int listener_fd = -1;  // listening unix socket for the front end
  bool allow_weak = false;
};
Result<VsockdArguments> parse_vsockd_arguments(int argc, char** argv);

// Gives up every right but those of an event loop over the given descriptors. Returns Landlock's version.
Result<int> seal_vsockd(const VsockdArguments& arguments);

// Serves until the end; success means that the front end closed its device.
Status serve_vsock(const VsockdArguments& arguments, int landlock_version);

}  // namespace anchorhold::vsock
