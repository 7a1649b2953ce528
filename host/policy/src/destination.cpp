#include "policy/destination.h"

#include <algorithm>
#include <arpa/inet.h>
#include <charconv>
#include <fmt/format.h>
#include <idn2.h>
#include <memory>

namespace anchorhold::policy {
namespace {

constexpr std::size_t max_name = 253;
constexpr std::size_t max_label = 63;
constexpr std::size_t max_input = 1024;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_letter(char c) {
  return c >= 'a' && c <= 'z';
}

// Text from a guest in a message for a person: printable, bounded.
std::string shown(std::string_view text) {
  std::string result;
  for (char c : text.substr(0, 100)) {
    if (c >= 0x20 && c < 0x7f) {
      result += c;
    } else {
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  return text.size() > 100 ? result + "…" : result;
}

tl::unexpected<Error> refuse(std::string_view text, std::string_view why) {
  return fail(ErrorCode::invalid_argument, fmt::format("'{}' is not a host: {}", shown(text), why));
}

// One number of an IPv4 address as inet_aton and browsers read it: decimal, 0x hexadecimal, 0 octal.
std::optional<std::uint64_t> ipv4_number(std::string_view part) {
  int base = 10;
  if (part.size() >= 2 && part[0] == '0' && (part[1] == 'x' || part[1] == 'X')) {
    part.remove_prefix(2);
    base = 16;
    if (part.empty()) return 0;
  } else if (part.size() >= 2 && part[0] == '0') {
    part.remove_prefix(1);
    base = 8;
  }
  std::uint64_t value = 0;
  auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value, base);
  if (part.empty() || error != std::errc() || end != part.data() + part.size()) return std::nullopt;
  return value;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    auto position = text.find(separator);
    parts.push_back(text.substr(0, position));
    if (position == std::string_view::npos) return parts;
    text.remove_prefix(position + 1);
  }
}

// WHATWG "ends in a number": then it is an IPv4 address or nothing.
bool looks_like_ipv4(const std::vector<std::string_view>& labels) {
  std::string_view last = labels.back();
  return !last.empty() && (std::all_of(last.begin(), last.end(), is_digit) || ipv4_number(last));
}

std::optional<Address> parse_ipv4(const std::vector<std::string_view>& parts) {
  if (parts.size() > 4) return std::nullopt;
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    auto number = ipv4_number(parts[i]);
    bool last = i + 1 == parts.size();
    unsigned remaining_bytes = static_cast<unsigned>(4 - i);
    if (!number || *number >= (last ? 1ull << (8 * remaining_bytes) : 256ull)) return std::nullopt;
    value |= last ? *number : *number << (8 * (remaining_bytes - 1));
  }
  return Address::v4({static_cast<std::uint8_t>(value >> 24), static_cast<std::uint8_t>(value >> 16),
                      static_cast<std::uint8_t>(value >> 8), static_cast<std::uint8_t>(value)});
}

Result<Address> parse_ipv6(std::string_view whole, std::string_view inside) {
  std::array<std::uint8_t, 16> bytes;
  if (inside.find('\0') != std::string_view::npos ||
      inet_pton(AF_INET6, std::string(inside).c_str(), bytes.data()) != 1)
    return refuse(whole, "it is not an IPv6 address (zone ids are not allowed)");
  auto address = Address::v6(bytes);
  if (!address) return refuse(whole, "an IPv4 address inside an IPv6 address must be written as IPv4");
  return *address;
}

const char* wrong_label(std::string_view label) {
  if (label.empty()) return "it has an empty label";
  if (label.size() > max_label) return "a label is longer than 63 characters";
  if (label.front() == '-' || label.back() == '-') return "a label begins or ends with a hyphen";
  if (label.front() == '_' || label.back() == '_') return "a label begins or ends with an underscore";
  for (char c : label)
    if (!is_letter(c) && !is_digit(c) && c != '-' && c != '_')
      return "it has a character that no host name has";
  return nullptr;
}

// U-labels and upper case to A-labels. What libidn2 refuses is refused.
Result<std::string> to_a_labels(std::string_view text) {
  char* converted = nullptr;
  std::string input(text);
  int status =
      idn2_lookup_u8(reinterpret_cast<const std::uint8_t*>(input.c_str()),
                     reinterpret_cast<std::uint8_t**>(&converted), IDN2_NFC_INPUT | IDN2_NONTRANSITIONAL);
  std::unique_ptr<char, void (*)(void*)> owned(converted, idn2_free);
  if (status != IDN2_OK) return refuse(text, idn2_strerror(status));
  return std::string(converted);
}

// An A-label must be what its own U-label becomes, or two spellings would exist for one name.
bool a_labels_round_trip(const std::string& name) {
  char* unicode = nullptr;
  int status = idn2_to_unicode_8z8z(name.c_str(), &unicode, IDN2_NONTRANSITIONAL);
  std::unique_ptr<char, void (*)(void*)> owned(unicode, idn2_free);
  if (status != IDN2_OK) return false;
  auto back = to_a_labels(unicode);
  return back && *back == name;
}

}  // namespace

