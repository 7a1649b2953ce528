// The addresses of this host's interfaces, by rtnetlink(7): read anew when the kernel says that they changed.
#pragma once

#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "policy/destination.h"

namespace anchorhold::egress {

class OwnAddresses {
 public:
  // Opens the two sockets that are needed later, before the process is sealed.
  static Result<OwnAddresses> open();
  Result<std::vector<policy::Address>> current();
  std::vector<int> descriptors() const { return {questions_.get(), changes_.get()}; }

 private:
  OwnAddresses(UniqueFd questions, UniqueFd changes)
      : questions_(std::move(questions)), changes_(std::move(changes)) {}
  bool changed();
  Result<std::vector<policy::Address>> read_all();

  UniqueFd questions_, changes_;
  bool known_ = false;
  std::uint32_t sequence_ = 0;
  std::vector<policy::Address> addresses_;
};

}  // namespace anchorhold::egress
