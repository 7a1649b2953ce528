// From a real guest: streams through the egress process beside raw streams of the same device.
#pragma once

#include <functional>
#include <string>

#include "egress/door.h"

namespace anchorhold::testing {

class Wire;

// `destination` leads through the door to who serves in the way that `serve` does, which serves the raw
// streams. Prints why when there is no guest.
void print_guest_figures(egress::Door& door, const std::string& destination,
                         const std::function<void(Wire&)>& serve);

}  // namespace anchorhold::testing
