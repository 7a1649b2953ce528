#include "egress/provenance.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <sodium.h>

#include "egress/sigv4.h"
#include "egress/text.h"

namespace anchorhold::egress {
namespace {

// Header fields that authenticate a request somewhere, whatever the destination calls its own.
constexpr std::array credential_fields{"authorization",
                                       "proxy-authorization",
                                       "cookie",
                                       "x-api-key",
                                       "api-key",
                                       "apikey",
                                       "x-auth-token",
                                       "x-access-token",
                                       "x-goog-api-key",
                                       "x-amz-security-token",
                                       "private-token",
                                       "job-token",
                                       "x-github-token",
                                       "x-gitlab-token",
                                       "x-csrf-token",
                                       "x-session-token",
                                       "authentication",
                                       "x-authorization",
                                       "x-shopify-access-token",
                                       "dd-api-key",
                                       "x-vault-token",
                                       "ocp-apim-subscription-key",
                                       "x-functions-key",
                                       "x-ms-token-aad-access-token"};

// Query parameters that do.
constexpr std::array credential_parameters{"key",
                                           "api_key",
                                           "apikey",
                                           "api-key",
                                           "access_token",
                                           "token",
                                           "auth",
                                           "auth_token",
                                           "oauth_token",
                                           "id_token",
                                           "private_token",
                                           "sig",
                                           "signature",
                                           "password",
                                           "passwd",
                                           "pwd",
                                           "secret",
                                           "client_secret",
                                           "session",
                                           "sid",
                                           "x-amz-signature",
                                           "x-amz-credential",
                                           "x-amz-security-token",
                                           "x-goog-signature",
                                           "x-goog-credential",
                                           "jwt",
                                           "code",
                                           "subscription-key",
                                           "appid",
                                           "app_key",
                                           "login_token",
                                           "refresh_token"};

// Everybody names credentials in a way of their own ("X-Figma-Token", "Circle-Token", "X-Auth-Key"), but for
// what they are: the last word of the name says it.
constexpr std::array credential_words{"token", "key",        "apikey",      "secret",    "password", "passwd",
                                      "auth",  "passphrase", "credentials", "signature", "jwt",      "bearer",
                                      "pwd",   "credential", "authkey",     "authtoken", "accesskey"};
// What ends so and authenticates nobody: where a list goes on, how it is sorted, that a request is repeated.
constexpr std::array harmless_names{"sec-websocket-key",
                                    "idempotency-key",
                                    "x-idempotency-key",
                                    "surrogate-key",
                                    "sort-key",
                                    "sort_key",
                                    "partition-key",
                                    "partition_key",
                                    "page-token",
                                    "page_token",
                                    "next-token",
                                    "next_token",
                                    "next-page-token",
                                    "next_page_token",
                                    "continuation-token",
                                    "continuation_token",
                                    "sync-token",
                                    "sync_token",
                                    "x-amz-server-side-encryption-customer-key",
                                    "x-amz-copy-source-server-side-encryption-customer-key"};

// `name` in lower case.
bool names_a_credential(std::string_view name) {
  if (std::find(harmless_names.begin(), harmless_names.end(), name) != harmless_names.end()) return false;
  auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  std::size_t begin = name.size();
  while (begin > 0 && letter(name[begin - 1])) --begin;
  std::string_view last = name.substr(begin);
  return std::find(credential_words.begin(), credential_words.end(), last) != credential_words.end();
}

std::optional<std::string> percent_decoded(std::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i] == '+' ? ' ' : text[i];
      continue;
    }
    unsigned char byte;
    std::size_t length;
    if (text.size() - i < 3) return std::nullopt;
    if (sodium_hex2bin(&byte, 1, text.data() + i + 1, 2, nullptr, &length, nullptr) != 0 || length != 1)
      return std::nullopt;
    decoded += static_cast<char>(byte);
    i += 2;
  }
  return decoded;
}

