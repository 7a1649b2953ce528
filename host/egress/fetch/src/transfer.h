// One page with its redirects, by libcurl, on streams that were given: each hop is a request of its own to
// the door that decides.
#pragma once

#include <vector>

#include "base/fd.h"
#include "messages.h"

namespace anchorhold::egress {

// Uses up one stream for each hop.
Result<FetchedPage> transfer(const FetchOrder& order, std::vector<UniqueFd> streams);

}  // namespace anchorhold::egress
