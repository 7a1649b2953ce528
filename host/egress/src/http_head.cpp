#include "egress/http_head.h"

#include <algorithm>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <charconv>
#include <fmt/format.h>

#include "egress/text.h"

namespace anchorhold::egress {
namespace {

namespace http = boost::beast::http;

tl::unexpected<Error> refuse(std::string what) {
  return fail(ErrorCode::invalid_argument, std::move(what));
}

// The comma-separated members of every field of this name, lower case.
std::vector<std::string> members_of(const std::vector<Field>& fields, std::string_view name) {
  std::vector<std::string> members;
  for (std::string_view value : values_of(fields, name)) {
    while (true) {
      auto comma = value.find(',');
      if (auto member = trimmed(value.substr(0, comma)); !member.empty()) members.push_back(lower(member));
      if (comma == std::string_view::npos) break;
      value.remove_prefix(comma + 1);
    }
  }
  return members;
}

bool contains(const std::vector<std::string>& members, std::string_view wanted) {
  return std::find(members.begin(), members.end(), wanted) != members.end();
}

// Where the head ends (after the empty line), or nothing yet. Lines end with CR LF and with nothing else.
Result<std::optional<std::size_t>> find_end(std::string_view bytes) {
  auto end = bytes.find("\r\n\r\n");
  std::string_view head = bytes.substr(0, end == std::string_view::npos ? bytes.size() : end + 4);
  for (std::size_t i = 0; i < head.size(); ++i) {
    char c = head[i];
    if (c == '\0') return refuse("a NUL in the head of a message");
    if (c == '\n' && (i == 0 || head[i - 1] != '\r'))
      return refuse("a line of the head that ends with a bare LF");
    if (c == '\r' && i + 1 < head.size() && head[i + 1] != '\n')
      return refuse("a bare CR in the head of a message");
    if (c == '\n' && i + 1 < head.size() && (head[i + 1] == ' ' || head[i + 1] == '\t'))
      return refuse("a folded line in the head of a message");
  }
  if (head.size() > max_head_bytes)
    return refuse(fmt::format("a head of more than {} bytes", max_head_bytes));
  if (end == std::string_view::npos) return std::optional<std::size_t>();
  return std::optional(end + 4);
}

template <bool is_request>
Result<http::header<is_request>> parse_syntax(std::string_view head) {
  http::parser<is_request, http::empty_body> parser;
  parser.header_limit(max_head_bytes + 1);
  parser.skip(true);
  boost::beast::error_code error;
  parser.put(boost::asio::buffer(head.data(), head.size()), error);
  if (error && error != http::error::need_more && error != http::error::end_of_stream)
    return refuse(fmt::format("not HTTP/1: {}", error.message()));
  if (!parser.is_header_done()) return refuse("not HTTP/1: the head is not complete");
  return std::move(parser.get().base());
}

template <bool is_request>
Result<std::vector<Field>> take_fields(const http::header<is_request>& header) {
  std::vector<Field> fields;
  for (const auto& field : header) {
    if (fields.size() == max_fields) return refuse(fmt::format("more than {} header fields", max_fields));
    std::string value(field.value());
    for (char c : value)
      if ((static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f)
        return refuse("a control character in a header field");
    fields.push_back({std::string(field.name_string()), std::move(value)});
  }
  return fields;
}

// RFC 9112 6.1 and 6.3, where a message that says both, or one of them twice, is refused instead of repaired.
Result<BodyFraming> framing(const std::vector<Field>& fields) {
  auto lengths = values_of(fields, "content-length");
  auto codings = values_of(fields, "transfer-encoding");
  if (!lengths.empty() && !codings.empty()) return refuse("both Content-Length and Transfer-Encoding");
  if (lengths.size() > 1 || codings.size() > 1)
    return refuse("a repeated Content-Length or Transfer-Encoding");
  if (!codings.empty()) {
    if (lower(trimmed(codings[0])) != "chunked") return refuse("a Transfer-Encoding other than chunked");
    return BodyFraming{BodyFraming::Kind::chunked, 0};
  }
  if (lengths.empty()) return BodyFraming{};
  std::string_view text = trimmed(lengths[0]);
  BodyFraming body{BodyFraming::Kind::length, 0};
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), body.length);
  bool digits =
      !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!digits || error != std::errc() || end != text.data() + text.size())
    return refuse("a Content-Length that is not a number");
  return body;
}

bool keeps_alive(const std::vector<std::string>& connection, bool http_1_0) {
  return http_1_0 ? contains(connection, "keep-alive") : !contains(connection, "close");
}

Status split_path(std::string_view target, RequestHead& head) {
  for (char c : target)
    if (static_cast<unsigned char>(c) <= 0x20 || static_cast<unsigned char>(c) >= 0x7f || c == '#')
      return refuse("a request target with a character that belongs encoded");
  auto question = target.find('?');
  head.path = target.substr(0, question);
  head.has_query = question != std::string_view::npos;
  if (head.has_query) head.query = target.substr(question + 1);
  return {};
}

