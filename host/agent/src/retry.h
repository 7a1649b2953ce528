// When and how long to wait before a request is made again: the rules of the official clients, which the
// servers' own hints override. Pure but for the random number.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <stop_token>

#include "base/clock.h"
#include "http.h"

namespace anchorhold::agent {

struct RetryPolicy {
  // More than the official clients' two: a task is long, and nobody may be there to start it again.
  unsigned max_retries = 5;
  std::chrono::milliseconds first_delay{500};
  std::chrono::milliseconds max_delay{8'000};
  // A server that asks for more than this is not waited for.
  std::chrono::milliseconds max_server_delay = std::chrono::minutes(15);
};

// 408, 409, 429 and 5xx (529 is among them), unless the server's x-should-retry says otherwise.
bool should_retry(const HttpHead& head);
// retry-after-ms, then retry-after in seconds or as a date. Nothing: absent, unreadable, or not in the
// future.
std::optional<std::chrono::milliseconds> server_delay(const HttpHead& head, WallTime now);
// 0.5 s, doubled with each retry up to 8 s, less up to a quarter; `random` is in [0, 1).
std::chrono::milliseconds default_delay(const RetryPolicy& policy, unsigned retries_made, double random);

// Waits; false: stopped meanwhile.
bool wait_for(std::chrono::milliseconds delay, std::stop_token stop);

}  // namespace anchorhold::agent
