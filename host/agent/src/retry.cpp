#include "retry.h"

#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <curl/curl.h>
#include <mutex>

namespace anchorhold::agent {
namespace {

std::optional<double> number_in(const HttpHead& head, const char* name) {
  auto found = head.headers.find(name);
  if (found == head.headers.end()) return std::nullopt;
  char* end = nullptr;
  double value = std::strtod(found->second.c_str(), &end);
  if (end == found->second.c_str() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<std::chrono::milliseconds> positive(double milliseconds) {
  // Beyond what a timer of the official clients can hold, the value is taken for nonsense.
  if (!(milliseconds > 0 && milliseconds <= 2147483647.0)) return std::nullopt;
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(milliseconds)));
}

}  // namespace

bool should_retry(const HttpHead& head) {
  if (auto hint = head.headers.find("x-should-retry"); hint != head.headers.end()) {
    if (hint->second == "true") return true;
    if (hint->second == "false") return false;
  }
  return head.status == 408 || head.status == 409 || head.status == 429 || head.status >= 500;
}

std::optional<std::chrono::milliseconds> server_delay(const HttpHead& head, WallTime now) {
  if (auto value = number_in(head, "retry-after-ms")) {
    if (auto delay = positive(*value)) return delay;
  }
  if (auto value = number_in(head, "retry-after")) return positive(*value * 1000);
  auto found = head.headers.find("retry-after");
  if (found == head.headers.end()) return std::nullopt;
  std::time_t at = curl_getdate(found->second.c_str(), nullptr);
  if (at < 0) return std::nullopt;
  auto delay = std::chrono::system_clock::from_time_t(at) - now;
  return positive(std::chrono::duration<double, std::milli>(delay).count());
}

std::chrono::milliseconds default_delay(const RetryPolicy& policy, unsigned retries_made, double random) {
  double delay = static_cast<double>(policy.first_delay.count()) * std::pow(2.0, retries_made);
  delay = std::min(delay, static_cast<double>(policy.max_delay.count()));
  return std::chrono::milliseconds(static_cast<std::int64_t>(delay * (1 - random * 0.25)));
}

bool wait_for(std::chrono::milliseconds delay, std::stop_token stop) {
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  never.wait_for(lock, stop, delay, [] { return false; });
  return !stop.stop_requested();
}

}  // namespace anchorhold::agent
