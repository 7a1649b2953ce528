// What a file system operation ends in: a value, or the errno value the guest is told. Errors of this kind
// are ordinary answers, not faults, so they carry no text.
#pragma once

#include <cerrno>
#include <tl/expected.hpp>

namespace anchorhold::mounts {

template <typename T>
using Outcome = tl::expected<T, int>;

inline tl::unexpected<int> refuse(int error_number) {
  return tl::unexpected<int>(error_number);
}

}  // namespace anchorhold::mounts

// Evaluates to the value of an Outcome, or returns its errno from the enclosing function.
#define ANCHORHOLD_OUTCOME(...)                                                          \
  (__extension__({                                                                       \
    auto anchorhold_outcome_ = (__VA_ARGS__);                                            \
    if (!anchorhold_outcome_) return ::tl::unexpected<int>(anchorhold_outcome_.error()); \
    std::move(anchorhold_outcome_).value();                                              \
  }))
