// Serves the clients' sockets: threads of each take a message, handle it, answer.
#pragma once

#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "keeper.h"

namespace anchorhold::mounts {

// Returns when the last client has closed its socket. A client that breaks the protocol loses its connection.
Status serve_clients(Keeper& keeper, std::vector<UniqueFd> clients);

}  // namespace anchorhold::mounts
