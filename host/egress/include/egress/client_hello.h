// The first message of a TLS client, as far as a proxy that does not open the connection must know it.
// Sources: RFC 8446 4.1.2 and 5.1 (message and records), RFC 6066 3 (server name), RFC 7301 (ALPN), RFC 9849
// (ECH).
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "policy/destination.h"

namespace anchorhold::egress {

// Of the message with its records. Larger ones exist in no client; post-quantum key shares make 2 KiB.
inline constexpr std::size_t max_client_hello_bytes = 32 * 1024;

struct ClientHello {
  std::optional<policy::Host> server_name;  // canonical, and a name
  // It carries an encrypted hello, or bytes that look like one: the name that counts may be another one.
  bool encrypted_hello = false;
  std::vector<std::string> protocols;  // ALPN, in the client's order
};

// Nothing yet: more bytes are needed. An error (invalid_argument) for everything that is not exactly one
// ClientHello, however it is cut into records. Bytes after it are not looked at.
Result<std::optional<ClientHello>> parse_client_hello(std::string_view bytes);

// Whether a connection that begins with this byte can be TLS.
inline bool begins_tls(char first) {
  return first == 0x16;
}

}  // namespace anchorhold::egress
