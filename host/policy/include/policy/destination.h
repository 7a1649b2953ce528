// Where a connection goes, as one canonical value. Every host name that a guest, a person, a rule or a server
// writes becomes a Host or a Destination here, or is refused; nothing else in the project parses a host name,
// so two places can never compare two spellings of one.
//
// Sources: RFC 1123 2.1 and RFC 5890 (names), UTS #46 non-transitional through libidn2 (IDNA), WHATWG URL
// Standard "IPv4 parser" (number spellings), RFC 4291 and 5952 (IPv6), IANA special-purpose address
// registries (classes).
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace anchorhold::policy {

// An IPv4 or IPv6 address. An IPv4-mapped IPv6 address is its IPv4 address.
class Address {
 public:
  static Address v4(std::array<std::uint8_t, 4> bytes);
  // Nothing for the forms that hide an IPv4 address in another way (compatible, NAT64, 6to4, Teredo, ISATAP).
  static std::optional<Address> v6(std::array<std::uint8_t, 16> bytes);

  bool is_v4() const { return v4_; }
  // Network order; 4 or 16 bytes.
  std::string_view bytes() const;
  // Dotted decimal, or RFC 5952 without brackets.
  std::string text() const;
  // Of the same family, and alike in the first `bits` bits (at most 32 or 128).
  bool shares_prefix(const Address& other, unsigned bits) const;
  auto operator<=>(const Address&) const = default;

 private:
  bool v4_ = true;
  std::array<std::uint8_t, 16> bytes_{};
};

// What an address is for. Only `global` may be dialled for a name; the others only when a rule names the
// address.
enum class AddressClass {
  global,
  unspecified,
  loopback,
  link_local,   // includes the usual metadata address 169.254.169.254
  metadata,     // metadata services of clouds outside link-local
  private_use,  // RFC 1918, fc00::/7
  shared,       // RFC 6598, carrier-grade NAT
  multicast,
  reserved,  // documentation, benchmarking, future use, broadcast, discard
};
std::string_view to_string(AddressClass address_class);
AddressClass classify(const Address& address);

// A canonical DNS name (lower-case A-labels, no trailing dot) or an address.
class Host {
 public:
  // invalid_argument with the reason for everything that is not exactly one host. Brackets are needed around
  // IPv6.
  static Result<Host> parse(std::string_view text);
  static Host of(const Address& address);

  bool is_name() const { return !address_; }
  const std::optional<Address>& address() const { return address_; }
  // "example.com", "192.0.2.1", "[2001:db8::1]".
  const std::string& text() const { return text_; }
  auto operator<=>(const Host&) const = default;

 private:
  std::string text_;
  std::optional<Address> address_;
};

struct Destination {
  Host host;
  std::uint16_t port = 0;

  // "host:port". Without a port the default is taken; with neither it is refused (a CONNECT target has its
  // port).
  static Result<Destination> parse(std::string_view authority, std::optional<std::uint16_t> default_port);
  std::string text() const;  // always with the port
  auto operator<=>(const Destination&) const = default;
};

// What a rule names: "example.com" (that name only), "*.example.com" (every name below it, not itself), an
// address, or a block of addresses ("192.0.2.0/24", "2001:db8::/32"; bits beyond the prefix must be zero).
class HostPattern {
 public:
  static Result<HostPattern> parse(std::string_view text);
  bool matches(const Host& host) const;
  // Whether the rule names addresses, and so also those that are not global.
  bool names_address() const { return kind_ == Kind::block; }
  const std::string& text() const { return text_; }
  auto operator<=>(const HostPattern&) const = default;

 private:
  enum class Kind { exact, below, block };
  Kind kind_ = Kind::exact;
  std::string text_;
  std::string name_;  // exact: the name; below: ".example.com"
  std::optional<Address> network_;
  unsigned prefix_ = 0;
};

}  // namespace anchorhold::policy