std::optional<std::string> base64_decoded(std::string_view text) {
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  std::string decoded(text.size(), '\0');
  std::size_t length = 0;
  const char* end = nullptr;
  for (int variant : {sodium_base64_VARIANT_ORIGINAL_NO_PADDING, sodium_base64_VARIANT_URLSAFE_NO_PADDING}) {
    if (sodium_base642bin(reinterpret_cast<unsigned char*>(decoded.data()), decoded.size(), text.data(),
                          text.size(), nullptr, &length, &end, variant) == 0 &&
        end == text.data() + text.size()) {
      decoded.resize(length);
      return decoded;
    }
  }
  return std::nullopt;
}

std::string base64(std::string_view bytes) {
  std::string text(sodium_base64_encoded_len(bytes.size(), sodium_base64_VARIANT_ORIGINAL), '\0');
  sodium_bin2base64(text.data(), text.size(), reinterpret_cast<const unsigned char*>(bytes.data()),
                    bytes.size(), sodium_base64_VARIANT_ORIGINAL);
  text.pop_back();  // the NUL
  return text;
}

// The credentials after the scheme, when the scheme is this one.
std::optional<std::string_view> after_scheme(std::string_view value, std::string_view scheme) {
  if (value.size() <= scheme.size() || lower(value.substr(0, scheme.size())) != scheme ||
      value[scheme.size()] != ' ')
    return std::nullopt;
  value.remove_prefix(scheme.size());
  value.remove_prefix(std::min(value.find_first_not_of(' '), value.size()));
  return value;
}

// Whether the token is the access key's id, and not in the scope too, which stays when the request is signed
// again.
bool is_signed_with(std::string_view value, std::string_view token) {
  auto authorization = parse_sigv4(value);
  return authorization && *authorization && (*authorization)->access_key_id == token &&
         !holds_token((*authorization)->scope.text(), token);
}

// Whether this field, which may authenticate, holds the token exactly where the form has the secret.
bool is_token_in_place(const Field& field, const CredentialForm& form, std::string_view token) {
  std::string name = lower(field.name);
  if (form.kind == CredentialForm::Kind::header)
    return name == lower(form.header_name) && field.value == token;
  if (name != "authorization") return false;
  if (form.kind == CredentialForm::Kind::aws_sigv4) return is_signed_with(field.value, token);
  if (form.kind == CredentialForm::Kind::bearer) {
    auto value = after_scheme(field.value, "bearer");
    if (!value) value = after_scheme(field.value, "token");  // as some clients of code hosts write it
    return value == token;
  }
  auto value = after_scheme(field.value, "basic");
  if (!value) return false;
  auto decoded = base64_decoded(*value);
  if (!decoded) return false;
  auto colon = decoded->find(':');
  if (colon == std::string::npos) return false;
  std::string_view user = std::string_view(*decoded).substr(0, colon),
                   password = std::string_view(*decoded).substr(colon + 1);
  // The token once, and beside it nothing that could be a secret of somebody else.
  bool token_is_password = password == token && user.size() <= 64 && user != token;
  bool token_is_user = user == token && (password.empty() || password == "x-oauth-basic");
  return token_is_password || token_is_user;
}

bool is_credential_field(std::string_view name, const CredentialForm& form) {
  return names_a_credential(name) ||
         std::find(credential_fields.begin(), credential_fields.end(), name) != credential_fields.end() ||
         (form.kind == CredentialForm::Kind::header && name == lower(form.header_name));
}

Provenance refused(std::string reason) {
  return {Provenance::Verdict::refused, std::move(reason), 0};
}

