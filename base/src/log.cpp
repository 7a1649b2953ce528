#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace anchorhold {
namespace {

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::error:
      return spdlog::level::err;
    case LogLevel::warning:
      return spdlog::level::warn;
    case LogLevel::debug:
      return spdlog::level::debug;
  }
  return spdlog::level::warn;
}

spdlog::logger& logger() {
  static auto instance = [] {
    auto made =
        std::make_shared<spdlog::logger>("anchorhold", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%n: %l: %v");
    made->set_level(spdlog::level::warn);
    made->flush_on(spdlog::level::trace);
    return made;
  }();
  return *instance;
}

}  // namespace

void start_log(std::string_view program, LogLevel level) {
  logger().set_pattern(std::string(program) + ": %l: %v");
  logger().set_level(spdlog_level(level));
}

void log_error(std::string_view message) {
  logger().error("{}", message);
}
void log_warning(std::string_view message) {
  logger().warn("{}", message);
}
void log_debug(std::string_view message) {
  logger().debug("{}", message);
}

}  // namespace anchorhold
