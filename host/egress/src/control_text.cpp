// The JSON texts in control messages: of events, questions and the configuration.
#include <algorithm>
#include <fmt/format.h>

#include "egress/control.h"
#include "egress/json_fields.h"

namespace anchorhold::egress {
namespace {

using Json = nlohmann::json;

constexpr std::size_t max_text = 2048;

tl::unexpected<Error> malformed(std::string_view what) {
  return fail(ErrorCode::data_loss, fmt::format("a control message with a malformed {}", what));
}

std::string cut(std::string_view text) {
  return std::string(text.substr(0, max_text));
}

bool take_texts(const Json& json, const char* key, std::vector<std::string>& texts) {
  auto found = json.find(key);
  if (found == json.end() || !found->is_array()) return false;
  for (const Json& text : *found) {
    if (!text.is_string()) return false;
    texts.push_back(text.get<std::string>());
  }
  return true;
}

bool take_short(const Json& json, const char* key, std::string& value) {
  return take(json, key, value) && value.size() <= max_text;
}

std::uint64_t milliseconds(std::chrono::milliseconds duration) {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(duration.count(), 0));
}

bool take_duration(const Json& json, const char* key, std::chrono::milliseconds& duration) {
  std::uint32_t count = 0;
  if (!take(json, key, count)) return false;
  duration = std::chrono::milliseconds(count);
  return true;
}

std::optional<policy::Destination> take_destination(const Json& json) {
  std::string text;
  if (!take_short(json, "destination", text)) return std::nullopt;
  auto destination = policy::Destination::parse(text, {});
  if (!destination) return std::nullopt;
  return std::move(*destination);
}

constexpr policy::GitOperation git_operations[] = {policy::GitOperation::fetch, policy::GitOperation::push,
                                                   policy::GitOperation::deletes, policy::GitOperation::lfs};

Json git_json(const std::vector<policy::GitGrant>& grants) {
  Json array = Json::array();
  for (const auto& grant : grants) {
    Json operations = Json::array();
    for (auto operation : grant.operations) operations.push_back(policy::to_string(operation));
    array.push_back({{"repositories", grant.repositories},
                     {"operations", std::move(operations)},
                     {"refs", grant.refs},
                     {"push_options", grant.push_options}});
  }
  return array;
}

bool take_git(const Json& json, std::vector<policy::GitGrant>& grants) {
  auto found = json.find("git");
  if (found == json.end() || !found->is_array()) return false;
  for (const Json& each : *found) {
    policy::GitGrant grant;
    std::vector<std::string> names;
    if (!each.is_object() || !take_texts(each, "repositories", grant.repositories) ||
        !take_texts(each, "operations", names) || !take_texts(each, "refs", grant.refs) ||
        !take_texts(each, "push_options", grant.push_options))
      return false;
    grant.operations.clear();
    for (const auto& name : names) {
      auto* at = std::find_if(std::begin(git_operations), std::end(git_operations),
                              [&](auto operation) { return policy::to_string(operation) == name; });
      if (at == std::end(git_operations)) return false;
      grant.operations.push_back(*at);
    }
    grants.push_back(std::move(grant));
  }
  return true;
}

Json rule_json(const policy::EgressRule& rule) {
  Json json{{"host", rule.host.text()},
            {"ports", rule.ports},
            {"action", policy::to_string(rule.action)},
            {"methods", rule.methods},
            {"paths", rule.paths},
            {"credential", rule.credential},
            {"deny_headers", rule.deny_headers},
            {"deny_json_fields", rule.deny_json_fields},
            {"git", git_json(rule.git)},
            {"tunnel_only", rule.tunnel_only},
            {"source", rule.source}};
  if (rule.max_upload) json["max_upload"] = rule.max_upload->bytes;
  return json;
}

std::optional<policy::EgressAction> action_of(std::string_view text) {
  using enum policy::EgressAction;
  for (auto action : {allow, deny, ask})
    if (policy::to_string(action) == text) return action;
  return std::nullopt;
}

std::optional<policy::EgressRule> rule_of(const Json& json) {
  std::string host, action_text;
  if (!json.is_object() || !take(json, "host", host) || !take(json, "action", action_text))
    return std::nullopt;
  auto pattern = policy::HostPattern::parse(host);
  auto action = action_of(action_text);
  if (!pattern || !action) return std::nullopt;
  policy::EgressRule rule;
  rule.host = std::move(*pattern);
  rule.action = *action;
  rule.ports.clear();
  auto ports = json.find("ports");
  if (ports == json.end() || !ports->is_array()) return std::nullopt;
  for (const Json& port : *ports) {
    if (!port.is_number_unsigned() || port.get<std::uint64_t>() > 65535) return std::nullopt;
    rule.ports.push_back(port.get<std::uint16_t>());
  }
  if (!take_texts(json, "methods", rule.methods) || !take_texts(json, "paths", rule.paths) ||
      !take(json, "credential", rule.credential) || !take_texts(json, "deny_headers", rule.deny_headers) ||
      !take_texts(json, "deny_json_fields", rule.deny_json_fields) || !take_git(json, rule.git) ||
      !take(json, "tunnel_only", rule.tunnel_only) || !take(json, "source", rule.source))
    return std::nullopt;
  if (json.contains("max_upload")) {
    ByteSize size;
    if (!take(json, "max_upload", size.bytes)) return std::nullopt;
    rule.max_upload = size;
  }
  return rule;
}

Json rules_json(const std::vector<policy::EgressRule>& rules) {
  Json array = Json::array();
  for (const auto& rule : rules) array.push_back(rule_json(rule));
  return array;
}

bool take_rules(const Json& json, const char* key, std::vector<policy::EgressRule>& rules) {
  auto found = json.find(key);
  if (found == json.end() || !found->is_array()) return false;
  for (const Json& each : *found) {
    auto rule = rule_of(each);
    if (!rule) return false;
    rules.push_back(std::move(*rule));
  }
  return true;
}

Json policy_json(const policy::EgressPolicy& rules) {
  return {{"managed", rules_json(rules.managed)}, {"user", rules_json(rules.user)},
          {"session", rules_json(rules.session)}, {"answers", rules_json(rules.answers)},
          {"kept", rules_json(rules.kept)},       {"managed_floor", rules.managed_floor},
          {"broken", cut(rules.broken)},          {"unnamed", policy::to_string(rules.unnamed)}};
}

bool take_policy(const Json& json, policy::EgressPolicy& rules) {
  std::string unnamed;
  bool whole = take_rules(json, "managed", rules.managed) && take_rules(json, "user", rules.user) &&
               take_rules(json, "session", rules.session) && take_rules(json, "answers", rules.answers) &&
               take_rules(json, "kept", rules.kept) && take(json, "managed_floor", rules.managed_floor) &&
               take(json, "broken", rules.broken) && take(json, "unnamed", unnamed);
  auto action = action_of(unnamed);
  if (!whole || !action) return false;
  rules.unnamed = *action;
  return true;
}

Json proxy_json(const std::optional<UpstreamProxy>& proxy) {
  if (!proxy) return nullptr;
  return {{"tls", proxy->tls},
          {"destination", proxy->address.text()},
          {"user", proxy->user},
          {"password", proxy->password}};
}

bool take_proxy(const Json& json, const char* key, std::optional<UpstreamProxy>& proxy) {
  auto found = json.find(key);
  if (found == json.end()) return false;
  if (found->is_null()) return true;
  auto address = found->is_object() ? take_destination(*found) : std::nullopt;
  if (!address) return false;
  proxy.emplace();
  proxy->address = std::move(*address);
  return take(*found, "tls", proxy->tls) && take(*found, "user", proxy->user) &&
         take(*found, "password", proxy->password);
}

constexpr std::string_view kind_names[] = {"bearer", "basic", "header", "aws-sigv4"};

bool take_credentials(const Json& json, std::map<std::string, CredentialForm>& credentials) {
  auto found = json.find("credentials");
  if (found == json.end() || !found->is_object()) return false;
  for (const auto& [name, form_json] : found->items()) {
    CredentialForm form;
    std::string kind;
    if (!form_json.is_object() || !take(form_json, "kind", kind) ||
        !take(form_json, "header", form.header_name) || !take(form_json, "user", form.user))
      return false;
    auto* at = std::find(std::begin(kind_names), std::end(kind_names), kind);
    if (at == std::end(kind_names)) return false;
    form.kind = static_cast<CredentialForm::Kind>(at - std::begin(kind_names));
    credentials.emplace(name, std::move(form));
  }
  return true;
}

}  // namespace

