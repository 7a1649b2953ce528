// anchorhold credential: what is in the vault.
#include <cstdlib>
#include <ctime>
#include <fmt/format.h>
#include <unistd.h>

#include "base/paths.h"
#include "commands.h"
#include "credential_probe.h"
#include "policy/person_rules.h"
#include "secret_input.h"
#include "session/credentials.h"
#include "vault/vault.h"

namespace anchorhold::cli {
namespace {

std::string day_of(std::int64_t seconds) {
  std::time_t time = static_cast<std::time_t>(seconds);
  std::tm local{};
  localtime_r(&time, &local);
  return fmt::format("{:04}-{:02}-{:02}", local.tm_year + 1900, local.tm_mon + 1, local.tm_mday);
}

std::string described(const vault::Credential& credential) {
  std::string text = fmt::format("{}  {}", credential.name, vault::to_string(credential.kind));
  for (const std::string* part :
       {&credential.user, &credential.header, &credential.region, &credential.service})
    if (!part->empty()) text += fmt::format(" {}", *part);
  text += fmt::format("  ({}, added {}", vault::to_string(credential.store), day_of(credential.created));
  if (credential.tested != 0)
    text += fmt::format(", tested {}: {}", day_of(credential.tested), credential.tested_status);
  return text + ")";
}

Json to_json(const vault::Credential& credential) {
  return Json{{"type", "credential"},
              {"name", credential.name},
              {"kind", vault::to_string(credential.kind)},
              {"user", credential.user},
              {"header", credential.header},
              {"region", credential.region},
              {"service", credential.service},
              {"variables", credential.variables},
              {"store", vault::to_string(credential.store)},
              {"created", credential.created},
              {"tested", credential.tested},
              {"tested_status", credential.tested_status}};
}

Result<std::shared_ptr<vault::Vault>> open_vault(const CredentialCommand& command) {
  vault::VaultSpec spec;
  spec.ask_passphrase = ask_passphrase;
  spec.store = command.passphrase && !command.store ? vault::Store::file : command.store;
  spec.new_with_passphrase = command.passphrase;
  return vault::Vault::open(std::move(spec));
}

Result<Secret> read_secret(vault::Kind kind) {
  if (isatty(STDIN_FILENO) == 0) return read_secret_input(vault::max_secret_bytes);
  if (kind != vault::Kind::aws_sigv4) return ask_secret("Secret");
  Secret key = ANCHORHOLD_TRY(ask_secret("Secret access key"));
  Secret token = ANCHORHOLD_TRY(ask_secret("Session token, or nothing"));
  if (token.empty()) return key;
  Secret both = Secret::zeros(key.size() + 1 + token.size());
  key.expose().copy(both.data(), key.size());
  both.data()[key.size()] = '\n';
  token.expose().copy(both.data() + key.size() + 1, token.size());
  return both;
}

Result<int> add(const CredentialCommand& command, Console& console) {
  // What was typed wrong is said before the secret is asked for.
  auto credential = command.credential;
  ANCHORHOLD_CHECK(vault::complete(credential));
  auto opened = ANCHORHOLD_TRY(open_vault(command));
  Secret secret = ANCHORHOLD_TRY(read_secret(credential.kind));
  auto replace = command.replace ? vault::Vault::Replace::yes : vault::Vault::Replace::no;
  auto added = ANCHORHOLD_TRY(opened->add(std::move(credential), secret, replace, std::time(nullptr)));
  console.object(to_json(added));
  console.line(described(added));
  bool with_key = added.store == vault::Store::file && std::filesystem::exists(opened->folder() / "key");
  if (with_key)
    console.note(fmt::format("note: it is encrypted with the key in {}: whoever reads your files has both",
                             (opened->folder() / "key").string()));
  return exit_status::ok;
}

Result<int> list(Console& console, vault::Vault& opened) {
  auto all = ANCHORHOLD_TRY(opened.list());
  for (const auto& credential : all) {
    console.object(to_json(credential));
    console.line(described(credential));
  }
  if (all.empty()) console.note("there are no credentials: anchorhold credential add NAME");
  return exit_status::ok;
}

// Where the first rule that names it leads.
Result<std::string> first_address(const policy::EgressPolicy& rules, const std::string& name) {
  for (const auto& rule : session::rules_with_credentials(rules)) {
    if (rule.credential != name || rule.host.text().starts_with("*")) continue;
    std::uint16_t port = 443;
    if (std::find(rule.ports.begin(), rule.ports.end(), port) == rule.ports.end()) port = rule.ports.front();
    std::string path = rule.paths.empty() ? "/" : rule.paths.front();
    if (path.ends_with('*')) path.pop_back();
    return fmt::format("https://{}:{}{}", rule.host.text(), port, path);
  }
  return fail(
      ErrorCode::not_found, fmt::format("no rule names {} for one host", name),
      fmt::format("name it in a rule of config.toml, credential = \"{}\", or give an address below one "
                  "that does",
                  name));
}

// Only where its rules let a guest use it.
Status judge(const policy::EgressPolicy& rules, const std::string& name, ProbeTarget& target) {
  auto destination = ANCHORHOLD_TRY(policy::Destination::parse(target.host, 443));
  auto decision = policy::decide(rules, destination, policy::Person::present);
  if (decision.action == policy::EgressAction::deny || !decision.rule || decision.rule->credential != name)
    return fail(ErrorCode::permission_denied,
                fmt::format("no rule gives {} to {} ({})", name, destination.text(), decision.reason));
  const auto& methods = decision.rule->methods;
  auto allows = [&](std::string_view method) {
    return methods.empty() || std::find(methods.begin(), methods.end(), method) != methods.end();
  };
  target.method = allows("GET") ? "GET" : "HEAD";
  policy::RequestFacts facts{target.method, target.path.substr(0, target.path.find('?')), {}, 0};
  return policy::judge_request(*decision.rule, facts);
}

Result<int> test(const CredentialCommand& command, Console& console, vault::Vault& opened) {
  const std::string& name = command.credential.name;
  auto credential = ANCHORHOLD_TRY(opened.find(name));
  policy::EgressPolicy rules;
  auto folder = ANCHORHOLD_TRY(config_directory());
  auto person = ANCHORHOLD_TRY(policy::load_person_rules(folder));
  policy::apply(person, rules);
  std::string url = command.url;
  if (url.empty()) url = ANCHORHOLD_TRY(first_address(rules, name));
  auto target = ANCHORHOLD_TRY(probe_target(url));
  ANCHORHOLD_CHECK(judge(rules, name, target));
  egress::TrustSpec trust;
  trust.extra_ca = person.configured.extra_ca;
  std::string certificates = ANCHORHOLD_TRY(trust.pem());
  auto secret = ANCHORHOLD_TRY(opened.secret(name));
  int status = ANCHORHOLD_TRY(probe(target, credential, secret, certificates));
  ANCHORHOLD_CHECK(opened.note_test(name, std::time(nullptr), status));
  console.object(Json{{"type", "credential_test"},
                      {"name", name},
                      {"method", target.method},
                      {"url", target.url},
                      {"status", status}});
  console.line(fmt::format("{}: {} {} answered {}", name, target.method, target.url, status));
  return status < 400 ? exit_status::ok : exit_status::not_completed;
}

Result<int> change_passphrase(const CredentialCommand& command, Console& console, vault::Vault& opened) {
  vault::AskPassphrase ask;
  if (!command.none)
    ask = [](bool) {
      return isatty(STDIN_FILENO) != 0 ? ask_passphrase(true) : read_secret_input(vault::max_secret_bytes);
    };
  ANCHORHOLD_CHECK(opened.protect(ask));
  const std::string by = command.none ? "key file" : "passphrase";
  console.object(Json{{"type", "protected"}, {"by", by}});
  console.line(fmt::format(
      "the encrypted file of secrets is protected by {}",
      command.none ? "a key file, which whoever reads your files has as well" : "the new passphrase"));
  if (const char* named = std::getenv("ANCHORHOLD_VAULT_PASSPHRASE_FILE"); named && *named)
    console.note(fmt::format("note: {} holds the passphrase that was", named));
  return exit_status::ok;
}

}  // namespace

Result<int> run_credential_command(const CredentialCommand& command, Console& console) {
  using Action = CredentialCommand::Action;
  if (command.action == Action::add) return add(command, console);
  auto opened = ANCHORHOLD_TRY(open_vault(command));
  if (command.action == Action::list) return list(console, *opened);
  if (command.action == Action::test) return test(command, console, *opened);
  if (command.action == Action::passphrase) return change_passphrase(command, console, *opened);
  ANCHORHOLD_CHECK(opened->remove(command.credential.name));
  console.object(Json{{"type", "removed"}, {"name", command.credential.name}});
  console.line(fmt::format("forgotten: {}", command.credential.name));
  return exit_status::ok;
}

}  // namespace anchorhold::cli
