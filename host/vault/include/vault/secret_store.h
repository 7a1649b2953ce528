// Where the secrets themselves are.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/secret.h"
#include "vault/vault_file.h"

namespace anchorhold::vault {

// Safe from any thread; every function may block. Who changes something keeps other processes out (Vault).
class SecretStore {
 public:
  virtual ~SecretStore() = default;
  virtual Status put(const std::string& name, const Secret& secret) = 0;
  // not_found when there is none.
  virtual Result<Secret> get(const std::string& name) = 0;
  // Ok also when there is none.
  virtual Status remove(const std::string& name) = 0;
  // Asks now what would have to be asked at the first use.
  virtual Status unlock() = 0;
  // Encrypts what is there anew, with this passphrase or, without one, with a key file; whole or not at all.
  virtual Status protect(const std::optional<Secret>& passphrase) = 0;
};

// Asks a person for the passphrase; `fresh`: a new one, which is asked for twice.
using AskPassphrase = std::function<Result<Secret>(bool fresh)>;

struct FileStoreSpec {
  std::filesystem::path folder;           // holds `secrets` and `key`
  AskPassphrase ask;                      // none: nobody is there to ask
  std::filesystem::path passphrase_file;  // empty: none; else it is read, and nobody is asked
  bool new_with_passphrase = false;       // for a file that is not there yet
  PassphraseCost cost = PassphraseCost::moderate;
};
std::unique_ptr<SecretStore> make_file_store(FileStoreSpec spec);

// unavailable, with the reason, when no Secret Service answers on the session bus. Source: the Secret Service
// API draft 0.2 (freedesktop.org), through libsecret.
Result<std::unique_ptr<SecretStore>> open_secret_service();

}  // namespace anchorhold::vault
