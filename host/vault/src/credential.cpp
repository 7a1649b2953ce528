#include "vault/credential.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <set>
#include <sodium.h>

namespace anchorhold::vault {
namespace {

using Json = nlohmann::json;

constexpr std::string_view first_line = "anchorhold credentials 1 ";
constexpr std::string_view kind_names[] = {"bearer", "basic", "header", "aws-sigv4", "git"};
constexpr std::string_view store_names[] = {"secret-service", "file"};
constexpr std::size_t max_name = 64, max_text = 256, max_variables = 16;

template <typename T, std::size_t N>
std::optional<T> value_named(const std::string_view (&names)[N], std::string_view text) {
  auto* at = std::find(std::begin(names), std::end(names), text);
  if (at == std::end(names)) return std::nullopt;
  return static_cast<T>(at - std::begin(names));
}

bool all_of(std::string_view text, std::string_view others, bool upper = true) {
  return std::all_of(text.begin(), text.end(), [&](char c) {
    return (c >= 'a' && c <= 'z') || (upper && c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           others.find(c) != std::string_view::npos;
  });
}

tl::unexpected<Error> wrong(std::string message, std::string hint = {}) {
  return fail(ErrorCode::invalid_argument, std::move(message), std::move(hint));
}

std::string checksum(std::string_view text) {
  unsigned char hash[32];
  crypto_generichash(hash, sizeof hash, reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                     nullptr, 0);
  char hex[65];
  sodium_bin2hex(hex, sizeof hex, hash, sizeof hash);
  return hex;
}

Status check_texts(const Credential& credential) {
  const std::string& name = credential.name;
  if (name.empty() || name.size() > max_name || !all_of(name, "._-") || !all_of(name.substr(0, 1), ""))
    return wrong(
        "the name of a credential is 1 to 64 letters, digits, '.', '_' and '-', and begins with a "
        "letter or digit");
  for (const std::string* text :
       {&credential.user, &credential.header, &credential.region, &credential.service})
    if (text->size() > max_text ||
        std::any_of(text->begin(), text->end(), [](char c) { return c <= 0x20 || c >= 0x7f; }))
      return wrong("user, header, region and service are at most 256 visible ASCII characters");
  if (credential.user.find(':') != std::string::npos) return wrong("a user name has no ':' (RFC 7617)");
  if (credential.variables.size() > max_variables) return wrong("a credential has at most 16 variables");
  for (const std::string& variable : credential.variables)
    if (variable.empty() || variable.size() > max_text || !all_of(variable, "_") ||
        (variable[0] >= '0' && variable[0] <= '9'))
      return wrong(fmt::format("'{}' is no name of a variable", variable));
  return {};
}

// Fields that say how a message is read, or where it goes: a secret does not belong there.
bool may_hold_a_secret(std::string header) {
  std::transform(header.begin(), header.end(), header.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  constexpr std::string_view never[] = {"host",
                                        "content-length",
                                        "transfer-encoding",
                                        "connection",
                                        "te",
                                        "trailer",
                                        "upgrade",
                                        "expect",
                                        "cookie",
                                        "accept-encoding",
                                        "keep-alive",
                                        "proxy-connection",
                                        "referer",
                                        "proxy-authorization"};
  return std::find(std::begin(never), std::end(never), header) == std::end(never);
}

}  // namespace

std::string_view to_string(Kind kind) {
  return kind_names[static_cast<std::size_t>(kind)];
}
std::optional<Kind> parse_kind(std::string_view text) {
  return value_named<Kind>(kind_names, text);
}
std::string_view to_string(Store store) {
  return store_names[static_cast<std::size_t>(store)];
}
std::optional<Store> parse_store(std::string_view text) {
  return value_named<Store>(store_names, text);
}

Status complete(Credential& credential) {
  ANCHORHOLD_CHECK(check_texts(credential));
  const Kind kind = credential.kind;
  if (kind == Kind::git && credential.user.empty()) credential.user = "x-access-token";
  bool has_user = kind == Kind::basic || kind == Kind::git || kind == Kind::aws_sigv4;
  if (!has_user && !credential.user.empty())
    return wrong(fmt::format("a credential of kind {} has no user", to_string(kind)));
  if (has_user && credential.user.empty())
    return wrong(kind == Kind::basic ? "a credential of kind basic needs its user"
                                     : "a credential of kind aws-sigv4 needs its access key id",
                 "give it with --user");
  if ((kind == Kind::header) != !credential.header.empty())
    return kind == Kind::header
               ? wrong("a credential of kind header needs the header's name", "give it with --header")
               : wrong(fmt::format("a credential of kind {} has no header of its own", to_string(kind)));
  if (kind == Kind::header && (!all_of(credential.header, "!#$%&'*+-.^_`|~") ||  // RFC 9110 5.6.2
                               !may_hold_a_secret(credential.header)))
    return wrong(fmt::format("'{}' is no header that a secret can stand in", credential.header));
  if (kind != Kind::aws_sigv4 && (!credential.region.empty() || !credential.service.empty()))
    return wrong("region and service belong to aws-sigv4");
  if (!all_of(credential.region, "-") || !all_of(credential.service, "-_."))
    return wrong("region and service are letters, digits and '-'");
  return {};
}

Status check_secret(Kind kind, std::string_view secret) {
  if (secret.empty()) return wrong("the secret is empty");
  if (secret.size() > max_secret_bytes) return wrong("the secret is longer than 16 KiB");
  if (kind == Kind::aws_sigv4) {
    if (auto end = secret.find('\n'); end != std::string_view::npos) {
      ANCHORHOLD_CHECK(check_secret(Kind::bearer, secret.substr(end + 1)));
      secret = secret.substr(0, end);
    }
  }
  // Spaces occur in passwords, and only there.
  char first = kind == Kind::basic ? 0x20 : 0x21;
  if (!std::all_of(secret.begin(), secret.end(), [&](char c) { return c >= first && c < 0x7f; }))
    return wrong("the secret is not one line of visible ASCII characters");
  // A short one would be found everywhere in a response, and covered there.
  if (secret.size() < 8) return wrong("the secret has fewer than 8 characters");
  return {};
}

std::string encode_catalogue(const std::vector<Credential>& credentials) {
  Json list = Json::array();
  for (const Credential& c : credentials)
    list.push_back({{"name", c.name},
                    {"kind", to_string(c.kind)},
                    {"user", c.user},
                    {"header", c.header},
                    {"region", c.region},
                    {"service", c.service},
                    {"variables", c.variables},
                    {"store", to_string(c.store)},
                    {"created", c.created},
                    {"tested", c.tested},
                    {"tested_status", c.tested_status}});
  std::string text = list.dump(1) + "\n";
  return fmt::format("{}{}\n{}", first_line, checksum(text), text);
}

Result<std::vector<Credential>> parse_catalogue(std::string_view text, std::string_view where) {
  auto damaged = [&](std::string_view how) {
    return fail(ErrorCode::data_loss, fmt::format("{} is damaged: {}", where, how),
                "put back a copy of it, or move it away and add the credentials again");
  };
  std::size_t head = first_line.size() + 64;
  if (text.size() > max_catalogue_bytes) return damaged("it is larger than 1 MiB");
  if (!text.starts_with(first_line) || text.size() <= head || text[head] != '\n')
    return damaged("it does not begin as it should");
  std::string_view body = text.substr(head + 1);
  if (text.substr(first_line.size(), 64) != checksum(body)) return damaged("its checksum is another");
  Json json = Json::parse(body.begin(), body.end(), nullptr, false);
  if (!json.is_array() || json.size() > max_credentials) return damaged("it is no list of credentials");
  std::vector<Credential> credentials;
  std::set<std::string> names;
  for (const Json& entry : json) {
    Credential c;
    std::string kind, store;
    try {
      entry.at("name").get_to(c.name);
      entry.at("kind").get_to(kind);
      entry.at("user").get_to(c.user);
      entry.at("header").get_to(c.header);
      entry.at("region").get_to(c.region);
      entry.at("service").get_to(c.service);
      entry.at("variables").get_to(c.variables);
      entry.at("store").get_to(store);
      entry.at("created").get_to(c.created);
      entry.at("tested").get_to(c.tested);
      entry.at("tested_status").get_to(c.tested_status);
    } catch (const Json::exception&) {
      return damaged("an entry is not whole");
    }
    auto known_kind = parse_kind(kind);
    auto known_store = parse_store(store);
    if (!known_kind || !known_store) return damaged("an entry is of a kind that is not known");
    c.kind = *known_kind;
    c.store = *known_store;
    Credential completed = c;
    if (!complete(completed) || completed != c || !names.insert(c.name).second)
      return damaged("an entry is not what was written");
    credentials.push_back(std::move(c));
  }
  return credentials;
}

}  // namespace anchorhold::vault
