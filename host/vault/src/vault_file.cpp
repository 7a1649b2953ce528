#include "vault/vault_file.h"

#include <cstring>
#include <fmt/format.h>
#include <sodium.h>

namespace anchorhold::vault {
namespace {

constexpr std::string_view magic = "ANCHVLT1";
constexpr std::string_view check_text = "anchorhold vault key";
constexpr std::size_t padding = 4096;
constexpr std::size_t key_bytes = crypto_aead_xchacha20poly1305_ietf_KEYBYTES;
constexpr std::size_t tag_bytes = crypto_aead_xchacha20poly1305_ietf_ABYTES;
constexpr std::size_t login_key_bytes = 32;
constexpr std::uint64_t max_operations = 16;
constexpr std::uint64_t min_memory = 8u << 20, max_memory = 1u << 30;

static_assert(crypto_pwhash_argon2id_SALTBYTES == 16);
static_assert(crypto_aead_xchacha20poly1305_ietf_NPUBBYTES == 24);

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}
unsigned char* bytes_of(Secret& secret) {
  return reinterpret_cast<unsigned char*>(secret.data());
}

tl::unexpected<Error> damaged(std::string_view how) {
  return fail(ErrorCode::data_loss, std::string(how));
}

template <typename T>
void add_number(std::string& text, T value) {
  for (std::size_t i = 0; i < sizeof value; ++i)
    text += static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i) & 0xff);
}

template <typename T>
T number_at(std::string_view text, std::size_t at) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i)
    value |= std::uint64_t{static_cast<unsigned char>(text[at + i])} << (8 * i);
  return static_cast<T>(value);
}

std::string header_text(const VaultHeader& header) {
  std::string text(magic);
  add_number(text, static_cast<std::uint32_t>(header.source));
  add_number(text, std::uint32_t{0});
  add_number(text, header.operations);
  add_number(text, header.memory);
  auto add = [&](const auto& bytes) {
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  add(header.salt);
  add(header.check);
  add(header.nonce);
  return text;
}

// BLAKE2b with the key.
void keyed_hash(unsigned char* out, std::size_t size, std::string_view key, std::string_view text) {
  crypto_generichash(out, size, bytes_of(text), text.size(), bytes_of(key), key.size());
}

std::array<unsigned char, 16> check_of(const Secret& key) {
  std::array<unsigned char, 16> check;
  keyed_hash(check.data(), check.size(), key.expose(), check_text);
  return check;
}

Result<Secret> derive(const VaultHeader& header, const Secret& material) {
  Secret key = Secret::zeros(key_bytes);
  std::string_view words = material.expose();
  if (header.source == KeySource::login_key) {
    if (words.size() != login_key_bytes) return damaged("a login key has 32 bytes");
    keyed_hash(bytes_of(key), key.size(), words,
               {reinterpret_cast<const char*>(header.salt.data()), header.salt.size()});
    return key;
  }
  if (crypto_pwhash(bytes_of(key), key.size(), words.data(), words.size(), header.salt.data(),
                    header.operations, static_cast<std::size_t>(header.memory),
                    crypto_pwhash_ALG_ARGON2ID13) != 0)
    return fail(
        ErrorCode::resource_exhausted,
        fmt::format("there are no {} MiB of memory to check the passphrase with", header.memory >> 20));
  return key;
}

}  // namespace

Result<VaultHeader> parse_vault_header(std::string_view file) {
  if (file.size() < vault_header_bytes + tag_bytes) return damaged("it is too short");
  if (file.size() > max_vault_bytes) return damaged("it is too long");
  if (!file.starts_with(magic)) return damaged("it does not begin as it should");
  VaultHeader header;
  auto source = number_at<std::uint32_t>(file, 8);
  if ((source != 1 && source != 2) || number_at<std::uint32_t>(file, 12) != 0)
    return damaged("its key is made in a way that is not known");
  header.source = static_cast<KeySource>(source);
  header.operations = number_at<std::uint64_t>(file, 16);
  header.memory = number_at<std::uint64_t>(file, 24);
  bool with_passphrase = header.operations >= 1 && header.operations <= max_operations &&
                         header.memory >= min_memory && header.memory <= max_memory;
  bool with_key = header.operations == 0 && header.memory == 0;
  if (header.source == KeySource::passphrase ? !with_passphrase : !with_key)
    return damaged("its key would take more work than any of ours");
  auto take = [&, at = std::size_t{32}](auto& bytes) mutable {
    std::memcpy(bytes.data(), file.data() + at, bytes.size());
    at += bytes.size();
  };
  take(header.salt);
  take(header.check);
  take(header.nonce);
  return header;
}

