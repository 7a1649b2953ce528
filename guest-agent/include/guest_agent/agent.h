// The guest's agent as a whole: one thread with an event loop owns all state; gRPC's threads and a few
// workers hand it their results.
#pragma once

#include "base/error.h"
#include "base/fd.h"

namespace anchorhold::guest {

enum class Role {
  guest,   // PID 1: the guest is its own
  hosted,  // an ordinary process, as tests use it: serves one stream, ends with it, and touches nothing of
           // the machine
};

// Before threads: blocks SIGCHLD, ignores SIGPIPE, takes orphans, protects itself from the memory killer.
Status prepare_process(Role role);

// For PID 1: mounts and moves onto the root that the kernel's command line names.
Status boot_guest();

// Serves until Shutdown. In a guest: dials the host and serves on that stream, again and again if it breaks,
// and at the end powers off. Hosted: serves `stream` and returns when it ends.
Status run_agent(Role role, UniqueFd stream);

}  // namespace anchorhold::guest
