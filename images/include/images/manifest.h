// What an image is made of: a small JSON document, signed apart (images/signature.h). Parsing it is total:
// any bytes give a manifest that keeps the rules below, or an error.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

namespace anchorhold::images {

// SHA-256 over the SHA-256 digests of the file's 4 MiB pieces in order, as 64 lower-case hexadecimal digits:
// pieces are hashed by several threads. Recomputed by hand: split -b 4M --filter=sha256sum FILE | cut -c1-64
// | xxd -r -p | sha256sum
using Digest = std::string;

struct Component {
  std::string file;  // relative to the store, plain names and '/' only, never "." or ".."
  std::uint64_t size = 0;
  Digest digest;
  auto operator<=>(const Component&) const = default;
};

// dm-verity's parameters (Linux, Documentation/admin-guide/device-mapper/verity.rst): SHA-256, 4096-byte
// blocks, the hash tree without a superblock in the same file behind the data.
struct Verity {
  std::string root_hash;  // 64 hexadecimal digits
  std::string salt;       // hexadecimal
  std::uint64_t data_blocks = 0;
  auto operator<=>(const Verity&) const = default;
};
inline constexpr std::uint64_t verity_block_bytes = 4096;

struct Manifest {
  static constexpr int current_format = 1;
  std::string name;  // the recipe's; [a-z0-9][a-z0-9-]{0,31}
  std::string description;
  std::string kernel_version;  // "6.1.0-anchorhold"
  std::string builder;         // "anchorhold 0.1.0"
  Component kernel;
  Component rootfs;
  Component initrd;
  Verity verity;
  auto operator<=>(const Manifest&) const = default;
};

inline constexpr std::size_t max_manifest_bytes = 64 * 1024;

Result<Manifest> parse_manifest(std::string_view json);
// The same manifest always gives the same bytes.
std::string serialize(const Manifest& manifest);
// Names of images and recipes.
bool is_valid_name(std::string_view name);

}  // namespace anchorhold::images
