// A network of the test program's own: a namespace without a way out, in which whole blocks of addresses lead
// back to this machine, so that servers can have addresses that look like the internet's.
#pragma once

#include <string>

#include "base/error.h"

namespace anchorhold::testing {

// 44.128.0.0/16 is the test network of AMPRNet, and global to whoever judges addresses; 2a0f:ac00::/32
// likewise. 44.129.0.1 belongs to an interface.
Status enter_private_network();
// Why there is none; empty when there is.
const std::string& no_private_network();
// Calls enter_private_network() and keeps why it failed. Before any thread.
void prepare_private_network();

}  // namespace anchorhold::testing
