// The encrypted file of secrets, as bytes. Pure but for random numbers.
//
// 88 bytes that are not secret, numbers little-endian: "ANCHVLT1"; u32 how the key is made (1 passphrase, 2
// login key); u32 0; u64 and u64 Argon2id's operations and bytes of memory (0 for a login key); 16 bytes
// salt; 16 bytes by which the right key is known; 24 bytes nonce. Then XChaCha20-Poly1305 over the entries,
// padded to 4 KiB so that the length says little; the 88 bytes are authenticated with it. An entry is a u16
// length and a name, a u32 length and a secret; a name of length 0 ends them.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/secret.h"

namespace anchorhold::vault {

enum class KeySource : std::uint32_t { passphrase = 1, login_key = 2 };

// What a passphrase costs to try. `interactive` is for tests.
enum class PassphraseCost { interactive, moderate };

struct VaultHeader {
  KeySource source = KeySource::login_key;
  std::uint64_t operations = 0;
  std::uint64_t memory = 0;
  std::array<unsigned char, 16> salt{};
  std::array<unsigned char, 16> check{};
  std::array<unsigned char, 24> nonce{};

  // Whether the same key belongs to both.
  bool same_key(const VaultHeader& other) const {
    return source == other.source && operations == other.operations && memory == other.memory &&
           salt == other.salt && check == other.check;
  }
};

inline constexpr std::size_t vault_header_bytes = 88;
inline constexpr std::size_t max_vault_bytes = 64u << 20;

using Entries = std::map<std::string, Secret>;

// data_loss for what is no header of ours, or asks for more work than any of ours does.
Result<VaultHeader> parse_vault_header(std::string_view file);

// A header with a fresh salt, and the key that belongs to it. `material` is the passphrase, or the 32 bytes
// of a login key.
struct VaultKey {
  VaultHeader header;
  Secret key;
};
Result<VaultKey> new_vault_key(KeySource source, const Secret& material, PassphraseCost cost);
// permission_denied when the material is not the one the file was made with.
Result<Secret> vault_key(const VaultHeader& header, const Secret& material);

// With a fresh nonce.
std::string seal_vault(const VaultKey& key, const Entries& entries);
// data_loss when a single bit is not what was written.
Result<Entries> open_vault(std::string_view file, const Secret& key);

// What was decrypted. Public for the fuzz target.
Result<Entries> parse_entries(std::string_view bytes);

}  // namespace anchorhold::vault