Result<VaultKey> new_vault_key(KeySource source, const Secret& material, PassphraseCost cost) {
  VaultKey made;
  made.header.source = source;
  if (source == KeySource::passphrase) {
    bool cheap = cost == PassphraseCost::interactive;
    made.header.operations =
        cheap ? crypto_pwhash_argon2id_OPSLIMIT_MIN : crypto_pwhash_argon2id_OPSLIMIT_MODERATE;
    made.header.memory = cheap ? min_memory : crypto_pwhash_argon2id_MEMLIMIT_MODERATE;
  }
  randombytes_buf(made.header.salt.data(), made.header.salt.size());
  made.key = ANCHORHOLD_TRY(derive(made.header, material));
  made.header.check = check_of(made.key);
  return made;
}

Result<Secret> vault_key(const VaultHeader& header, const Secret& material) {
  Secret key = ANCHORHOLD_TRY(derive(header, material));
  auto check = check_of(key);
  if (sodium_memcmp(check.data(), header.check.data(), check.size()) != 0)
    return fail(ErrorCode::permission_denied, header.source == KeySource::passphrase
                                                  ? "the passphrase is not the one"
                                                  : "the login key is not the one");
  return key;
}

std::string seal_vault(const VaultKey& key, const Entries& entries) {
  std::size_t size = 2;
  for (const auto& [name, secret] : entries) size += 2 + name.size() + 4 + secret.size();
  std::size_t padded = (size / padding + 1) * padding;
  Secret plain = Secret::zeros(padded);
  char* at = plain.data();
  auto put = [&](std::string_view bytes) {
    std::memcpy(at, bytes.data(), bytes.size());
    at += bytes.size();
  };
  for (const auto& [name, secret] : entries) {
    std::string lengths;
    add_number(lengths, static_cast<std::uint16_t>(name.size()));
    put(lengths);
    put(name);
    lengths.clear();
    add_number(lengths, static_cast<std::uint32_t>(secret.size()));
    put(lengths);
    put(secret.expose());
  }
  VaultHeader header = key.header;
  randombytes_buf(header.nonce.data(), header.nonce.size());
  std::string file = header_text(header);
  file.resize(vault_header_bytes + padded + tag_bytes);
  unsigned long long written = 0;
  crypto_aead_xchacha20poly1305_ietf_encrypt(
      reinterpret_cast<unsigned char*>(file.data()) + vault_header_bytes, &written, bytes_of(plain.expose()),
      padded, bytes_of(file), vault_header_bytes, nullptr, header.nonce.data(), bytes_of(key.key.expose()));
  return file;
}

Result<Entries> open_vault(std::string_view file, const Secret& key) {
  VaultHeader header = ANCHORHOLD_TRY(parse_vault_header(file));
  if (key.size() != key_bytes) return damaged("its key has another length");
  std::string_view cipher = file.substr(vault_header_bytes);
  Secret plain = Secret::zeros(cipher.size());
  unsigned long long size = 0;
  if (crypto_aead_xchacha20poly1305_ietf_decrypt(bytes_of(plain), &size, nullptr, bytes_of(cipher),
                                                 cipher.size(), bytes_of(file), vault_header_bytes,
                                                 header.nonce.data(), bytes_of(key.expose())) != 0)
    return damaged("its bytes are not those that were written");
  return parse_entries(plain.expose().substr(0, static_cast<std::size_t>(size)));
}

Result<Entries> parse_entries(std::string_view bytes) {
  Entries entries;
  std::size_t at = 0;
  auto left = [&] { return bytes.size() - at; };
  for (;;) {
    if (left() < 2) return damaged("its entries do not end");
    std::size_t name_size = number_at<std::uint16_t>(bytes, at);
    at += 2;
    if (name_size == 0) break;
    if (left() < name_size + 4) return damaged("an entry is cut");
    std::string name(bytes.substr(at, name_size));
    at += name_size;
    std::size_t secret_size = number_at<std::uint32_t>(bytes, at);
    at += 4;
    if (left() < secret_size) return damaged("an entry is cut");
    if (!entries.emplace(std::move(name), Secret::of(bytes.substr(at, secret_size))).second)
      return damaged("an entry stands twice");
    at += secret_size;
  }
  for (; at < bytes.size(); ++at)
    if (bytes[at] != 0) return damaged("something follows its entries");
  return entries;
}

}  // namespace anchorhold::vault
