#include "names.h"

#include <algorithm>

namespace anchorhold::guest {

Address6 synthetic6(std::uint32_t address) {
  Address6 whole{};
  std::copy(synthetic_network6.begin(), synthetic_network6.end(), whole.begin());
  for (std::size_t i = 0; i < 4; ++i) whole[12 + i] = static_cast<std::uint8_t>(address >> (24 - 8 * i));
  return whole;
}

std::optional<std::uint32_t> inside_synthetic6(const Address6& address) {
  if (!std::equal(synthetic_network6.begin(), synthetic_network6.end(), address.begin())) return std::nullopt;
  std::uint32_t inside = 0;
  for (std::size_t i = 12; i < address.size(); ++i) inside = inside << 8 | address[i];
  return inside;
}

void NameTable::use(Place place, Time now) {
  place->used = now;
  entries_.splice(entries_.end(), entries_, place);
}

std::optional<std::uint32_t> NameTable::address_of(const std::string& name, Time now) {
  if (auto found = by_name_.find(name); found != by_name_.end()) {
    use(found->second, now);
    return found->second->address;
  }
  if (entries_.size() >= limits_.names) {
    if (entries_.empty() || now - entries_.front().used < limits_.unused) return std::nullopt;
    by_name_.erase(entries_.front().name);
    by_address_.erase(entries_.front().address);
    entries_.pop_front();
  }
  // There are more addresses than names.
  while (by_address_.contains(next_))
    next_ = next_ == last_synthetic_address ? first_synthetic_address : next_ + 1;
  Place place = entries_.insert(entries_.end(), {name, next_, now});
  by_name_.emplace(name, place);
  by_address_.emplace(next_, place);
  next_ = next_ == last_synthetic_address ? first_synthetic_address : next_ + 1;
  return place->address;
}

std::optional<std::string> NameTable::name_of(std::uint32_t address, Time now) {
  auto found = by_address_.find(address);
  if (found == by_address_.end()) return std::nullopt;
  use(found->second, now);
  return found->second->name;
}

}  // namespace anchorhold::guest
