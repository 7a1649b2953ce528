#include "policy/configuration.h"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <functional>
#include <map>
#include <toml++/toml.h>

namespace anchorhold::policy {
namespace {

// Walks one table: each known key has a reader, every other key is an error.
class TableReader {
 public:
  using Read = std::function<Status(const toml::node&)>;

  TableReader(std::string_view file, std::string_view where) : file_(file), where_(where) {}

  void key(std::string name, Read read) { readers_.emplace(std::move(name), std::move(read)); }

  Status read(const toml::table& table) const {
    for (const auto& [key, node] : table) {
      auto reader = readers_.find(key.str());
      if (reader == readers_.end()) {
        std::string known;
        for (const auto& [name, unused] : readers_) known += (known.empty() ? "" : ", ") + name;
        return fail(
            ErrorCode::invalid_argument,
            fmt::format("{}:{}: unknown key '{}' in {}", file_, key.source().begin.line, key.str(), where_),
            fmt::format("known keys: {}", known));
      }
      auto status = reader->second(node);
      // What is wrong further in says where itself.
      if (!status && status.error().message.starts_with(fmt::format("{}:", file_)))
        return fail(std::move(status).error());
      if (!status)
        return fail(with_context(status.error(),
                                 fmt::format("{}:{}: {}", file_, node.source().begin.line, key.str())));
    }
    return {};
  }

 private:
  std::string_view file_, where_;
  std::map<std::string, Read, std::less<>> readers_;
};

tl::unexpected<Error> wrong(std::string_view expected) {
  return fail(ErrorCode::invalid_argument, fmt::format("must be {}", expected));
}

Result<std::string> text_of(const toml::node& node) {
  auto value = node.value_exact<std::string>();
  if (!value || value->empty()) return wrong("a text in quotes");
  return *value;
}

Result<std::vector<std::string>> texts_of(const toml::node& node) {
  const toml::array* array = node.as_array();
  if (!array || array->empty()) return wrong("a list of texts with at least one entry");
  std::vector<std::string> texts;
  for (const toml::node& entry : *array) texts.push_back(ANCHORHOLD_TRY(text_of(entry)));
  return texts;
}

Result<EgressAction> action_of(const toml::node& node, std::initializer_list<EgressAction> allowed) {
  std::string text = ANCHORHOLD_TRY(text_of(node));
  std::string names;
  for (EgressAction action : allowed) {
    if (text == to_string(action)) return action;
    names += fmt::format("{}\"{}\"", names.empty() ? "" : " or ", to_string(action));
  }
  return wrong(names);
}

bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) ||
           std::string_view("!#$%&'*+-.^_`|~").find(static_cast<char>(c)) != std::string_view::npos;
  });
}

Result<std::vector<std::uint16_t>> ports_of(const toml::node& node) {
  const toml::array* array = node.as_array();
  if (!array || array->empty()) return wrong("a list of port numbers with at least one entry");
  std::vector<std::uint16_t> ports;
  for (const toml::node& entry : *array) {
    auto port = entry.value_exact<std::int64_t>();
    if (!port || *port < 1 || *port > 65535) return wrong("a list of port numbers from 1 to 65535");
    ports.push_back(static_cast<std::uint16_t>(*port));
  }
  return ports;
}

Status read_methods(const toml::node& node, EgressRule& rule) {
  rule.methods = ANCHORHOLD_TRY(texts_of(node));
  for (const auto& method : rule.methods)
    if (!is_token(method) ||
        std::any_of(method.begin(), method.end(), [](unsigned char c) { return std::islower(c); }))
      return wrong("HTTP methods in upper case, like \"GET\"");
  return {};
}

Status read_paths(const toml::node& node, EgressRule& rule) {
  rule.paths = ANCHORHOLD_TRY(texts_of(node));
  for (const auto& path : rule.paths)
    if (path[0] != '/' || path.find('*') < path.size() - 1 ||
        path.find_first_of("?# \\") != std::string::npos)
      return wrong("paths that begin with '/' and have '*' at the end only");
  return {};
}

