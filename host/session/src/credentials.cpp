#include "session/credentials.h"

#include <algorithm>
#include <fmt/format.h>

#include "egress/provenance.h"
#include "egress/sigv4.h"

namespace anchorhold::session {
namespace {

using vault::Kind;

struct KnownHost {
  std::string_view suffix;  // of a host, or the whole
  std::vector<std::string_view> variables;
};

// In which variables programs look for a credential of these hosts.
const std::vector<KnownHost>& known_hosts() {
  static const std::vector<KnownHost> hosts{
      {"api.anthropic.com", {"ANTHROPIC_API_KEY"}},
      {"api.openai.com", {"OPENAI_API_KEY"}},
      {"generativelanguage.googleapis.com", {"GEMINI_API_KEY"}},
      {"openrouter.ai", {"OPENROUTER_API_KEY"}},
      {"api.mistral.ai", {"MISTRAL_API_KEY"}},
      {"huggingface.co", {"HF_TOKEN"}},
      {"github.com", {"GITHUB_TOKEN", "GH_TOKEN"}},
      {"githubusercontent.com", {"GITHUB_TOKEN", "GH_TOKEN"}},
      {"gitlab.com", {"GITLAB_TOKEN"}},
      {"registry.npmjs.org", {"NPM_TOKEN"}},
      {"npm.pkg.github.com", {"NPM_TOKEN"}},
      {"crates.io", {"CARGO_REGISTRY_TOKEN"}},
  };
  return hosts;
}

egress::CredentialForm form_of(const vault::Credential& credential) {
  using Form = egress::CredentialForm;
  switch (credential.kind) {
    case Kind::bearer:
      return {Form::Kind::bearer, {}, {}};
    case Kind::basic:
    case Kind::git:
      return {Form::Kind::basic, {}, credential.user};
    case Kind::header:
      return {Form::Kind::header, credential.header, {}};
    case Kind::aws_sigv4:
      return {Form::Kind::aws_sigv4, {}, {}};
  }
  return {};
}

std::vector<std::string_view> known_by(std::string_view host) {
  if (host.starts_with("*.")) host.remove_prefix(2);
  for (const auto& known : known_hosts()) {
    bool below = host.ends_with(known.suffix) && host.size() > known.suffix.size() &&
                 host[host.size() - known.suffix.size() - 1] == '.';
    if (host == known.suffix || below) return known.variables;
  }
  return {};
}

std::string day_of(std::chrono::system_clock::time_point time) {
  return egress::sigv4_time(time).substr(0, 8);
}

void add_git(std::vector<std::pair<std::string, std::string>>& settings, const CredentialUse& use,
             std::string_view token) {
  egress::CredentialForm form{egress::CredentialForm::Kind::basic, {}, use.credential.user};
  for (const auto& rule : use.rules)
    for (std::uint16_t port : rule.ports) {
      if (port == 80) continue;  // a credential goes over TLS only
      std::string origin = port == 443 ? rule.host.text() : fmt::format("{}:{}", rule.host.text(), port);
      settings.emplace_back(fmt::format("http.https://{}/.extraHeader", origin),
                            fmt::format("Authorization: {}", egress::field_with_secret(form, token)));
    }
}

}  // namespace

std::vector<policy::EgressRule> rules_with_credentials(const policy::EgressPolicy& rules) {
  std::vector<policy::EgressRule> found;
  for (const auto* list : {&rules.managed, &rules.session, &rules.answers, &rules.user, &rules.kept})
    for (const auto& rule : *list)
      if (!rule.credential.empty() && rule.action != policy::EgressAction::deny) found.push_back(rule);
  return found;
}

std::map<std::string, std::string> token_variables(const std::vector<CredentialUse>& uses,
                                                   std::string_view token) {
  std::map<std::string, std::string> variables;
  std::vector<std::pair<std::string, std::string>> git;
  auto set = [&](std::string_view name) { variables[std::string(name)] = token; };
  for (const auto& use : uses) {
    const auto& credential = use.credential;
    set("ANCHORHOLD_TOKEN");
    for (const auto& name : credential.variables) set(name);
    if (credential.kind == Kind::git) add_git(git, use, token);
    if (credential.kind == Kind::aws_sigv4) {
      if (credential.variables.empty()) {
        set("AWS_ACCESS_KEY_ID");
        set("AWS_SECRET_ACCESS_KEY");
      }
      if (!credential.region.empty())
        variables["AWS_REGION"] = variables["AWS_DEFAULT_REGION"] = credential.region;
    } else if (credential.variables.empty()) {
      for (const auto& rule : use.rules)
        for (std::string_view name : known_by(rule.host.text())) set(name);
    }
  }
  // git-config(1): settings of one environment.
  if (!git.empty()) variables["GIT_CONFIG_COUNT"] = std::to_string(git.size());
  for (std::size_t i = 0; i < git.size(); ++i) {
    variables[fmt::format("GIT_CONFIG_KEY_{}", i)] = git[i].first;
    variables[fmt::format("GIT_CONFIG_VALUE_{}", i)] = git[i].second;
  }
  return variables;
}

Result<std::string> material_for(const vault::Credential& credential, const Secret& secret,
                                 const egress::SecretRequest& request,
                                 std::chrono::system_clock::time_point now) {
  bool signs = credential.kind == Kind::aws_sigv4;
  if (signs == request.scope.empty())
    return fail(ErrorCode::permission_denied, "the credential is of another kind now");
  if (!signs) return std::string(secret.expose());
  auto scope = ANCHORHOLD_TRY(egress::SigV4Scope::parse(request.scope));
  // Around midnight the process has asked on another day than this one answers on.
  constexpr std::chrono::minutes moment(5);
  if (scope.date != day_of(now - moment) && scope.date != day_of(now))
    return fail(ErrorCode::permission_denied, "it signs for today only");
  auto is_for = [](std::string_view what, const std::string& allowed, const std::string& wanted) -> Status {
    if (allowed.empty() || allowed == wanted) return {};
    return fail(ErrorCode::permission_denied, fmt::format("it signs for the {} {} only", what, allowed));
  };
  ANCHORHOLD_CHECK(is_for("region", credential.region, scope.region));
  ANCHORHOLD_CHECK(is_for("service", credential.service, scope.service));
  std::string_view key = secret.expose(), token;
  if (auto end = key.find('\n'); end != std::string_view::npos) {
    token = key.substr(end + 1);
    key = key.substr(0, end);
  }
  egress::SigV4Key made{credential.user, std::string(token),
                        std::string(egress::sigv4_signing_key(key, scope).expose())};
  return egress::encode_sigv4_key(made);
}

Result<std::shared_ptr<vault::Vault>> Credentials::vault() {
  std::lock_guard lock(mutex_);
  if (!vault_) vault_ = ANCHORHOLD_TRY(vault::Vault::open(vault_spec_));
  return vault_;
}

Result<std::vector<std::string>> Credentials::grant(egress::DoorPolicy& policy) {
  policy.credentials.clear();
  std::vector<std::string> notes;
  auto rules = rules_with_credentials(policy.rules);
  std::vector<CredentialUse> uses;
  if (!rules.empty()) {
    auto opened = ANCHORHOLD_TRY(vault());
    auto all = ANCHORHOLD_TRY(opened->list());
    for (auto& rule : rules) {
      const std::string name = rule.credential;
      if (only_ && std::find(only_->begin(), only_->end(), name) == only_->end()) continue;
      auto used = std::find_if(uses.begin(), uses.end(),
                               [&](const CredentialUse& use) { return use.credential.name == name; });
      auto known = std::find_if(all.begin(), all.end(),
                                [&](const vault::Credential& credential) { return credential.name == name; });
      if (known == all.end()) {
        notes.push_back(fmt::format(
            "the credential {} of the rule for {} ({}) is not there, so the rule denies: anchorhold "
            "credential add {}",
            name, rule.host.text(), rule.source, name));
        continue;
      }
      if (used == uses.end()) used = uses.insert(uses.end(), CredentialUse{*known, {}});
      used->rules.push_back(std::move(rule));
      policy.credentials[name] = form_of(*known);
    }
  }
  std::lock_guard lock(mutex_);
  granted_ = std::move(uses);
  return notes;
}

Status Credentials::unlock() {
  std::vector<vault::Credential> credentials;
  {
    std::lock_guard lock(mutex_);
    for (const auto& use : granted_) credentials.push_back(use.credential);
  }
  if (credentials.empty()) return {};
  auto opened = ANCHORHOLD_TRY(vault());
  return opened->unlock(credentials);
}

std::map<std::string, std::string> Credentials::variables(std::string_view token) const {
  std::lock_guard lock(mutex_);
  return token_variables(granted_, token);
}

Result<std::string> Credentials::secret(const egress::SecretRequest& request) {
  {
    std::lock_guard lock(mutex_);
    if (std::none_of(granted_.begin(), granted_.end(),
                     [&](const CredentialUse& use) { return use.credential.name == request.credential; }))
      return fail(ErrorCode::permission_denied, "this session does not have it");
  }
  auto opened = ANCHORHOLD_TRY(vault());
  auto credential = ANCHORHOLD_TRY(opened->find(request.credential));
  auto secret = ANCHORHOLD_TRY(opened->secret(request.credential));
  return material_for(credential, secret, request, std::chrono::system_clock::now());
}

}  // namespace anchorhold::session
