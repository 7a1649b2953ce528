#include <algorithm>
#include <arpa/inet.h>

#include "policy/destination.h"

namespace anchorhold::policy {
namespace {

struct Block {
  std::array<std::uint8_t, 16> network;
  unsigned prefix;
  AddressClass address_class;
};

bool same_prefix(const std::uint8_t* a, const std::uint8_t* b, unsigned bits) {
  if (!std::equal(a, a + bits / 8, b)) return false;
  unsigned rest = bits % 8;
  return rest == 0 || ((a[bits / 8] ^ b[bits / 8]) >> (8 - rest)) == 0;
}

// The first block that holds an address decides, so the narrower ones stand first.
constexpr Block v4_blocks[] = {
    {{0}, 8, AddressClass::unspecified},
    {{10}, 8, AddressClass::private_use},
    {{100, 100, 100, 200}, 32, AddressClass::metadata},  // Alibaba Cloud, inside 100.64.0.0/10
    {{100, 64}, 10, AddressClass::shared},
    {{127}, 8, AddressClass::loopback},
    {{168, 63, 129, 16}, 32, AddressClass::metadata},  // Azure WireServer
    {{169, 254}, 16, AddressClass::link_local},
    {{172, 16}, 12, AddressClass::private_use},
    {{192, 0, 0, 192}, 32, AddressClass::metadata},  // Oracle Cloud, inside 192.0.0.0/24
    {{192, 0, 0}, 24, AddressClass::reserved},
    {{192, 0, 2}, 24, AddressClass::reserved},
    {{192, 88, 99}, 24, AddressClass::reserved},
    {{192, 168}, 16, AddressClass::private_use},
    {{198, 18}, 15, AddressClass::reserved},
    {{198, 51, 100}, 24, AddressClass::reserved},
    {{203, 0, 113}, 24, AddressClass::reserved},
    {{224}, 4, AddressClass::multicast},
    {{240}, 4, AddressClass::reserved},
};

constexpr Block v6_blocks[] = {
    {{}, 128, AddressClass::unspecified},
    {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, 128, AddressClass::loopback},
    {{0xfd, 0x00, 0x0e, 0xc2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x02, 0x54}, 128, AddressClass::metadata},  // AWS
    {{0xfd, 0x20, 0x00, 0xce, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x02, 0x54},
     128,
     AddressClass::metadata},  // Google
    {{0xfc}, 7, AddressClass::private_use},
    {{0xfe, 0x80}, 10, AddressClass::link_local},
    {{0xfe, 0xc0}, 10, AddressClass::private_use},
    {{0xff}, 8, AddressClass::multicast},
    {{0x01}, 64, AddressClass::reserved},
    {{0x20, 0x01, 0x0d, 0xb8}, 32, AddressClass::reserved},
    {{0x20, 0x01}, 23, AddressClass::reserved},
    {{0x3f, 0xff}, 20, AddressClass::reserved},
    {{0x20}, 3, AddressClass::global},
    {{}, 0, AddressClass::reserved},  // everything outside 2000::/3
};

}  // namespace

std::string_view to_string(AddressClass address_class) {
  switch (address_class) {
    case AddressClass::global:
      return "global";
    case AddressClass::unspecified:
      return "unspecified";
    case AddressClass::loopback:
      return "loopback";
    case AddressClass::link_local:
      return "link-local";
    case AddressClass::metadata:
      return "metadata service";
    case AddressClass::private_use:
      return "private";
    case AddressClass::shared:
      return "carrier-grade NAT";
    case AddressClass::multicast:
      return "multicast";
    case AddressClass::reserved:
      return "reserved";
  }
  return "reserved";
}

Address Address::v4(std::array<std::uint8_t, 4> bytes) {
  Address address;
  std::copy(bytes.begin(), bytes.end(), address.bytes_.begin());
  return address;
}

std::optional<Address> Address::v6(std::array<std::uint8_t, 16> bytes) {
  constexpr std::uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  if (same_prefix(bytes.data(), mapped, 96)) return v4({bytes[12], bytes[13], bytes[14], bytes[15]});
  constexpr std::uint8_t zero[16] = {};
  constexpr std::uint8_t translated[6] = {0x00, 0x64, 0xff, 0x9b, 0x00, 0x01};
  constexpr std::uint8_t six_to_four[2] = {0x20, 0x02};
  constexpr std::uint8_t teredo[4] = {0x20, 0x01, 0x00, 0x00};
  bool compatible = same_prefix(bytes.data(), zero, 96) && (bytes[12] | bytes[13] | bytes[14]) != 0;
  bool siit = same_prefix(bytes.data(), zero, 64) && bytes[8] == 0xff && bytes[9] == 0xff;
  bool nat64 = same_prefix(bytes.data(), translated, 32);
  bool isatap = (bytes[8] & 0xfd) == 0 && bytes[9] == 0 && bytes[10] == 0x5e && bytes[11] == 0xfe;
  if (compatible || siit || nat64 || isatap || same_prefix(bytes.data(), six_to_four, 16) ||
      same_prefix(bytes.data(), teredo, 32))
    return std::nullopt;
  Address address;
  address.v4_ = false;
  address.bytes_ = bytes;
  return address;
}

std::string_view Address::bytes() const {
  return {reinterpret_cast<const char*>(bytes_.data()), v4_ ? 4u : 16u};
}

std::string Address::text() const {
  char buffer[INET6_ADDRSTRLEN] = {};
  // inet_ntop writes RFC 5952 for everything that is not an embedded IPv4 address, and those never get here.
  inet_ntop(v4_ ? AF_INET : AF_INET6, bytes_.data(), buffer, sizeof buffer);
  return buffer;
}

bool Address::shares_prefix(const Address& other, unsigned bits) const {
  return v4_ == other.v4_ && same_prefix(bytes_.data(), other.bytes_.data(), bits);
}

AddressClass classify(const Address& address) {
  auto* bytes = reinterpret_cast<const std::uint8_t*>(address.bytes().data());
  if (address.is_v4()) {
    for (const Block& block : v4_blocks)
      if (same_prefix(bytes, block.network.data(), block.prefix)) return block.address_class;
    return AddressClass::global;
  }
  for (const Block& block : v6_blocks)
    if (same_prefix(bytes, block.network.data(), block.prefix)) return block.address_class;
  return AddressClass::reserved;
}

}  // namespace anchorhold::policy
