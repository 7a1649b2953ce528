// Which synthetic address stands for which name. Programs that know no proxy resolve a name, get an address
// of a range that nothing else uses, and connect to it: by the address the name is known again, and it is
// the name that goes to the host. Pure.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>

namespace anchorhold::guest {

// Of 198.18.0.0/15 (RFC 2544: benchmarks, never routed), without the first block, where the guest's own
// address is.
inline constexpr std::uint32_t first_synthetic_address = 0xc612'0100;
inline constexpr std::uint32_t last_synthetic_address = 0xc613'fffe;
inline constexpr std::uint32_t own_synthetic_address = 0xc612'0001;
inline constexpr bool is_synthetic(std::uint32_t address) {
  return (address >> 17) == (first_synthetic_address >> 17);
}

// The same as IPv6: the IPv4 address in the last 32 bits, in a network of the guest's own (RFC 4193).
using Address6 = std::array<std::uint8_t, 16>;
inline constexpr std::array<std::uint8_t, 12> synthetic_network6{0xfd, 'a', 'n', 'c', 'h', 'o', 'r', 'd'};
Address6 synthetic6(std::uint32_t address);
// The IPv4 address in it; nothing when it is in another network.
std::optional<std::uint32_t> inside_synthetic6(const Address6& address);
// The guest's own, 2001:2::1 (RFC 5180, for benchmarks as well). Not in the network of the names: who sorts
// a name's addresses (RFC 6724, rule 5) takes IPv4 first, as nobody minds.
inline constexpr Address6 own_address6{0x20, 0x01, 0, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};

class NameTable {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Limits {
    std::size_t names = 32'768;
    // A name that was neither asked for nor connected to for so long may make room for another one. Far
    // longer than the time to live of the answers.
    std::chrono::steady_clock::duration unused = std::chrono::minutes(10);
  };
  NameTable() : NameTable(Limits()) {}
  explicit NameTable(Limits limits) : limits_(limits) {}

  // The address of the name, in host order; the same for as long as the name is in use. Nothing when the
  // table is full of names that are.
  std::optional<std::uint32_t> address_of(const std::string& name, Time now);
  std::optional<std::string> name_of(std::uint32_t address, Time now);
  std::size_t size() const { return by_name_.size(); }

 private:
  struct Entry {
    std::string name;
    std::uint32_t address;
    Time used;
  };
  using Place = std::list<Entry>::iterator;
  void use(Place place, Time now);

  const Limits limits_;
  std::list<Entry> entries_;  // the one unused for longest first
  std::map<std::string, Place> by_name_;
  std::map<std::uint32_t, Place> by_address_;
  std::uint32_t next_ = first_synthetic_address;  // addresses are given in turn: a freed one rests longest
};

}  // namespace anchorhold::guest