Status read_headers(const toml::node& node, EgressRule& rule) {
  rule.deny_headers = ANCHORHOLD_TRY(texts_of(node));
  for (auto& header : rule.deny_headers) {
    if (!is_token(header)) return wrong("names of HTTP headers");
    std::transform(header.begin(), header.end(), header.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  }
  return {};
}

Status read_json_fields(const toml::node& node, EgressRule& rule) {
  constexpr std::size_t longest = 64;
  rule.deny_json_fields = ANCHORHOLD_TRY(texts_of(node));
  for (auto& field : rule.deny_json_fields) {
    bool plain = std::all_of(field.begin(), field.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
    if (!plain || field.size() > longest)
      return wrong("names of JSON fields, of at most 64 ASCII characters");
    std::transform(field.begin(), field.end(), field.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  }
  return {};
}

// Patterns of names: '*' at the end only, and otherwise what is a name without it.
Status check_patterns(const std::vector<std::string>& patterns, bool (*is_name)(std::string_view),
                      std::string_view expected) {
  for (std::string_view pattern : patterns) {
    std::string name(pattern);
    if (pattern.ends_with('*')) name.back() = 'x';
    if (name.find('*') != std::string::npos || !is_name(name)) return wrong(expected);
  }
  return {};
}

Status read_git_operations(const toml::node& node, GitGrant& grant) {
  grant.operations.clear();
  for (const auto& text : ANCHORHOLD_TRY(texts_of(node))) {
    using enum GitOperation;
    auto all = {fetch, push, deletes, lfs};
    auto found = std::find_if(all.begin(), all.end(), [&](auto each) { return to_string(each) == text; });
    if (found == all.end()) return wrong("a list of \"fetch\", \"push\", \"delete\" and \"lfs\"");
    grant.operations.push_back(*found);
  }
  return {};
}

Status read_repositories(const toml::node& node, GitGrant& grant) {
  grant.repositories = ANCHORHOLD_TRY(texts_of(node));
  ANCHORHOLD_CHECK(check_patterns(
      grant.repositories, [](std::string_view name) { return !canonical_repository(name).empty(); },
      "repositories as they stand in the address after the host, without a slash before them, like "
      "\"team/app\" or \"team/*\""));
  for (auto& repository : grant.repositories)
    if (!repository.ends_with('*')) repository = canonical_repository(repository);
  return {};
}

Result<GitGrant> read_git_grant(const toml::table& table, std::string_view file) {
  GitGrant grant;
  TableReader reader(file, "git");
  reader.key("repositories", [&](const toml::node& node) { return read_repositories(node, grant); });
  reader.key("operations", [&](const toml::node& node) { return read_git_operations(node, grant); });
  reader.key("refs", [&](const toml::node& node) -> Status {
    grant.refs = ANCHORHOLD_TRY(texts_of(node));
    return check_patterns(grant.refs, &is_ref_name, "whole names of refs, like \"refs/heads/agent/*\"");
  });
  reader.key("push_options", [&](const toml::node& node) -> Status {
    grant.push_options = ANCHORHOLD_TRY(texts_of(node));
    return check_patterns(
        grant.push_options, [](std::string_view) { return true; }, "push options with '*' at the end only");
  });
  ANCHORHOLD_CHECK(reader.read(table));
  using enum GitOperation;
  if (grant.repositories.empty()) return wrong("a table with repositories, like [\"team/app\"]");
  if (grant.allows(push) && grant.refs.empty())
    return wrong("a table that names the refs of its pushes, like refs = [\"refs/heads/agent/*\"]");
  if (!grant.allows(push) && (grant.allows(deletes) || !grant.refs.empty() || !grant.push_options.empty()))
    return wrong("a table with \"push\" among its operations, since it says what a push may do");
  return grant;
}

// One table, or a list of them.
Status read_git(const toml::node& node, std::string_view file, EgressRule& rule) {
  if (const toml::table* table = node.as_table()) {
    rule.git.push_back(ANCHORHOLD_TRY(read_git_grant(*table, file)));
    return {};
  }
  const toml::array* array = node.as_array();
  if (!array || array->empty() || !array->is_array_of_tables())
    return wrong("a table, like git = { repositories = [\"team/app\"] }, or a list of them");
  for (const toml::node& entry : *array)
    rule.git.push_back(ANCHORHOLD_TRY(read_git_grant(*entry.as_table(), file)));
  return {};
}

Result<EgressRule> read_rule(const toml::table& table, std::string_view file) {
  EgressRule rule;
  auto line = table.source().begin.line;
  rule.source = fmt::format("{}:{}", file, line);
  bool has_host = false, has_action = false;
  TableReader reader(file, "[[egress.rule]]");
  reader.key("host", [&](const toml::node& node) -> Status {
    std::string text = ANCHORHOLD_TRY(text_of(node));
    rule.host = ANCHORHOLD_TRY(HostPattern::parse(text));
    has_host = true;
    return {};
  });
  reader.key("action", [&](const toml::node& node) -> Status {
    rule.action =
        ANCHORHOLD_TRY(action_of(node, {EgressAction::allow, EgressAction::deny, EgressAction::ask}));
    has_action = true;
    return {};
  });
  reader.key("ports", [&](const toml::node& node) -> Status {
    rule.ports = ANCHORHOLD_TRY(ports_of(node));
    return {};
  });
  reader.key("methods", [&](const toml::node& node) { return read_methods(node, rule); });
  reader.key("paths", [&](const toml::node& node) { return read_paths(node, rule); });
  reader.key("deny_headers", [&](const toml::node& node) { return read_headers(node, rule); });
  reader.key("deny_json_fields", [&](const toml::node& node) { return read_json_fields(node, rule); });
  reader.key("credential", [&](const toml::node& node) -> Status {
    rule.credential = ANCHORHOLD_TRY(text_of(node));
    return {};
  });
  reader.key("max_upload", [&](const toml::node& node) -> Status {
    std::string text = ANCHORHOLD_TRY(text_of(node));
    rule.max_upload = ANCHORHOLD_TRY(parse_size(text));
    return {};
  });
  reader.key("git", [&](const toml::node& node) { return read_git(node, file, rule); });
  reader.key("tunnel_only", [&](const toml::node& node) -> Status {
    auto value = node.value_exact<bool>();
    if (!value) return wrong("true or false");
    rule.tunnel_only = *value;
    return {};
  });
  ANCHORHOLD_CHECK(reader.read(table));
  auto incomplete = [&](std::string_view what) {
    return fail(ErrorCode::invalid_argument, fmt::format("{}:{}: {}", file, line, what));
  };
  if (!has_host) return incomplete("a rule needs a host");
  if (!has_action) return incomplete("a rule needs an action: \"allow\", \"deny\" or \"ask\"");
  if (rule.tunnel_only && rule.inspecting())
    return incomplete(
        "tunnel_only connections are never opened, so methods, paths, credential, deny_headers, "
        "deny_json_fields, git and max_upload cannot be held");
  if (rule.action == EgressAction::deny && rule.inspecting())
    return incomplete(
        "a deny rule denies everything; methods, paths, credential, deny_headers, deny_json_fields, git and "
        "max_upload belong to allow and ask");
  return rule;
}

Status read_egress(const toml::table& table, std::string_view file, EgressConfiguration& egress) {
  TableReader reader(file, "[egress]");
  reader.key("default", [&](const toml::node& node) -> Status {
    egress.unnamed = ANCHORHOLD_TRY(action_of(node, {EgressAction::ask, EgressAction::deny}));
    return {};
  });
  reader.key("ask_timeout", [&](const toml::node& node) -> Status {
    std::string text = ANCHORHOLD_TRY(text_of(node));
    egress.ask_timeout = ANCHORHOLD_TRY(parse_duration(text));
    return {};
  });
  reader.key("extra_ca", [&](const toml::node& node) -> Status {
    for (const auto& path : ANCHORHOLD_TRY(texts_of(node))) {
      if (path[0] != '/') return wrong("absolute paths of PEM files");
      egress.extra_ca.emplace_back(path);
    }
    return {};
  });
  reader.key("rule", [&](const toml::node& node) -> Status {
    const toml::array* array = node.as_array();
    if (!array || !array->is_array_of_tables()) return wrong("written as [[egress.rule]]");
    for (const toml::node& entry : *array)
      egress.rules.push_back(ANCHORHOLD_TRY(read_rule(*entry.as_table(), file)));
    return {};
  });
  return reader.read(table);
}

}  // namespace

Result<Configuration> parse_configuration(std::string_view text, std::string_view name) {
  if (text.size() > max_configuration_bytes)
    return fail(ErrorCode::resource_exhausted, fmt::format("{} is larger than 1 MiB", name));
  toml::table table;
  try {
    table = toml::parse(text, name);
  } catch (const toml::parse_error& error) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("{}:{}: {}", name, error.source().begin.line, error.description()));
  }
  Configuration configuration;
  TableReader reader(name, "the file");
  reader.key("egress", [&](const toml::node& node) -> Status {
    if (!node.is_table()) return wrong("a table: [egress]");
    return read_egress(*node.as_table(), name, configuration.egress);
  });
  ANCHORHOLD_CHECK(reader.read(table));
  return configuration;
}

Result<EgressRule> parse_rule_argument(std::string_view argument, EgressAction action) {
  EgressRule rule;
  rule.action = action;
  rule.source = fmt::format("--{} {}", to_string(action), argument);
  auto whole = HostPattern::parse(argument);
  auto colon = argument.rfind(':');
  if (whole || colon == std::string_view::npos) {
    rule.host = ANCHORHOLD_TRY(std::move(whole));
    return rule;
  }
  // The port is checked by the same parser as everywhere, on a host that is always good.
  rule.host = ANCHORHOLD_TRY(HostPattern::parse(argument.substr(0, colon)));
  rule.ports = {ANCHORHOLD_TRY(Destination::parse(fmt::format("host{}", argument.substr(colon)), {})).port};
  return rule;
}

}  // namespace anchorhold::policy
