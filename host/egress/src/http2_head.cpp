#include "egress/http2_head.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fmt/format.h>
#include <optional>

#include "egress/text.h"

namespace anchorhold::egress {
namespace {

constexpr std::uint16_t https_port = 443;
constexpr std::array connection_fields{"connection", "keep-alive", "proxy-connection", "transfer-encoding",
                                       "upgrade"};

tl::unexpected<Error> refuse(std::string what) {
  return fail(ErrorCode::invalid_argument, std::move(what));
}

struct Pseudo {
  std::optional<std::string> method, scheme, path, authority;
};

Status take_pseudo(Pseudo& pseudo, Field& field) {
  auto* place = field.name == ":method"      ? &pseudo.method
                : field.name == ":scheme"    ? &pseudo.scheme
                : field.name == ":path"      ? &pseudo.path
                : field.name == ":authority" ? &pseudo.authority
                                             : nullptr;
  if (!place) return refuse(fmt::format("a request with the field {}", field.name));
  if (*place) return refuse(fmt::format("a request with the field {} twice", field.name));
  *place = std::move(field.value);
  return {};
}

Status check_field(const Field& field) {
  if (field.name.empty() || lower(field.name) != field.name)
    return refuse("a field whose name is not lower case");
  if (std::find(connection_fields.begin(), connection_fields.end(), field.name) != connection_fields.end())
    return refuse(fmt::format("the field {} does not exist in HTTP/2", field.name));
  if (field.name == "te" && field.value != "trailers") return refuse("a TE other than trailers");
  for (char c : field.value)
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f)
      return refuse("a control character in a header field");
  return {};
}

Status set_path(std::string_view target, RequestHead& head) {
  for (char c : target)
    if (static_cast<unsigned char>(c) <= 0x20 || static_cast<unsigned char>(c) >= 0x7f || c == '#')
      return refuse("a request target with a character that belongs encoded");
  if (!target.starts_with('/') && !(target == "*" && head.method == "OPTIONS"))
    return refuse("a path that does not begin with '/'");
  auto question = target.find('?');
  head.path = target.substr(0, question);
  head.has_query = question != std::string_view::npos;
  if (head.has_query) head.query = target.substr(question + 1);
  return {};
}

Status set_destination(const std::optional<std::string>& authority, RequestHead& head) {
  auto hosts = values_of(head.fields, "host");
  if (hosts.size() > 1) return refuse("more than one Host field");
  if (!authority && hosts.empty()) return refuse("a request that does not say for whom it is");
  head.destination = ANCHORHOLD_TRY(
      policy::Destination::parse(authority ? std::string_view(*authority) : hosts[0], https_port));
  if (authority && !hosts.empty()) {
    auto host = ANCHORHOLD_TRY(policy::Destination::parse(hosts[0], https_port));
    if (host != head.destination)
      return refuse(
          fmt::format("the Host field says {} and :authority {}", host.text(), head.destination.text()));
  }
  std::erase_if(head.fields, [](const Field& field) { return field.name == "host"; });
  return {};
}

Status set_framing(RequestHead& head, bool ends) {
  auto lengths = values_of(head.fields, "content-length");
  if (lengths.size() > 1) return refuse("a repeated Content-Length");
  head.body.kind = ends ? BodyFraming::Kind::none : BodyFraming::Kind::chunked;
  if (lengths.empty()) return {};
  auto [end, error] =
      std::from_chars(lengths[0].data(), lengths[0].data() + lengths[0].size(), head.body.length);
  if (lengths[0].empty() || error != std::errc() || end != lengths[0].data() + lengths[0].size())
    return refuse("a Content-Length that is not a number");
  if (!ends) head.body.kind = BodyFraming::Kind::length;
  return {};
}

}  // namespace

Result<RequestHead> request_head_of_http2(std::vector<Field> fields, bool ends) {
  Pseudo pseudo;
  RequestHead head;
  for (Field& field : fields) {
    if (field.name.starts_with(':')) {
      if (!head.fields.empty()) return refuse("a pseudo-header field after the others");
      ANCHORHOLD_CHECK(take_pseudo(pseudo, field));
    } else {
      ANCHORHOLD_CHECK(check_field(field));
      head.fields.push_back(std::move(field));
    }
  }
  if (!pseudo.method || pseudo.method->empty()) return refuse("a request without a method");
  head.method = std::move(*pseudo.method);
  if (head.method == "CONNECT") {
    head.form = RequestHead::Form::connect;
    ANCHORHOLD_CHECK(set_destination(pseudo.authority, head));
    return head;
  }
  if (pseudo.scheme != "https") return refuse("a request for something else than https://");
  if (!pseudo.path) return refuse("a request without a path");
  ANCHORHOLD_CHECK(set_path(*pseudo.path, head));
  ANCHORHOLD_CHECK(set_destination(pseudo.authority, head));
  ANCHORHOLD_CHECK(set_framing(head, ends));
  return head;
}

std::vector<Field> http2_fields_of(const RequestHead& head, bool plain_coding) {
  const policy::Destination& to = head.destination;
  std::vector<Field> fields{{":method", head.method},
                            {":scheme", "https"},
                            {":authority", to.port == https_port ? to.host.text() : to.text()},
                            {":path", head.has_query ? head.path + "?" + head.query : head.path}};
  for (const Field& field : head.fields) {
    if (plain_coding && field.name == "accept-encoding") continue;
    if (field.name == "proxy-authorization") continue;
    fields.push_back(field);
  }
  if (plain_coding) fields.push_back({"accept-encoding", "identity"});
  return fields;
}

Result<Http2Response> response_of_http2(std::vector<Field> fields) {
  Http2Response response;
  for (Field& field : fields) {
    if (field.name == ":status") {
      auto [end, error] =
          std::from_chars(field.value.data(), field.value.data() + field.value.size(), response.status);
      if (error != std::errc() || end != field.value.data() + field.value.size() || response.status < 100 ||
          response.status > 599)
        return refuse("a response without a proper status");
      continue;
    }
    if (field.name.starts_with(':')) return refuse(fmt::format("a response with the field {}", field.name));
    if (std::find(connection_fields.begin(), connection_fields.end(), field.name) != connection_fields.end())
      return refuse(fmt::format("the field {} does not exist in HTTP/2", field.name));
    response.fields.push_back(std::move(field));
  }
  if (response.status == 0) return refuse("a response without a status");
  return response;
}

}  // namespace anchorhold::egress