std::optional<Provenance> foreign_parameter(const RequestHead& head) {
  std::string_view rest = head.query;
  while (!rest.empty()) {
    auto end = rest.find_first_of("&;");
    std::string_view pair = rest.substr(0, end);
    auto name = percent_decoded(pair.substr(0, pair.find('=')));
    if (!name) return refused("the query is not properly encoded");
    const std::string lowered = lower(*name);
    if (names_a_credential(lowered) || std::find(credential_parameters.begin(), credential_parameters.end(),
                                                 lowered) != credential_parameters.end())
      return refused(
          fmt::format("the query parameter '{}' can carry a credential that is not this session's", lowered));
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  return std::nullopt;
}

// The token where it does not belong: another destination, another field, the path, the query.
bool token_leaves(const RequestHead& head, std::string_view token) {
  if (holds_token(head.path, token) || holds_token(head.query, token)) return true;
  return std::any_of(head.fields.begin(), head.fields.end(), [&](const Field& field) {
    return holds_token(field.value, token) || holds_token(field.name, token);
  });
}

}  // namespace

Provenance judge_provenance(const RequestHead& head, const std::optional<CredentialForm>& form,
                            std::string_view token) {
  if (!form) {
    if (token_leaves(head, token))
      return refused(
          fmt::format("the session's token belongs to another destination than {}", head.destination.text()));
    return {};
  }
  std::optional<std::size_t> place;
  for (std::size_t i = 0; i < head.fields.size(); ++i) {
    const Field& field = head.fields[i];
    if (form->kind == CredentialForm::Kind::aws_sigv4 && field.value == token &&
        lower(field.name) == "x-amz-security-token")
      continue;  // as clients send it with temporary credentials; it is replaced with the signature
    if (is_token_in_place(field, *form, token)) {
      if (place)
        return refused(
            fmt::format("the credential stands twice: the field '{}' is repeated", lower(field.name)));
      place = i;
    } else if (is_credential_field(lower(field.name), *form)) {
      return refused(
          fmt::format("the field '{}' carries a credential that is not this session's", lower(field.name)));
    } else if (holds_token(field.value, token) || holds_token(field.name, token)) {
      return refused(fmt::format("the session's token stands in the field '{}', where it does not belong",
                                 lower(field.name)));
    }
  }
  if (holds_token(head.path, token) || holds_token(head.query, token))
    return refused("the session's token stands in the address, where it does not belong");
  if (auto foreign = foreign_parameter(head)) return *foreign;
  if (!place) {
    auto without =
        refused(fmt::format("a request to {} must carry this session's token where its credential belongs",
                            head.destination.text()));
    without.missing = true;
    return without;
  }
  return {Provenance::Verdict::swap, {}, *place};
}

std::string field_with_secret(const CredentialForm& form, std::string_view secret) {
  switch (form.kind) {
    case CredentialForm::Kind::bearer:
      return fmt::format("Bearer {}", secret);
    case CredentialForm::Kind::basic:
      return fmt::format("Basic {}", base64(fmt::format("{}:{}", form.user, secret)));
    case CredentialForm::Kind::header:
      return std::string(secret);
    case CredentialForm::Kind::aws_sigv4:
      break;  // never stands in a field
  }
  return {};
}

bool holds_token(std::string_view bytes, std::string_view token) {
  if (token.empty()) return false;
  if (bytes.find(token) != std::string_view::npos) return true;
  if (bytes.find('%') != std::string_view::npos) {
    auto decoded = percent_decoded(bytes);
    if (decoded && decoded->find(token) != std::string_view::npos) return true;
  }
  for (std::size_t shift = 0; shift < 3; ++shift) {
    // With `shift` unknown bytes before it, the token's own characters in base64 are those that no neighbour
    // touches.
    std::string encoded = base64(std::string(shift, '\0') + std::string(token));
    std::size_t first = shift == 0 ? 0 : shift + 1;
    std::size_t last = (shift + token.size()) * 8 / 6;
    std::string inner = encoded.substr(first, last - first);
    if (bytes.find(inner) != std::string_view::npos) return true;
    std::replace(inner.begin(), inner.end(), '+', '-');
    std::replace(inner.begin(), inner.end(), '/', '_');
    if (bytes.find(inner) != std::string_view::npos) return true;
  }
  return false;
}

}  // namespace anchorhold::egress