Status read_absolute(std::string_view target, std::uint16_t scheme_default, RequestHead& head) {
  constexpr std::string_view scheme = "http://";
  if (lower(target.substr(0, scheme.size())) != scheme)
    return refuse("a proxy request for something else than http:// (use CONNECT for the rest)");
  target.remove_prefix(scheme.size());
  auto end = std::min(target.find_first_of("/?"), target.size());
  head.destination = ANCHORHOLD_TRY(policy::Destination::parse(target.substr(0, end), scheme_default));
  std::string path(target.substr(end));
  if (path.empty() || path[0] == '?') path.insert(path.begin(), '/');
  return split_path(path, head);
}

// Exactly one Host, and the same destination as the target where the target names one.
Status check_host(RequestHead& head, std::uint16_t scheme_default) {
  auto hosts = values_of(head.fields, "host");
  if (hosts.size() > 1) return refuse("more than one Host field");
  if (hosts.empty()) {
    if (head.form == RequestHead::Form::origin || !head.http_1_0) return refuse("no Host field");
    return {};
  }
  std::uint16_t port = head.form == RequestHead::Form::connect ? head.destination.port : scheme_default;
  auto host = ANCHORHOLD_TRY(policy::Destination::parse(trimmed(hosts[0]), port));
  if (head.form == RequestHead::Form::origin) {
    head.destination = host;
  } else if (host != head.destination) {
    return refuse(
        fmt::format("the Host field says {} and the request line {}", host.text(), head.destination.text()));
  }
  return {};
}

}  // namespace

std::vector<std::string_view> values_of(const std::vector<Field>& fields, std::string_view name) {
  std::vector<std::string_view> values;
  std::string wanted = lower(name);
  for (const Field& field : fields)
    if (lower(field.name) == wanted) values.push_back(field.value);
  return values;
}

ParsedRequest parse_request_head(std::string_view bytes, std::uint16_t scheme_default) {
  auto end = ANCHORHOLD_TRY(find_end(bytes));
  if (!end) return std::optional<Parsed<RequestHead>>();
  auto header = ANCHORHOLD_TRY(parse_syntax<true>(bytes.substr(0, *end)));
  RequestHead head;
  head.method = std::string(header.method_string());
  head.http_1_0 = header.version() == 10;
  head.fields = ANCHORHOLD_TRY(take_fields(header));
  head.body = ANCHORHOLD_TRY(framing(head.fields));
  if (head.http_1_0 && head.body.kind == BodyFraming::Kind::chunked)
    return refuse("a chunked body in HTTP/1.0");
  std::string_view target = header.target();
  if (head.method == "CONNECT") {
    head.form = RequestHead::Form::connect;
    head.destination = ANCHORHOLD_TRY(policy::Destination::parse(target, {}));
    if (head.body.kind != BodyFraming::Kind::none && head.body.length != 0)
      return refuse("a CONNECT with a body");
    head.body = {};
  } else if (target.starts_with('/') || (target == "*" && head.method == "OPTIONS")) {
    head.form = RequestHead::Form::origin;
    ANCHORHOLD_CHECK(split_path(target, head));
  } else {
    head.form = RequestHead::Form::absolute;
    ANCHORHOLD_CHECK(read_absolute(target, scheme_default, head));
  }
  ANCHORHOLD_CHECK(check_host(head, scheme_default));
  auto connection = members_of(head.fields, "connection");
  head.keep_alive = keeps_alive(connection, head.http_1_0);
  auto upgrades = members_of(head.fields, "upgrade");
  if (upgrades.size() == 1 && contains(connection, "upgrade")) head.upgrade = upgrades[0];
  auto expectations = members_of(head.fields, "expect");
  head.expects_continue = contains(expectations, "100-continue");
  if (expectations.size() > (head.expects_continue ? 1u : 0u))
    return refuse("an Expect other than 100-continue");
  return std::optional(Parsed<RequestHead>{std::move(head), *end});
}

ParsedResponse parse_response_head(std::string_view bytes, std::string_view method) {
  auto end = ANCHORHOLD_TRY(find_end(bytes));
  if (!end) return std::optional<Parsed<ResponseHead>>();
  auto header = ANCHORHOLD_TRY(parse_syntax<false>(bytes.substr(0, *end)));
  ResponseHead head;
  head.status = header.result_int();
  if (head.status < 100 || head.status > 599)
    return refuse(fmt::format("a response with status {}", head.status));
  head.reason = std::string(header.reason());
  head.http_1_0 = header.version() == 10;
  head.fields = ANCHORHOLD_TRY(take_fields(header));
  BodyFraming announced = ANCHORHOLD_TRY(framing(head.fields));
  bool no_body = method == "HEAD" || head.status < 200 || head.status == 204 || head.status == 304 ||
                 (method == "CONNECT" && head.status < 300);
  if (!no_body) {
    head.body = announced;
    bool announced_length = !values_of(head.fields, "content-length").empty();
    if (announced.kind == BodyFraming::Kind::none && !announced_length)
      head.body.kind = BodyFraming::Kind::until_close;
  }
  head.keep_alive = keeps_alive(members_of(head.fields, "connection"), head.http_1_0) &&
                    head.body.kind != BodyFraming::Kind::until_close;
  return std::optional(Parsed<ResponseHead>{std::move(head), *end});
}

}  // namespace anchorhold::egress
