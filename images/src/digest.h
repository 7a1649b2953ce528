// SHA-256 of bytes, and the piecewise digest of large files (images/manifest.h, Digest).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/fd.h"
#include "base/id.h"
#include "images/manifest.h"

namespace anchorhold::images {

inline constexpr std::uint64_t digest_piece_bytes = 4 << 20;

// Exactly `bytes` bytes from lower-case hexadecimal digits, or nothing ("").
std::string from_hex(std::string_view digits, std::size_t bytes);
bool is_hex(std::string_view digits, std::size_t count);

class Sha256 {
 public:
  Sha256();
  Sha256(Sha256&&) noexcept;
  ~Sha256();
  void update(const void* bytes, std::size_t size);
  void update(std::string_view bytes) { update(bytes.data(), bytes.size()); }
  std::string finish();  // 32 bytes; the object starts anew

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

// The digest of the first `size` bytes, by several threads. A file that ends earlier is data_loss.
Result<Digest> digest_file(int fd, std::uint64_t size);
// SHA-256 of a whole file, in hexadecimal.
Result<std::string> sha256_file(const std::filesystem::path& path);

}  // namespace anchorhold::images
