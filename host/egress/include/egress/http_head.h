// The head of one HTTP/1 message from a guest or a server, read strictly: what two parsers could understand
// in two ways is refused. Sources: RFC 9110, RFC 9112 (framing in section 6), and what request smuggling has
// made of them. Syntax is Boost.Beast's; everything here is about what may be left ambiguous: nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "policy/destination.h"

namespace anchorhold::egress {

inline constexpr std::size_t max_head_bytes = 64 * 1024;
inline constexpr std::size_t max_fields = 200;

struct Field {
  std::string name;  // as sent
  std::string value;
};

// The values of every field of this name (any case), in order.
std::vector<std::string_view> values_of(const std::vector<Field>& fields, std::string_view name);

struct BodyFraming {
  enum class Kind { none, length, chunked, until_close };  // until_close: responses only
  Kind kind = Kind::none;
  std::uint64_t length = 0;
};

struct RequestHead {
  enum class Form {
    connect,   // CONNECT host:port
    absolute,  // GET http://host/path
    origin,    // GET /path, inside an opened connection
  };
  std::string method;
  Form form = Form::origin;
  policy::Destination
      destination;    // connect and absolute: the target; origin: the Host field, with the default port
  std::string path;   // before '?'; "*" of OPTIONS too; empty for connect
  std::string query;  // after '?', without it
  bool has_query = false;
  std::vector<Field> fields;
  BodyFraming body;
  bool http_1_0 = false;
  bool keep_alive = true;
  std::optional<std::string> upgrade;  // lower case, when Connection names it too
  bool expects_continue = false;
};

struct ResponseHead {
  unsigned status = 0;
  std::string reason;
  std::vector<Field> fields;
  BodyFraming body;
  bool http_1_0 = false;
  bool keep_alive = true;
};

template <typename Head>
struct Parsed {
  Head head;
  std::size_t size = 0;  // bytes of the head; what follows is the body or the next message
};

// Nothing yet: more bytes are needed. An error (invalid_argument) ends the connection; its message is for the
// guest. `scheme_default` is the port that a Host field without one means (80, or 443 inside TLS).
using ParsedRequest = Result<std::optional<Parsed<RequestHead>>>;
ParsedRequest parse_request_head(std::string_view bytes, std::uint16_t scheme_default);
// `method` is that of the request it answers: HEAD has no body, CONNECT's is the tunnel.
using ParsedResponse = Result<std::optional<Parsed<ResponseHead>>>;
ParsedResponse parse_response_head(std::string_view bytes, std::string_view method);

}  // namespace anchorhold::egress
