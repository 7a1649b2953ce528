#include "reader/notices.h"

#include <algorithm>
#include <fmt/format.h>

namespace anchorhold::mounts {
namespace {

constexpr double burst = 64;
constexpr double per_second = 8;

}  // namespace

void Notices::refused(std::string operation, std::string path, int error, std::string reason) {
  Report report;
  report.kind = ReportKind::refused;
  report.error = error;
  report.operation = std::move(operation);
  report.path = std::move(path);
  report.reason = std::move(reason);
  send(std::move(report));
}

void Notices::violation(std::string operation, std::string path, int error, std::string reason) {
  Report report;
  report.kind = ReportKind::violation;
  report.error = error;
  report.operation = std::move(operation);
  report.path = std::move(path);
  report.reason = std::move(reason);
  send(std::move(report));
}

void Notices::send(Report report) {
  {
    std::lock_guard lock(mutex_);
    auto now = std::chrono::steady_clock::now();
    tokens_ = std::min(burst, tokens_ + per_second * std::chrono::duration<double>(now - refilled_).count());
    refilled_ = now;
    if (tokens_ < 1) {
      ++suppressed_;
      return;
    }
    tokens_ -= 1;
    if (suppressed_ > 0)
      report.reason += fmt::format(" (and {} more that were not told one by one)", suppressed_);
    suppressed_ = 0;
  }
  reporter_.send(std::move(report));
}

}  // namespace anchorhold::mounts
