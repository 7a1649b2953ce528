#include "egress/client_hello.h"

#include <algorithm>
#include <fmt/format.h>

namespace anchorhold::egress {
namespace {

constexpr std::size_t record_header = 5, message_header = 4;
constexpr std::size_t max_record = 1u << 14;
constexpr unsigned handshake_record = 22, client_hello_message = 1;
constexpr unsigned server_name = 0, alpn = 16, encrypted_client_hello = 0xfe0d;

tl::unexpected<Error> refuse(std::string what) {
  return fail(ErrorCode::invalid_argument, std::move(what));
}

unsigned number(std::string_view bytes) {
  unsigned value = 0;
  for (char c : bytes) value = value << 8 | static_cast<unsigned char>(c);
  return value;
}

// Takes fields off the front; once something does not fit, everything after is empty and ok() is false.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : rest_(bytes) {}
  std::string_view take(std::size_t size) {
    if (size > rest_.size()) {
      ok_ = false;
      rest_ = {};
      return {};
    }
    auto taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }
  unsigned take_number(std::size_t size) { return number(take(size)); }
  // A vector with its length in front of it.
  std::string_view take_vector(std::size_t length_size) { return take(take_number(length_size)); }
  bool empty() const { return rest_.empty(); }
  bool ok() const { return ok_; }

 private:
  std::string_view rest_;
  bool ok_ = true;
};

// The handshake message, put together from its records; nothing yet when more bytes are needed.
Result<std::optional<std::string>> reassembled(std::string_view bytes) {
  std::string message;
  for (;;) {
    if (!bytes.empty() && number(bytes.substr(0, 1)) != handshake_record)
      return refuse("the connection does not begin with a TLS handshake");
    if (bytes.size() >= 2 && bytes[1] != 3) return refuse("a TLS record of an unknown version");
    if (bytes.size() < record_header) return std::optional<std::string>();
    std::size_t size = number(bytes.substr(3, 2));
    if (size == 0 || size > max_record) return refuse(fmt::format("a TLS record of {} bytes", size));
    bytes.remove_prefix(record_header);
    message.append(bytes.substr(0, size));
    if (!message.empty() && number(std::string_view(message).substr(0, 1)) != client_hello_message)
      return refuse("the TLS handshake does not begin with a ClientHello");
    if (message.size() >= message_header) {
      std::size_t wanted = message_header + number(std::string_view(message).substr(1, 3));
      if (wanted > max_client_hello_bytes)
        return refuse(fmt::format("a ClientHello of more than {} bytes", max_client_hello_bytes));
      if (message.size() > wanted) return refuse("a TLS record with more than the ClientHello");
      if (message.size() == wanted) return std::optional(message.substr(message_header));
    }
    if (bytes.size() < size) return std::optional<std::string>();
    bytes.remove_prefix(size);
  }
}

Status read_server_name(std::string_view extension, ClientHello& hello) {
  Fields fields(extension);
  Fields names(fields.take_vector(2));
  unsigned type = names.take_number(1);
  std::string_view name = names.take_vector(2);
  if (!fields.ok() || !names.ok() || !fields.empty() || !names.empty() || type != 0)
    return refuse("a server name that is not exactly one host name");
  auto host = policy::Host::parse(name);
  if (!host) return fail(with_context(std::move(host).error(), "the server name in the ClientHello"));
  if (!host->is_name()) return refuse("a server name that is an address");
  hello.server_name = std::move(*host);
  return {};
}

Status read_protocols(std::string_view extension, ClientHello& hello) {
  Fields fields(extension);
  Fields names(fields.take_vector(2));
  while (!names.empty()) {
    std::string_view name = names.take_vector(1);
    if (name.empty()) return refuse("an ALPN list that is not well formed");
    hello.protocols.emplace_back(name);
  }
  if (!fields.ok() || !names.ok() || !fields.empty() || hello.protocols.empty())
    return refuse("an ALPN list that is not well formed");
  return {};
}

Status read_extensions(std::string_view bytes, ClientHello& hello) {
  Fields fields(bytes);
  std::vector<unsigned> seen;
  while (!fields.empty()) {
    unsigned type = fields.take_number(2);
    std::string_view extension = fields.take_vector(2);
    if (!fields.ok()) return refuse("a ClientHello whose extensions do not fit");
    if (std::find(seen.begin(), seen.end(), type) != seen.end())
      return refuse("a ClientHello with an extension twice");
    seen.push_back(type);
    if (type == server_name) ANCHORHOLD_CHECK(read_server_name(extension, hello));
    if (type == alpn) ANCHORHOLD_CHECK(read_protocols(extension, hello));
    if (type == encrypted_client_hello) hello.encrypted_hello = true;
  }
  return {};
}

}  // namespace

Result<std::optional<ClientHello>> parse_client_hello(std::string_view bytes) {
  auto message = ANCHORHOLD_TRY(reassembled(bytes));
  if (!message) {
    if (bytes.size() > 2 * max_client_hello_bytes) return refuse("a ClientHello in too many records");
    return std::optional<ClientHello>();
  }
  Fields fields(*message);
  ClientHello hello;
  fields.take(2 + 32);  // legacy version, random
  if (fields.take_vector(1).size() > 32) return refuse("a ClientHello with a session id that is too long");
  auto suites = fields.take_vector(2);
  auto compressions = fields.take_vector(1);
  if (!fields.ok() || suites.size() < 2 || suites.size() % 2 != 0 || compressions.empty())
    return refuse("a ClientHello that is not well formed");
  if (fields.empty()) return std::optional(std::move(hello));
  std::string_view extensions = fields.take_vector(2);
  if (!fields.ok() || !fields.empty()) return refuse("a ClientHello whose extensions do not fit");
  ANCHORHOLD_CHECK(read_extensions(extensions, hello));
  return std::optional(std::move(hello));
}

}  // namespace anchorhold::egress