std::string encode_event(const EventReport& report) {
  Json json{{"host", cut(report.host)},
            {"port", report.port},
            {"cause", cut(report.cause)},
            {"rule", cut(report.rule)},
            {"origin", cut(report.origin)},
            {"address", cut(report.address)},
            {"method", cut(report.method)},
            {"path", cut(report.path)},
            {"credential", cut(report.credential)},
            {"git_repository", cut(report.git_repository)},
            {"git_operation", cut(report.git_operation)},
            {"git_refs", cut(report.git_refs)},
            {"violation", report.violation},
            {"cut", report.cut}};
  return dump(json);
}

Result<EventReport> parse_event(std::uint32_t kind, std::string_view payload) {
  if (kind < static_cast<std::uint32_t>(EventKind::allow) ||
      kind > static_cast<std::uint32_t>(EventKind::credential_reject))
    return malformed("kind of event");
  EventReport report;
  report.kind = static_cast<EventKind>(kind);
  Json json = parse_object(payload);
  // Bytes that are not UTF-8 became longer when they were written.
  auto text = [&](const char* key, std::string& value) {
    return take(json, key, value) && value.size() <= 4 * max_text;
  };
  if (!text("host", report.host) || !take(json, "port", report.port) || !text("cause", report.cause) ||
      !text("rule", report.rule) || !text("origin", report.origin) || !text("address", report.address) ||
      !text("method", report.method) || !text("path", report.path) ||
      !text("credential", report.credential) || !text("git_repository", report.git_repository) ||
      !text("git_operation", report.git_operation) || !text("git_refs", report.git_refs) ||
      !take(json, "violation", report.violation) || !take(json, "cut", report.cut))
    return malformed("event");
  return report;
}

