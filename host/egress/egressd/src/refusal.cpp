#include "refusal.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace anchorhold::egress {
namespace {

constexpr std::size_t max_reason = 500;

std::string_view phrase(unsigned status) {
  switch (status) {
    case 200:
      return "OK";
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

std::string text_body(unsigned status, const EventReport& report) {
  std::string text = fmt::format("anchorhold: {}\n", refusal_reason(report));
  if (status == 403 || status == 401)
    text += "This is decided outside of this machine. If the task needs it, say so to the person.\n";
  return text;
}

}  // namespace

std::string refusal_reason(const EventReport& report) {
  std::string reason;
  for (char c : report.cause.substr(0, max_reason)) reason += c >= 0x20 && c < 0x7f ? c : '?';
  return reason;
}

namespace {

std::string json_body(unsigned status, const EventReport& report) {
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

}  // namespace

RefusalResponse refusal_message(unsigned status, const EventReport& report, const RefusalForm& form) {
  RefusalResponse response;
  response.status = form.git_report.empty() ? status : 200;
  std::string type = "application/json";
  if (!form.git_report.empty()) {
    type = "application/x-git-receive-pack-result";
    response.body = form.git_report;
  } else if (form.plain_text) {
    type = "text/plain";
    response.body = text_body(status, report);
  } else {
    response.body = json_body(status, report);
  }
  response.fields = {{"content-type", type},
                     {"content-length", std::to_string(response.body.size())},
                     {"x-anchorhold-reason", refusal_reason(report)},
                     {"cache-control", "no-store"}};
  if (form.challenge) response.fields.push_back({"www-authenticate", "Basic realm=\"anchorhold\""});
  return response;
}

std::string refusal_response(unsigned status, const EventReport& report, const RefusalForm& form) {
  RefusalResponse response = refusal_message(status, report, form);
  std::string text = fmt::format("HTTP/1.1 {} {}\r\n", response.status, phrase(response.status));
  for (const Field& field : response.fields) text += fmt::format("{}: {}\r\n", field.name, field.value);
  return text + "Connection: close\r\n\r\n" + response.body;
}

}  // namespace anchorhold::egress
