// The short conversations before bytes are passed on: SOCKS5 (RFC 1928, 1929 is not needed) with the program
// in the guest, CONNECT (RFC 9110 9.3.6) with the host. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "names.h"

namespace anchorhold::guest {

inline constexpr std::size_t max_head_bytes = 16 << 10;

// The name that a synthetic address stands for; nothing for one that stands for none.
using FindName = std::function<std::optional<std::string>(std::uint32_t address)>;

// "name:port", "192.0.2.1:443" or "[2001:db8::1]:443" for what a program wants to connect to; nothing when a
// synthetic address stands for no name.
std::optional<std::string> target_of(std::uint32_t address, std::uint16_t port, const FindName& find_name);
std::optional<std::string> target_of(const Address6& address, std::uint16_t port, const FindName& find_name);
std::string connect_request(std::string_view target);

// The head of the host's answer to CONNECT.
struct ConnectReply {
  enum class Kind { incomplete, open, refused, broken };
  Kind kind = Kind::incomplete;
  std::size_t head_bytes = 0;
};
ConnectReply read_connect_reply(std::string_view bytes);

// What the program has said so far, from its first byte.
struct SocksRequest {
  enum class Kind {
    incomplete,
    greeted,  // say socks_greeting, drop `used` bytes and read on
    connect,  // to `target`
    refused,  // say `reply` and close
  };
  Kind kind = Kind::incomplete;
  std::size_t used = 0;
  std::string target;
  std::string reply;
};
SocksRequest read_socks(std::string_view bytes, bool greeted, const FindName& find_name);
inline constexpr std::string_view socks_greeting("\x05\x00", 2);  // no authentication
std::string socks_reply(unsigned char code);
inline constexpr unsigned char socks_ok = 0, socks_failed = 1, socks_not_allowed = 2;

}  // namespace anchorhold::guest
