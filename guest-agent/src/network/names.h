// Which synthetic address stands for which name. Programs that know no proxy resolve a name, get an address
// of a range that nothing else uses, and connect to it: by the address the name is known again, and it is
// the name that goes to the host. Pure.
#pragma once

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