std::string encode_question(const Question& question) {
  return dump({{"destination", question.destination.text()},
               {"reason", cut(question.reason)},
               {"method", cut(question.method)},
               {"path", cut(question.path)},
               {"bytes", question.bytes_waiting}});
}

Result<Question> parse_question(std::uint64_t id, std::string_view payload) {
  Json json = parse_object(payload);
  auto destination = take_destination(json);
  if (!destination) return malformed("question");
  Question question{.id = id, .destination = std::move(*destination), .reason = {}};
  if (!take_short(json, "reason", question.reason) || !take_short(json, "method", question.method) ||
      !take_short(json, "path", question.path) || !take(json, "bytes", question.bytes_waiting))
    return malformed("question");
  return question;
}

std::string encode_secret_request(const SecretRequest& request) {
  return dump({{"credential", request.credential},
               {"destination", request.destination.text()},
               {"method", cut(request.method)},
               {"path", cut(request.path)},
               {"scope", request.scope}});
}

Result<SecretRequest> parse_secret_request(std::uint64_t id, std::string_view payload) {
  Json json = parse_object(payload);
  auto destination = take_destination(json);
  if (!destination) return malformed("request for a secret");
  SecretRequest request{
      .id = id, .credential = {}, .destination = std::move(*destination), .method = {}, .path = {}};
  if (!take_short(json, "credential", request.credential) || !take_short(json, "method", request.method) ||
      !take_short(json, "path", request.path) || !take_short(json, "scope", request.scope))
    return malformed("request for a secret");
  return request;
}

std::string encode_rules(const policy::EgressPolicy& rules) {
  return dump(policy_json(rules));
}

Result<policy::EgressPolicy> parse_rules(std::string_view text) {
  policy::EgressPolicy rules;
  if (!take_policy(parse_object(text), rules)) return malformed("policy");
  return rules;
}

std::string encode_configuration(const Configuration& c) {
  Json credentials = Json::object();
  for (const auto& [name, form] : c.credentials)
    credentials[name] = {
        {"kind", kind_names[static_cast<int>(form.kind)]}, {"header", form.header_name}, {"user", form.user}};
  return dump({{"rules", policy_json(c.rules)},
               {"present", c.person == policy::Person::present},
               {"ask_timeout_ms", milliseconds(c.ask_timeout)},
               {"credentials", std::move(credentials)},
               {"token", c.session_token},
               {"servers", c.resolver.servers},
               {"dns_timeout_ms", milliseconds(c.resolver.timeout)},
               {"dns_attempts", static_cast<std::uint64_t>(c.resolver.attempts)},
               {"http_proxy", proxy_json(c.proxies.http)},
               {"https_proxy", proxy_json(c.proxies.https)},
               {"no_proxy", c.proxies.no_proxy},
               {"head_ms", milliseconds(c.limits.head)},
               {"connect_ms", milliseconds(c.limits.connect)},
               {"waiting_ms", milliseconds(c.limits.waiting)},
               {"quiet_ms", milliseconds(c.limits.quiet)},
               {"unused_ms", milliseconds(c.limits.unused)},
               {"half_closed_ms", milliseconds(c.limits.half_closed)},
               {"connections", c.limits.connections}});
}

Result<Configuration> parse_configuration_message(std::string_view text) {
  Json json = parse_object(text);
  Configuration c;
  bool present = false;
  auto rules = json.find("rules");
  bool whole =
      rules != json.end() && take_policy(*rules, c.rules) && take(json, "present", present) &&
      take_duration(json, "ask_timeout_ms", c.ask_timeout) && take_credentials(json, c.credentials) &&
      take(json, "token", c.session_token) && take_texts(json, "servers", c.resolver.servers) &&
      take_duration(json, "dns_timeout_ms", c.resolver.timeout) &&
      take(json, "dns_attempts", c.resolver.attempts) && take_proxy(json, "http_proxy", c.proxies.http) &&
      take_proxy(json, "https_proxy", c.proxies.https) && take_texts(json, "no_proxy", c.proxies.no_proxy) &&
      take_duration(json, "head_ms", c.limits.head) && take_duration(json, "connect_ms", c.limits.connect) &&
      take_duration(json, "waiting_ms", c.limits.waiting) &&
      take_duration(json, "quiet_ms", c.limits.quiet) && take_duration(json, "unused_ms", c.limits.unused) &&
      take_duration(json, "half_closed_ms", c.limits.half_closed) &&
      take(json, "connections", c.limits.connections);
  if (!whole) return malformed("configuration");
  c.person = present ? policy::Person::present : policy::Person::absent;
  return c;
}

}  // namespace anchorhold::egress
