#include "policy/configuration.h"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <functional>
#include <map>
#include <toml++/toml.h>

#include "base/files.h"

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
      if (auto status = reader->second(node); !status)
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
  reader.key("credential", [&](const toml::node& node) -> Status {
    rule.credential = ANCHORHOLD_TRY(text_of(node));
    return {};
  });
  reader.key("max_upload", [&](const toml::node& node) -> Status {
    std::string text = ANCHORHOLD_TRY(text_of(node));
    rule.max_upload = ANCHORHOLD_TRY(parse_size(text));
    return {};
  });
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
        "tunnel_only connections are never opened, so methods, paths, credential, deny_headers and "
        "max_upload cannot be held");
  if (rule.action == EgressAction::deny && rule.inspecting())
    return incomplete(
        "a deny rule denies everything; methods, paths, credential, deny_headers and max_upload belong to "
        "allow and ask");
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

Result<Configuration> load_configuration(const std::filesystem::path& path) {
  auto text = read_file(path, max_configuration_bytes);
  if (text) return parse_configuration(*text, path.filename().string());
  if (text.error().code == ErrorCode::not_found) return Configuration{};
  return fail(text.error());
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
