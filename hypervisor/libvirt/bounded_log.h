// A file that keeps the end of what is written to it and never grows beyond its limit.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "base/error.h"
#include "base/fd.h"
#include "base/units.h"

namespace anchorhold::hypervisor {

// Owned by one thread.
class BoundedLog {
 public:
  // Empties a file that is there.
  static Result<BoundedLog> create(const std::filesystem::path& path, ByteSize limit);
  // At the limit the older half is dropped, so that each byte is copied once at most.
  Status append(std::span<const std::byte> bytes);

 private:
  BoundedLog(UniqueFd fd, std::size_t limit) : fd_(std::move(fd)), limit_(limit) {}
  UniqueFd fd_;
  std::size_t limit_;
  std::size_t size_ = 0;
};

}  // namespace anchorhold::hypervisor
