// What the reader tells the host, kept to a rate: a guest that misbehaves in a loop fills no log.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

#include "mounts/report.h"

namespace anchorhold::mounts {

// Safe from any thread.
class Notices {
 public:
  explicit Notices(Reporter& reporter) : reporter_(reporter) {}

  // Policy refused this, or no well-behaved guest does it. Beyond a burst, what is too much is counted and
  // the count is told with the next one.
  void refused(std::string operation, std::string path, int error, std::string reason);
  void violation(std::string operation, std::string path, int error, std::string reason);

 private:
  void send(Report report);

  Reporter& reporter_;
  std::mutex mutex_;
  double tokens_ = 64;
  std::chrono::steady_clock::time_point refilled_ = std::chrono::steady_clock::now();
  std::uint64_t suppressed_ = 0;
};

}  // namespace anchorhold::mounts
