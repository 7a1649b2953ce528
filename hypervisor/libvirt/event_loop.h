// libvirt's event loop on a thread of its own: without it no event arrives and no embedded driver works.
#pragma once

#include <functional>

#include "base/error.h"

namespace anchorhold::hypervisor {

// Starts it the first time; it runs to the end of the process, as the embedded driver does. Before any
// connection.
Status start_event_loop();

// Calls once, on the loop's thread, when the descriptor can be read; the descriptor must stay open until then
// or until unwatch(). The number is below zero when the loop is not there.
int watch_readable(int descriptor, std::function<void()> on_readable);
// No call begins after this returned on the loop's thread; elsewhere one may be under way.
void unwatch(int watch);

}  // namespace anchorhold::hypervisor
