// The credentials of one session: those that its rules name, or those of them that were named for it. The
// guest has its token in the variables by which programs know them; a secret leaves the vault for one
// request.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "egress/door.h"
#include "vault/vault.h"

namespace anchorhold::session {

// A credential and the hosts that rules name it for.
struct CredentialUse {
  vault::Credential credential;
  std::vector<policy::EgressRule> rules;
};

// What the guest gets for these: the token, never a secret. A program that knows none of them finds it in
// ANCHORHOLD_TOKEN. Pure.
std::map<std::string, std::string> token_variables(const std::vector<CredentialUse>& uses,
                                                   std::string_view token);

// Every rule that names a credential and may lead somewhere. Pure.
std::vector<policy::EgressRule> rules_with_credentials(const policy::EgressPolicy& rules);

// What takes the place of the token in one request: the secret, or for AWS a key of the request's day, region
// and service; the day is that of `now`.
Result<std::string> material_for(const vault::Credential& credential, const Secret& secret,
                                 const egress::SecretRequest& request,
                                 std::chrono::system_clock::time_point now);

// Safe from any thread.
class Credentials {
 public:
  // `only`: what was named for the session; none: everything that its rules name. The vault is opened when a
  // rule names a credential for the first time.
  Credentials(vault::VaultSpec vault, std::optional<std::vector<std::string>> only)
      : vault_spec_(std::move(vault)), only_(std::move(only)) {}

  // Fills in policy.credentials, for these rules from now on. Gives back what the person should know: which
  // of the credentials that rules name are not there.
  Result<std::vector<std::string>> grant(egress::DoorPolicy& policy);
  // The file that changes when the person's credentials do.
  Result<std::filesystem::path> list_file() const { return vault::Vault::list_file(vault_spec_); }
  // Asks now for what the vault needs; what was granted can be had without a person after that.
  Status unlock();

  std::map<std::string, std::string> variables(std::string_view token) const;
  // Blocks; the caller wipes it.
  Result<std::string> secret(const egress::SecretRequest& request);

 private:
  Result<std::shared_ptr<vault::Vault>> vault();

  const vault::VaultSpec vault_spec_;
  const std::optional<std::vector<std::string>> only_;
  mutable std::mutex mutex_;  // guards what follows
  std::shared_ptr<vault::Vault> vault_;
  std::vector<CredentialUse> granted_;
};

}  // namespace anchorhold::session
