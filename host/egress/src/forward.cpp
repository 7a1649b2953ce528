#include "egress/forward.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "egress/text.h"

namespace anchorhold::egress {
namespace {

constexpr std::array hop_fields{
    "connection",          "keep-alive", "proxy-connection",  "proxy-authenticate",
    "proxy-authorization", "te",         "transfer-encoding", "upgrade"};

void add_fields(std::string& text, const std::vector<Field>& fields,
                std::initializer_list<std::string_view> written_anew) {
  for (const Field& field : fields) {
    std::string name = lower(field.name);
    if (ends_here(name, fields)) continue;
    if (std::find(written_anew.begin(), written_anew.end(), name) != written_anew.end()) continue;
    text += field.name;
    text += ": ";
    text += field.value;
    text += "\r\n";
  }
}

void add_framing(std::string& text, const BodyFraming& body) {
  if (body.kind == BodyFraming::Kind::chunked) text += "Transfer-Encoding: chunked\r\n";
  if (body.kind == BodyFraming::Kind::length) text += fmt::format("Content-Length: {}\r\n", body.length);
}

std::string host_text(const policy::Destination& destination, std::uint16_t scheme_port) {
  return destination.port == scheme_port ? destination.host.text() : destination.text();
}

bool wants_trailers(const std::vector<Field>& fields) {
  for (std::string_view value : values_of(fields, "te"))
    if (lower(value).find("trailers") != std::string::npos) return true;
  return false;
}

}  // namespace

bool ends_here(std::string_view lower_name, const std::vector<Field>& fields) {
  if (std::find(hop_fields.begin(), hop_fields.end(), lower_name) != hop_fields.end()) return true;
  for (std::string_view value : values_of(fields, "connection")) {
    while (!value.empty()) {
      auto end = std::min(value.find(','), value.size());
      std::string member = lower(value.substr(0, end));
      member.erase(0, std::min(member.find_first_not_of(" \t"), member.size()));
      member.erase(member.find_last_not_of(" \t") + 1);
      if (member == lower_name) return true;
      value.remove_prefix(std::min(end + 1, value.size()));
    }
  }
  return false;
}

std::string forward_request(const RequestHead& head, const ForwardedRequest& how) {
  std::string host = host_text(head.destination, how.scheme_port);
  std::string text = head.method + " ";
  if (how.absolute) text += "http://" + host;
  text += head.path;
  if (head.has_query) text += "?" + head.query;
  text += " HTTP/1.1\r\nHost: " + host + "\r\n";
  if (how.plain_coding) {
    add_fields(text, head.fields, {"host", "content-length", "accept-encoding"});
    text += "Accept-Encoding: identity\r\n";
  } else {
    add_fields(text, head.fields, {"host", "content-length"});
  }
  add_framing(text, head.body);
  if (!how.proxy_authorization.empty()) text += "Proxy-Authorization: " + how.proxy_authorization + "\r\n";
  if (how.websocket)
    text += "Connection: Upgrade\r\nUpgrade: websocket\r\n";
  else if (wants_trailers(head.fields))
    text += "Connection: TE\r\nTE: trailers\r\n";
  return text += "\r\n";
}

std::string forward_response(const ResponseHead& head, const ForwardedResponse& how) {
  std::string text = fmt::format("HTTP/1.1 {} {}\r\n", head.status, head.reason);
  bool length_only =
      head.body.kind == BodyFraming::Kind::none;  // of HEAD and 304, which describes no body here
  if (length_only)
    add_fields(text, head.fields, {});
  else
    add_fields(text, head.fields, {"content-length"});
  BodyFraming body = head.body;
  if (body.kind == BodyFraming::Kind::chunked && how.to_http_1_0) body.kind = BodyFraming::Kind::until_close;
  add_framing(text, body);
  if (how.websocket)
    text += "Connection: Upgrade\r\nUpgrade: websocket\r\n";
  else if (head.status >= 200 && !how.keep_alive)
    text += "Connection: close\r\n";
  else if (head.status >= 200 && how.to_http_1_0)
    text += "Connection: keep-alive\r\n";
  return text += "\r\n";
}

}  // namespace anchorhold::egress
