// Ed25519 signatures of manifests (libsodium). A person's own images are signed with a key that is made at
// the first build and never leaves the configuration folder; packaged images bring their public key.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace anchorhold::images {

struct PublicKey {
  std::string bytes;  // 32 bytes
  std::string id;     // the first 16 hexadecimal digits of their SHA-256
};

class SigningKey {
 public:
  // Reads the secret key FOLDER/signing.key (0600), or makes it, and its public half FOLDER/trusted/<id>.pub.
  // A key that others can read, or that belongs to somebody else, is refused.
  static Result<SigningKey> load_or_create(const std::filesystem::path& folder);
  SigningKey(SigningKey&&) noexcept;
  SigningKey& operator=(SigningKey&&) noexcept;
  ~SigningKey();  // wipes the secret

  const PublicKey& public_key() const { return public_key_; }
  // The text of a signature file: "anchorhold-ed25519 <key id> <signature>\n".
  std::string sign(std::string_view bytes) const;

 private:
  SigningKey() = default;
  std::string secret_;
  PublicKey public_key_;
};

// All *.pub files of the folders; a folder that does not exist holds none, a malformed file is an error.
Result<std::vector<PublicKey>> load_trusted_keys(const std::vector<std::filesystem::path>& folders);
// The id of the key that signed, or why the signature does not count.
Result<std::string> check_signature(std::string_view bytes, std::string_view signature_text,
                                    const std::vector<PublicKey>& trusted);

}  // namespace anchorhold::images
