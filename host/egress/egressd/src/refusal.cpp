#include "refusal.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace anchorhold::egress {
namespace {

constexpr std::size_t max_reason = 500;

std::string_view phrase(unsigned status) {
  switch (status) {
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return "Bad Gateway";
  }
}

}  // namespace

std::string refusal_reason(const EventReport& report) {
  std::string reason;
  for (char c : report.cause.substr(0, max_reason)) reason += c >= 0x20 && c < 0x7f ? c : '?';
  return reason;
}

std::string refusal_body(unsigned status, const EventReport& report) {
  bool denied = status == 403 || status == 401;
  nlohmann::json json{{"error", denied          ? "egress_denied"
                                : status == 400 ? "bad_request"
                                                : "unreachable"},
                      {"reason", refusal_reason(report)}};
  if (report.port != 0) json["destination"] = fmt::format("{}:{}", report.host, report.port);
  if (!report.rule.empty()) json["rule"] = report.rule;
  if (denied)
    json["help"] =
        "This is decided outside of this machine. If the task needs it, say so to the person and name the "
        "destination; do not look for a way around.";
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string refusal_response(unsigned status, const EventReport& report) {
  std::string body = refusal_body(status, report);
  return fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n"
      "x-anchorhold-reason: {}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n{}",
      status, phrase(status), body.size(), refusal_reason(report), body);
}

}  // namespace anchorhold::egress
