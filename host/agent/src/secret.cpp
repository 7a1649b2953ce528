#include "agent/secret.h"

#include <cstring>
#include <utility>

namespace anchorhold::agent {

void wipe(char* bytes, std::size_t size) {
  explicit_bzero(bytes, size);
}

// Also what lies between size and capacity: an earlier, longer value may have been there.
void wipe(std::string& bytes) {
  bytes.resize(bytes.capacity());
  wipe(bytes.data(), bytes.size());
  bytes.clear();
}

Secret::Secret(std::string&& bytes) : bytes_(bytes) {
  wipe(bytes);
}
Secret::Secret(Secret&& other) noexcept : bytes_(other.bytes_) {
  wipe(other.bytes_);
}

Secret& Secret::operator=(Secret&& other) noexcept {
  if (this != &other) {
    wipe(bytes_);
    bytes_ = other.bytes_;
    wipe(other.bytes_);
  }
  return *this;
}

Secret::~Secret() {
  wipe(bytes_);
}

Secret Secret::copy() const {
  return Secret(std::string(bytes_));
}

}  // namespace anchorhold::agent
