// The encrypted file.
#include <algorithm>
#include <cerrno>
#include <fmt/format.h>
#include <mutex>
#include <optional>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"
#include "vault/secret_store.h"

namespace anchorhold::vault {
namespace {

constexpr std::size_t login_key_bytes = 32;
constexpr std::size_t max_passphrase_bytes = 4096;

// A file of ours, which nobody else may read.
Result<std::string> read_private(const std::filesystem::path& path, std::size_t limit) {
  auto text = read_file(path, limit);
  if (!text) return text;
  struct stat info;
  bool open = stat(path.c_str(), &info) != 0 || info.st_uid != geteuid() || (info.st_mode & 077) != 0;
  if (!open) return text;
  wipe(*text);
  return fail(
      ErrorCode::failed_precondition, fmt::format("others can read {}", path.string()),
      fmt::format("make it yours alone (chmod 600 {}), and take its secrets for known", path.string()));
}

// So that a file can hold it and a terminal can take it.
Status check_passphrase(const Secret& passphrase) {
  auto words = passphrase.expose();
  auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (words.empty()) return fail(ErrorCode::invalid_argument, "a passphrase is not empty");
  if (words.size() >= max_passphrase_bytes)
    return fail(ErrorCode::invalid_argument,
                fmt::format("a passphrase is shorter than {} bytes", max_passphrase_bytes));
  if (std::any_of(words.begin(), words.end(), control))
    return fail(ErrorCode::invalid_argument, "a passphrase is one line without control characters");
  return {};
}

class FileStore final : public SecretStore {
 public:
  explicit FileStore(FileStoreSpec spec) : spec_(std::move(spec)) {}

  Status put(const std::string& name, const Secret& secret) override {
    return change([&](Entries& entries) { entries[name] = secret.copy(); }, true);
  }
  Result<Secret> get(const std::string& name) override {
    std::lock_guard lock(mutex_);
    auto entries = ANCHORHOLD_TRY(read());
    if (entries) {
      auto found = entries->find(name);
      if (found != entries->end()) return std::move(found->second);
    }
    return fail(ErrorCode::not_found, fmt::format("{} holds no secret for {}", file().string(), name));
  }
  Status remove(const std::string& name) override {
    return change([&](Entries& entries) { entries.erase(name); }, false);
  }
  Status unlock() override {
    std::lock_guard lock(mutex_);
    auto entries = read();
    if (!entries) return fail(std::move(entries).error());
    return {};
  }
  Status protect(const std::optional<Secret>& passphrase) override;

 private:
  std::filesystem::path file() const { return spec_.folder / "secrets"; }
  std::filesystem::path key_file() const { return spec_.folder / "key"; }

  Status change(const std::function<void(Entries&)>& edit, bool make);
  // Nothing when there is no file.
  Result<std::optional<Entries>> read();
  Result<Secret> material(const VaultHeader& header);
  Result<Secret> passphrase(bool fresh);
  Result<Secret> login_key();
  Result<Secret> make_login_key();
  Status make_key();

