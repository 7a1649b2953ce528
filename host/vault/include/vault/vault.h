// The person's credentials: the list of them, and one secret at a time. Several processes may use it at once;
// a change is whole or did not happen. Whatever is not as it was written is an error that names the file and
// what to do, and nothing is given out.
#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/secret.h"
#include "vault/credential.h"
#include "vault/secret_store.h"

namespace anchorhold::vault {

struct VaultSpec {
  std::filesystem::path folder;  // empty: `vault` in config_directory()
  AskPassphrase ask_passphrase;  // none: nobody is there to ask
  // How secrets that are added are kept; none: in the Secret Service where one runs, else in the file.
  std::optional<Store> store;
  bool new_with_passphrase = false;  // a new file of secrets is protected by a passphrase
  PassphraseCost cost = PassphraseCost::moderate;
};

// Safe from any thread; may block for as long as the person takes to unlock a key ring.
class Vault {
 public:
  // Nothing is read or asked yet. The file named by ANCHORHOLD_VAULT_PASSPHRASE_FILE has the passphrase, if
  // there is such a variable.
  static Result<std::shared_ptr<Vault>> open(VaultSpec spec = {});

  // The file whose change tells that the list is another one.
  static Result<std::filesystem::path> list_file(const VaultSpec& spec);
  // By name.
  Result<std::vector<Credential>> list() const;
  // not_found, with what to do.
  Result<Credential> find(const std::string& name) const;
  // The secret is checked against the kind. already_exists unless `replace`. Gives back what was stored.
  enum class Replace { no, yes };
  Result<Credential> add(Credential credential, const Secret& secret, Replace replace, std::int64_t now);
  Status remove(const std::string& name);
  Status note_test(const std::string& name, std::int64_t now, int status);

  // The secret of a credential; not_found, data_loss, permission_denied or unavailable with what to do.
  Result<Secret> secret(const std::string& name);
  // Asks for what the secrets of these need, so that secret() need not.
  Status unlock(const std::vector<Credential>& credentials);
  // The encrypted file under another passphrase, or with `ask` none, under a key file beside it. The present
  // one is asked for first, then the new one; nothing changes unless all of it does. not_found when there is
  // no such file.
  Status protect(const AskPassphrase& ask);

  const std::filesystem::path& folder() const { return spec_.folder; }

 private:
  explicit Vault(VaultSpec spec) : spec_(std::move(spec)) {}
  Result<SecretStore*> store_of(Store store);
  Result<std::vector<Credential>> read() const;
  Status write(const std::vector<Credential>& credentials) const;

  const Undumpable undumpable_;
  VaultSpec spec_;
  std::mutex mutex_;  // guards the next
  std::unique_ptr<SecretStore> file_, service_;
};

}  // namespace anchorhold::vault