Result<Host> Host::parse(std::string_view text) {
  if (text.empty()) return refuse(text, "it is empty");
  if (text.size() > max_input) return refuse(text, "it is too long");
  if (text.front() == '[') {
    if (text.back() != ']') return refuse(text, "the bracket is not closed");
    return of(ANCHORHOLD_TRY(parse_ipv6(text, text.substr(1, text.size() - 2))));
  }
  for (char c : text) {
    if (static_cast<unsigned char>(c) <= 0x20 || c == 0x7f)
      return refuse(text, "it has a space or a control character");
    if (c == '%' || c == '@' || c == ':' || c == '/' || c == '\\' || c == '?' || c == '#' || c == '[' ||
        c == ']')
      return refuse(text, fmt::format("it has a '{}'", c));
  }
  std::string name(text);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  if (std::any_of(name.begin(), name.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; }))
    name = ANCHORHOLD_TRY(to_a_labels(name));
  if (name.ends_with('.')) name.pop_back();  // nothing may be left of what was converted
  if (name.size() > max_name) return refuse(text, "it is longer than 253 characters");
  auto labels = split(name, '.');
  if (looks_like_ipv4(labels)) {
    auto address = parse_ipv4(labels);
    if (!address) return refuse(text, "it ends in a number and is not an IPv4 address");
    return of(*address);
  }
  bool has_a_label = false;
  for (std::string_view label : labels) {
    if (const char* why = wrong_label(label)) return refuse(text, why);
    has_a_label |= label.starts_with("xn--");
  }
  if (has_a_label && !a_labels_round_trip(name))
    return refuse(text, "it is not a valid internationalised name");
  Host host;
  host.text_ = std::move(name);
  return host;
}

Host Host::of(const Address& address) {
  Host host;
  host.address_ = address;
  host.text_ = address.is_v4() ? address.text() : "[" + address.text() + "]";
  return host;
}

Result<Destination> Destination::parse(std::string_view authority,
                                       std::optional<std::uint16_t> default_port) {
  if (authority.size() > max_input) return refuse(authority, "it is too long");
  auto bracket = authority.rfind(']');
  auto colon = authority.find(':', bracket == std::string_view::npos ? 0 : bracket);
  Destination destination;
  destination.host = ANCHORHOLD_TRY(Host::parse(authority.substr(0, colon)));
  if (colon == std::string_view::npos) {
    if (!default_port) return refuse(authority, "the port is missing");
    destination.port = *default_port;
    return destination;
  }
  std::string_view port = authority.substr(colon + 1);
  unsigned value = 0;
  auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), value);
  if (port.empty() || port.size() > 5 || !is_digit(port[0]) || error != std::errc() ||
      end != port.data() + port.size() || value == 0 || value > 65535)
    return refuse(authority, "the port is not a number from 1 to 65535");
  destination.port = static_cast<std::uint16_t>(value);
  return destination;
}

std::string Destination::text() const {
  return fmt::format("{}:{}", host.text(), port);
}

Result<HostPattern> HostPattern::parse(std::string_view text) {
  HostPattern pattern;
  if (text.starts_with("*.")) {
    Host host = ANCHORHOLD_TRY(Host::parse(text.substr(2)));
    if (!host.is_name()) return refuse(text, "a wildcard stands before a name, not before an address");
    if (host.text().find('.') == std::string::npos)
      return refuse(text, "a wildcard needs at least two labels below it");
    pattern.kind_ = Kind::below;
    pattern.name_ = "." + host.text();
    pattern.text_ = "*" + pattern.name_;
    return pattern;
  }
  if (text.find('*') != std::string_view::npos)
    return refuse(text, "a wildcard is '*.' at the beginning, nothing else");
  auto slash = text.rfind('/');
  std::string_view network = text.substr(0, slash);
  // In a rule an IPv6 address needs no brackets: no port follows.
  bool bare_v6 = network.find(':') != std::string_view::npos && !network.starts_with("[");
  Host host = ANCHORHOLD_TRY(Host::parse(bare_v6 ? fmt::format("[{}]", network) : std::string(network)));
  if (host.is_name()) {
    if (slash != std::string_view::npos) return refuse(text, "a prefix length stands after an address only");
    pattern.name_ = pattern.text_ = host.text();
    return pattern;
  }
  unsigned bits = host.address()->is_v4() ? 32 : 128;
  pattern.kind_ = Kind::block;
  pattern.network_ = host.address();
  pattern.prefix_ = bits;
  if (slash != std::string_view::npos) {
    std::string_view length = text.substr(slash + 1);
    auto [end, error] = std::from_chars(length.data(), length.data() + length.size(), pattern.prefix_);
    if (length.empty() || error != std::errc() || end != length.data() + length.size() ||
        pattern.prefix_ > bits)
      return refuse(text, fmt::format("the prefix length is not a number from 0 to {}", bits));
    std::string_view bytes = host.address()->bytes();
    for (unsigned bit = pattern.prefix_; bit < bits; ++bit)
      if (static_cast<unsigned char>(bytes[bit / 8]) >> (7 - bit % 8) & 1)
        return refuse(text, "bits beyond the prefix length are set");
  }
  pattern.text_ = host.text();
  if (pattern.prefix_ != bits) pattern.text_ = fmt::format("{}/{}", host.address()->text(), pattern.prefix_);
  return pattern;
}

bool HostPattern::matches(const Host& host) const {
  switch (kind_) {
    case Kind::exact:
      return host.is_name() && host.text() == name_;
    case Kind::below:
      return host.is_name() && host.text().size() > name_.size() && host.text().ends_with(name_);
    case Kind::block:
      break;
  }
  return host.address() && host.address()->shares_prefix(*network_, prefix_);
}

}  // namespace anchorhold::policy
