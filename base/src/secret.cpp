#include "base/secret.h"

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <sodium.h>
#include <sys/prctl.h>
#include <utility>

namespace anchorhold {
namespace {

std::mutex undumpable_mutex;
int undumpable_count = 0;
int dumpable_before = 1;

}  // namespace

void wipe(char* bytes, std::size_t size) {
  explicit_bzero(bytes, size);
}

void wipe(std::string& bytes) {
  bytes.resize(bytes.capacity());
  wipe(bytes.data(), bytes.size());
  bytes.clear();
}

Secret Secret::zeros(std::size_t size) {
  Secret secret;
  if (size == 0) return secret;
  // Guarded memory needs the library's page size and canary; starting it again does nothing.
  if (sodium_init() < 0) std::abort();
  secret.data_ = static_cast<char*>(sodium_malloc(size));
  if (!secret.data_) std::abort();
  secret.size_ = size;
  std::memset(secret.data_, 0, size);
  return secret;
}

Secret Secret::of(std::string_view bytes) {
  Secret secret = zeros(bytes.size());
  if (!bytes.empty()) std::memcpy(secret.data_, bytes.data(), bytes.size());
  return secret;
}

Secret::Secret(std::string&& bytes) : Secret(of(bytes)) {
  wipe(bytes);
}

Secret::Secret(Secret&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Secret& Secret::operator=(Secret&& other) noexcept {
  if (this != &other) {
    release();
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

Secret::~Secret() {
  release();
}

void Secret::release() {
  sodium_free(data_);  // wipes; nothing is nothing
  data_ = nullptr;
  size_ = 0;
}

Undumpable::Undumpable() {
  std::lock_guard lock(undumpable_mutex);
  if (undumpable_count++ > 0) return;
  dumpable_before = prctl(PR_GET_DUMPABLE);
  prctl(PR_SET_DUMPABLE, 0);
}

Undumpable::~Undumpable() {
  std::lock_guard lock(undumpable_mutex);
  // 2 (root only) cannot be set by a program; what was that stays undumpable.
  if (--undumpable_count == 0 && dumpable_before == 1) prctl(PR_SET_DUMPABLE, 1);
}

}  // namespace anchorhold