  const FileStoreSpec spec_;
  std::mutex mutex_;  // guards the next
  std::optional<VaultKey> key_;
};

Status FileStore::change(const std::function<void(Entries&)>& edit, bool make) {
  std::lock_guard lock(mutex_);
  auto entries = ANCHORHOLD_TRY(read());
  if (!entries) {
    if (!make) return {};
    ANCHORHOLD_CHECK(make_key());
    entries.emplace();
  }
  edit(*entries);
  return write_file_atomic(file(), seal_vault(*key_, *entries), 0600);
}

// The file is replaced as a whole, and the key file that it does not need any more goes after that.
Status FileStore::protect(const std::optional<Secret>& passphrase) {
  std::lock_guard lock(mutex_);
  auto entries = ANCHORHOLD_TRY(read());
  if (!entries)
    return fail(ErrorCode::not_found, fmt::format("there is no encrypted file {} yet", file().string()),
                "anchorhold credential add NAME --passphrase");
  if (passphrase) ANCHORHOLD_CHECK(check_passphrase(*passphrase));
  VaultKey fresh;
  if (passphrase) {
    fresh = ANCHORHOLD_TRY(new_vault_key(KeySource::passphrase, *passphrase, spec_.cost));
  } else {
    Secret key = ANCHORHOLD_TRY(make_login_key());
    fresh = ANCHORHOLD_TRY(new_vault_key(KeySource::login_key, key, spec_.cost));
  }
  ANCHORHOLD_CHECK(write_file_atomic(file(), seal_vault(fresh, *entries), 0600));
  key_ = std::move(fresh);
  if (!passphrase || unlink(key_file().c_str()) == 0 || errno == ENOENT) return {};
  return fail_errno(errno, fmt::format("the passphrase holds, but removing {}", key_file().string()));
}

Result<std::optional<Entries>> FileStore::read() {
  auto damaged = [&](const Error& error) {
    return fail(error.code, fmt::format("{} cannot be used: {}", file().string(), error.message),
                error.code != ErrorCode::permission_denied
                    ? "put back a copy of it, or move it away and add the credentials again"
                : std::filesystem::exists(key_file())
                    ? fmt::format("put back the copy of {} that belongs to it", key_file().string())
                    : "give the right passphrase");
  };
  auto bytes = read_private(file(), max_vault_bytes);
  if (!bytes && bytes.error().code == ErrorCode::not_found) return std::optional<Entries>();
  if (!bytes) return fail(std::move(bytes).error());
  auto header = parse_vault_header(*bytes);
  if (!header) return damaged(header.error());
  if (!key_ || !key_->header.same_key(*header)) {
    auto source = material(*header);
    if (!source) return fail(std::move(source).error());
    auto key = vault_key(*header, *source);
    if (!key) return damaged(key.error());
    key_ = VaultKey{*header, std::move(*key)};
  }
  auto entries = open_vault(*bytes, key_->key);
  if (!entries) return damaged(entries.error());
  return std::optional(std::move(*entries));
}

Result<Secret> FileStore::material(const VaultHeader& header) {
  return header.source == KeySource::passphrase ? passphrase(false) : login_key();
}

Result<Secret> FileStore::passphrase(bool fresh) {
  if (!spec_.passphrase_file.empty()) {
    auto text = read_file(spec_.passphrase_file, max_passphrase_bytes);
    if (!text) return fail(with_context(std::move(text).error(), "reading the passphrase of the vault"));
    while (!text->empty() && (text->back() == '\n' || text->back() == '\r')) text->pop_back();
    if (text->empty())
      return fail(ErrorCode::invalid_argument,
                  fmt::format("the passphrase file {} is empty", spec_.passphrase_file.string()));
    return Secret(std::move(*text));
  }
  if (!spec_.ask)
    return fail(
        ErrorCode::failed_precondition,
        fmt::format("{} is protected by a passphrase, and nobody is there to give it", file().string()),
        "name a file that holds it in ANCHORHOLD_VAULT_PASSPHRASE_FILE, or run this on a terminal");
  return spec_.ask(fresh);
}

Result<Secret> FileStore::login_key() {
  auto bytes = read_private(key_file(), login_key_bytes);
  if (bytes && bytes->size() == login_key_bytes) return Secret(std::move(*bytes));
  std::string hint = fmt::format("put back a copy of {}, or move {} away and add the credentials again",
                                 key_file().string(), file().string());
  if (bytes || bytes.error().code == ErrorCode::resource_exhausted)
    return fail(ErrorCode::data_loss, fmt::format("{} is damaged: it has not 32 bytes", key_file().string()),
                hint);
  if (bytes.error().code == ErrorCode::not_found)
    return fail(ErrorCode::data_loss,
                fmt::format("{} is gone, and with it what {} holds", key_file().string(), file().string()),
                hint);
  return fail(std::move(bytes).error());
}

Result<Secret> FileStore::make_login_key() {
  // One of an earlier file is used again.
  auto there = login_key();
  if (there || std::filesystem::exists(key_file())) return there;
  Secret key = Secret::zeros(login_key_bytes);
  randombytes_buf(key.data(), key.size());
  ANCHORHOLD_CHECK(write_file_atomic(key_file(), key.expose(), 0600));
  return key;
}

Status FileStore::make_key() {
  bool with_passphrase = spec_.new_with_passphrase || !spec_.passphrase_file.empty();
  Secret source = with_passphrase ? ANCHORHOLD_TRY(passphrase(true)) : ANCHORHOLD_TRY(make_login_key());
  auto kind = with_passphrase ? KeySource::passphrase : KeySource::login_key;
  key_ = ANCHORHOLD_TRY(new_vault_key(kind, source, spec_.cost));
  return {};
}

}  // namespace

std::unique_ptr<SecretStore> make_file_store(FileStoreSpec spec) {
  return std::make_unique<FileStore>(std::move(spec));
}

}  // namespace anchorhold::vault
