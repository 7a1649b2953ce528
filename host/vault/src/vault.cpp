#include "vault/vault.h"

#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
#include <sodium.h>

#include "base/files.h"
#include "base/paths.h"

namespace anchorhold::vault {
namespace {

constexpr const char* list_name = "credentials";

Result<std::filesystem::path> folder_of(const VaultSpec& spec) {
  if (!spec.folder.empty()) return spec.folder;
  return ANCHORHOLD_TRY(config_directory()) / "vault";
}

auto by_name(const std::string& name) {
  return [&name](const Credential& credential) { return credential.name == name; };
}

// What a process that was killed while it wrote has left. With the lock held, nobody writes.
void sweep(const std::filesystem::path& folder) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    std::string name = entry.path().filename().string();
    if (name.starts_with(".secrets.") || name.starts_with(".credentials.") || name.starts_with(".key."))
      std::filesystem::remove(entry.path(), error);
  }
}

Result<FileLock> lock_to_change(const std::filesystem::path& folder) {
  auto lock = FileLock::acquire(folder / "lock", FileLock::Wait::yes);
  if (lock) sweep(folder);
  return lock;
}

Error not_there(const std::string& name) {
  return {ErrorCode::not_found, fmt::format("there is no credential {}", name),
          fmt::format("anchorhold credential add {}", name)};
}

}  // namespace

Result<std::filesystem::path> Vault::list_file(const VaultSpec& spec) {
  return ANCHORHOLD_TRY(folder_of(spec)) / list_name;
}

Result<std::shared_ptr<Vault>> Vault::open(VaultSpec spec) {
  if (sodium_init() < 0) return fail(ErrorCode::internal, "libsodium could not be started");
  spec.folder = ANCHORHOLD_TRY(folder_of(spec));
  ANCHORHOLD_CHECK(make_directories(spec.folder));
  return std::shared_ptr<Vault>(new Vault(std::move(spec)));
}

Result<SecretStore*> Vault::store_of(Store store) {
  std::lock_guard lock(mutex_);
  if (store == Store::secret_service) {
    if (!service_) service_ = ANCHORHOLD_TRY(open_secret_service());
    return service_.get();
  }
  if (!file_) {
    FileStoreSpec spec;
    spec.folder = spec_.folder;
    spec.ask = spec_.ask_passphrase;
    spec.new_with_passphrase = spec_.new_with_passphrase;
    spec.cost = spec_.cost;
    if (const char* named = std::getenv("ANCHORHOLD_VAULT_PASSPHRASE_FILE"); named && *named)
      spec.passphrase_file = named;
    file_ = make_file_store(std::move(spec));
  }
  return file_.get();
}

Result<std::vector<Credential>> Vault::read() const {
  auto path = spec_.folder / list_name;
  auto text = read_file(path, max_catalogue_bytes);
  if (!text && text.error().code == ErrorCode::not_found) return std::vector<Credential>();
  if (!text) return fail(with_context(std::move(text).error(), "reading the credentials"));
  return parse_catalogue(*text, path.string());
}

Status Vault::write(const std::vector<Credential>& credentials) const {
  return write_file_atomic(spec_.folder / list_name, encode_catalogue(credentials), 0600);
}

Result<std::vector<Credential>> Vault::list() const {
  auto credentials = ANCHORHOLD_TRY(read());
  std::sort(credentials.begin(), credentials.end(),
            [](const Credential& a, const Credential& b) { return a.name < b.name; });
  return credentials;
}

Result<Credential> Vault::find(const std::string& name) const {
  auto credentials = ANCHORHOLD_TRY(read());
  auto found = std::find_if(credentials.begin(), credentials.end(), by_name(name));
  if (found == credentials.end()) return fail(not_there(name));
  return std::move(*found);
}

