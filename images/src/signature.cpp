#include "images/signature.h"

#include <algorithm>
#include <cerrno>
#include <fmt/format.h>
#include <sodium.h>
#include <sstream>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"
#include "digest.h"

namespace anchorhold::images {
namespace {

constexpr std::string_view scheme = "anchorhold-ed25519";
constexpr std::size_t max_key_file_bytes = 1024;

const unsigned char* as_bytes(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

PublicKey make_public_key(std::string bytes) {
  Sha256 hash;
  hash.update(bytes);
  return {std::move(bytes), to_hex(hash.finish()).substr(0, 16)};
}

Status start_sodium() {
  if (sodium_init() < 0) return fail(ErrorCode::internal, "libsodium does not start");
  return {};
}

// Words of the one line that a key or signature file has.
std::vector<std::string> words_of(std::string_view text) {
  std::istringstream stream{std::string(text)};
  std::vector<std::string> words;
  for (std::string word; stream >> word && words.size() < 4;) words.push_back(word);
  return words;
}

Status check_private(const std::filesystem::path& path) {
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) return fail_errno(errno, fmt::format("reading {}", path.string()));
  if (!S_ISREG(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 077) != 0)
    return fail(
        ErrorCode::permission_denied,
        fmt::format("{} is a secret key that others could have read or replaced", path.string()),
        fmt::format("make it yours and private (chmod 600), or remove it to get a new key and build again"));
  return {};
}

}  // namespace

SigningKey::SigningKey(SigningKey&& other) noexcept
    : secret_(std::exchange(other.secret_, {})), public_key_(std::move(other.public_key_)) {}

SigningKey& SigningKey::operator=(SigningKey&& other) noexcept {
  std::swap(secret_, other.secret_);
  std::swap(public_key_, other.public_key_);
  return *this;
}

SigningKey::~SigningKey() {
  sodium_memzero(secret_.data(), secret_.size());
}

Result<SigningKey> SigningKey::load_or_create(const std::filesystem::path& folder) {
  ANCHORHOLD_CHECK(start_sodium());
  ANCHORHOLD_CHECK(make_directories(folder / "trusted"));
  auto lock = ANCHORHOLD_TRY(FileLock::acquire(folder / "lock", FileLock::Wait::yes));
  auto path = folder / "signing.key";
  SigningKey key;
  key.secret_.resize(crypto_sign_SECRETKEYBYTES);
  auto* secret = reinterpret_cast<unsigned char*>(key.secret_.data());
  std::string public_bytes(crypto_sign_PUBLICKEYBYTES, '\0');
  auto* public_data = reinterpret_cast<unsigned char*>(public_bytes.data());
  if (std::error_code error; !std::filesystem::exists(path, error)) {
    crypto_sign_keypair(public_data, secret);
    ANCHORHOLD_CHECK(write_file_atomic(path, fmt::format("{} {}\n", scheme, to_hex(key.secret_)), 0600));
  } else {
    ANCHORHOLD_CHECK(check_private(path));
    auto words = words_of(ANCHORHOLD_TRY(read_file(path, max_key_file_bytes)));
    auto bytes =
        words.size() == 2 && words[0] == scheme ? from_hex(words[1], crypto_sign_SECRETKEYBYTES) : "";
    if (bytes.empty())
      return fail(ErrorCode::data_loss, fmt::format("{} is not a signing key", path.string()),
                  "remove it to get a new key, then build the images again");
    std::copy(bytes.begin(), bytes.end(), key.secret_.begin());
    crypto_sign_ed25519_sk_to_pk(public_data, secret);
  }
  key.public_key_ = make_public_key(std::move(public_bytes));
  auto public_path = folder / "trusted" / (key.public_key_.id + ".pub");
  if (std::error_code error; !std::filesystem::exists(public_path, error))
    ANCHORHOLD_CHECK(
        write_file_atomic(public_path, fmt::format("{} {}\n", scheme, to_hex(key.public_key_.bytes)), 0644));
  return key;
}

std::string SigningKey::sign(std::string_view bytes) const {
  std::string signature(crypto_sign_BYTES, '\0');
  crypto_sign_detached(reinterpret_cast<unsigned char*>(signature.data()), nullptr, as_bytes(bytes),
                       bytes.size(), as_bytes(secret_));
  return fmt::format("{} {} {}\n", scheme, public_key_.id, to_hex(signature));
}

Result<std::vector<PublicKey>> load_trusted_keys(const std::vector<std::filesystem::path>& folders) {
  std::vector<PublicKey> keys;
  for (const auto& folder : folders) {
    std::error_code error;
    std::filesystem::directory_iterator entries(folder, error);
    if (error == std::errc::no_such_file_or_directory) continue;
    if (error) return fail_errno(error.value(), fmt::format("reading {}", folder.string()));
    for (const auto& entry : entries) {
      if (entry.path().extension() != ".pub") continue;
      auto words = words_of(ANCHORHOLD_TRY(read_file(entry.path(), max_key_file_bytes)));
      auto bytes =
          words.size() == 2 && words[0] == scheme ? from_hex(words[1], crypto_sign_PUBLICKEYBYTES) : "";
      if (bytes.empty())
        return fail(ErrorCode::data_loss, fmt::format("{} is not a public key", entry.path().string()),
                    "remove it");
      keys.push_back(make_public_key(std::move(bytes)));
    }
  }
  return keys;
}

Result<std::string> check_signature(std::string_view bytes, std::string_view signature_text,
                                    const std::vector<PublicKey>& trusted) {
  ANCHORHOLD_CHECK(start_sodium());
  auto words = words_of(signature_text);
  auto signature = words.size() == 3 && words[0] == scheme ? from_hex(words[2], crypto_sign_BYTES) : "";
  if (signature.empty()) return fail(ErrorCode::data_loss, "the signature is malformed");
  auto key =
      std::find_if(trusted.begin(), trusted.end(), [&](const PublicKey& k) { return k.id == words[1]; });
  if (key == trusted.end())
    return fail(ErrorCode::permission_denied, fmt::format("the key \"{}\" that signed is not trusted here",
                                                          is_hex(words[1], 16) ? words[1] : "?"));
  if (crypto_sign_verify_detached(as_bytes(signature), as_bytes(bytes), bytes.size(), as_bytes(key->bytes)) !=
      0)
    return fail(ErrorCode::data_loss, "the signature does not fit: one of the two was changed");
  return key->id;
}

}  // namespace anchorhold::images