Result<Credential> Vault::add(Credential credential, const Secret& secret, Replace replace,
                              std::int64_t now) {
  ANCHORHOLD_CHECK(complete(credential));
  ANCHORHOLD_CHECK(check_secret(credential.kind, secret.expose()));
  auto among_processes = ANCHORHOLD_TRY(lock_to_change(spec_.folder));
  auto credentials = ANCHORHOLD_TRY(read());
  auto old = std::find_if(credentials.begin(), credentials.end(), by_name(credential.name));
  bool replaces = old != credentials.end();
  if (replaces && replace == Replace::no)
    return fail(ErrorCode::already_exists, fmt::format("there is a credential {} already", credential.name),
                "give --replace, or another name");
  if (!replaces && credentials.size() >= max_credentials)
    return fail(ErrorCode::resource_exhausted, "there are 1000 credentials already");
  SecretStore* store = nullptr;
  credential.store = spec_.store.value_or(Store::secret_service);
  auto chosen = store_of(credential.store);
  if (!chosen && !spec_.store && chosen.error().code == ErrorCode::unavailable) {
    credential.store = Store::file;
    chosen = store_of(Store::file);
  }
  store = ANCHORHOLD_TRY(std::move(chosen));
  credential.created = now;
  credential.tested = credential.tested_status = 0;
  auto put = store->put(credential.name, secret);
  if (!put) return fail(with_context(std::move(put).error(), "storing the secret"));
  std::optional<Store> left;
  if (replaces && old->store != credential.store) left = old->store;
  if (replaces)
    *old = credential;
  else
    credentials.push_back(credential);
  ANCHORHOLD_CHECK(write(credentials));
  if (left) {
    auto other = ANCHORHOLD_TRY(store_of(*left));
    ANCHORHOLD_CHECK(other->remove(credential.name));
  }
  return credential;
}

Status Vault::remove(const std::string& name) {
  auto among_processes = ANCHORHOLD_TRY(lock_to_change(spec_.folder));
  auto credentials = ANCHORHOLD_TRY(read());
  auto found = std::find_if(credentials.begin(), credentials.end(), by_name(name));
  if (found == credentials.end()) return fail(not_there(name));
  auto* store = ANCHORHOLD_TRY(store_of(found->store));
  auto removed = store->remove(name);
  if (!removed) return fail(with_context(std::move(removed).error(), "removing the secret"));
  credentials.erase(found);
  return write(credentials);
}

Status Vault::note_test(const std::string& name, std::int64_t now, int status) {
  auto among_processes = ANCHORHOLD_TRY(lock_to_change(spec_.folder));
  auto credentials = ANCHORHOLD_TRY(read());
  auto found = std::find_if(credentials.begin(), credentials.end(), by_name(name));
  if (found == credentials.end()) return fail(not_there(name));
  found->tested = now;
  found->tested_status = status;
  return write(credentials);
}

Result<Secret> Vault::secret(const std::string& name) {
  auto credential = ANCHORHOLD_TRY(find(name));
  auto* store = ANCHORHOLD_TRY(store_of(credential.store));
  auto secret = store->get(name);
  if (!secret && secret.error().code == ErrorCode::not_found)
    return fail(ErrorCode::not_found, fmt::format("the secret of the credential {} is gone", name),
                fmt::format("anchorhold credential add {} --replace", name));
  if (secret) ANCHORHOLD_CHECK(check_secret(credential.kind, secret->expose()));
  return secret;
}

Status Vault::unlock(const std::vector<Credential>& credentials) {
  for (Store store : {Store::file, Store::secret_service}) {
    bool used = std::any_of(credentials.begin(), credentials.end(),
                            [&](const Credential& credential) { return credential.store == store; });
    if (!used) continue;
    auto* opened = ANCHORHOLD_TRY(store_of(store));
    ANCHORHOLD_CHECK(opened->unlock());
  }
  return {};
}

Status Vault::protect(const AskPassphrase& ask) {
  auto* store = ANCHORHOLD_TRY(store_of(Store::file));
  ANCHORHOLD_CHECK(store->unlock());
  std::optional<Secret> passphrase;
  if (ask) passphrase = ANCHORHOLD_TRY(ask(true));
  // Nobody is kept waiting while a person types.
  auto among_processes = ANCHORHOLD_TRY(lock_to_change(spec_.folder));
  return store->protect(passphrase);
}

}  // namespace anchorhold::vault
