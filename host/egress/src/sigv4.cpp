#include "egress/sigv4.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <set>
#include <sodium.h>

#include "egress/text.h"

namespace anchorhold::egress {
namespace {

constexpr std::string_view scheme = "AWS4-HMAC-SHA256";
constexpr std::string_view terminator = "aws4_request";
constexpr std::string_view empty_hash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
constexpr std::size_t key_bytes = 32, max_part = 128, max_headers = max_fields + 8;

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

tl::unexpected<Error> malformed(std::string_view what) {
  return fail(ErrorCode::invalid_argument, fmt::format("the AWS signature has {}", what));
}

std::string hex(const unsigned char* bytes, std::size_t size) {
  std::string text(size * 2 + 1, '\0');
  sodium_bin2hex(text.data(), text.size(), bytes, size);
  text.pop_back();
  return text;
}

std::string sha256(std::string_view text) {
  unsigned char hash[32];
  crypto_hash_sha256(hash, bytes_of(text), text.size());
  return hex(hash, sizeof hash);
}

void hmac(unsigned char (&out)[key_bytes], std::string_view key, std::string_view text) {
  crypto_auth_hmacsha256_state state;
  crypto_auth_hmacsha256_init(&state, bytes_of(key), key.size());
  crypto_auth_hmacsha256_update(&state, bytes_of(text), text.size());
  crypto_auth_hmacsha256_final(&state, out);
  sodium_memzero(&state, sizeof state);
}

bool is_part(std::string_view text) {
  return !text.empty() && text.size() <= max_part && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.' || c == '+' || c == '=';
  });
}

// RFC 9110 5.6.2; how long it is, the head's limit says.
bool is_header_name(std::string_view text) {
  constexpr std::string_view others = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           others.find(c) != std::string_view::npos;
  });
}

bool is_hex(std::string_view text, std::size_t size) {
  return text.size() == size && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (;;) {
    auto end = text.find(at);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// RFC 3986's unreserved characters stay.
std::string encoded(std::string_view text, bool keep_slash) {
  std::string result;
  for (char c : text) {
    bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                 c == '_' || c == '.' || c == '~' || (keep_slash && c == '/');
    if (plain)
      result += c;
    else
      result += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return result;
}

int hex_digit(char c) {
  return c >= '0' && c <= '9'   ? c - '0'
         : c >= 'a' && c <= 'f' ? c - 'a' + 10
         : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                : -1;
}

// What is not properly encoded stays as it is.
std::string decoded(std::string_view text, bool plus_is_space) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    int high = i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
    int low = i + 2 < text.size() ? hex_digit(text[i + 2]) : -1;
    if (text[i] == '%' && high >= 0 && low >= 0) {
      result += static_cast<char>(high * 16 + low);
      i += 2;
    } else {
      result += plus_is_space && text[i] == '+' ? ' ' : text[i];
    }
  }
  return result;
}

// Without dot segments and empty ones (RFC 3986 5.2.4), as every service but S3 wants it.
std::string without_dot_segments(std::string_view path) {
  std::vector<std::string_view> kept;
  for (std::string_view part : split(path, '/')) {
    if (part == "..") {
      if (!kept.empty()) kept.pop_back();
    } else if (!part.empty() && part != ".") {
      kept.push_back(part);
    }
  }
  std::string result;
  for (std::string_view part : kept) result += fmt::format("/{}", part);
  if (result.empty() || path.ends_with('/')) result += '/';
  return result;
}

std::string canonical_path(std::string_view path, std::string_view service) {
  if (service == "s3" || service.starts_with("s3-") || service == "s3express")
    return encoded(decoded(path, false), true);
  return encoded(without_dot_segments(path), true);
}

std::string canonical_query(const RequestHead& head) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (std::string_view pair : split(head.query, '&')) {
    if (pair.empty()) continue;
    auto equals = pair.find('=');
    std::string_view value = equals == std::string_view::npos ? "" : pair.substr(equals + 1);
    pairs.emplace_back(encoded(decoded(pair.substr(0, equals), true), false),
                       encoded(decoded(value, true), false));
  }
  std::sort(pairs.begin(), pairs.end());
  std::string text;
  for (const auto& [name, value] : pairs) {
    if (!text.empty()) text += '&';
    text += fmt::format("{}={}", name, value);
  }
  return text;
}

// Values of one name, joined; runs of spaces become one.
std::string canonical_value(const std::vector<Field>& fields, std::string_view name) {
  std::string text;
  bool first = true;
  for (const Field& field : fields) {
    if (lower(field.name) != name) continue;
    if (!first) text += ',';
    first = false;
    bool space = false;
    for (char c : trimmed(field.value)) {
      bool is_space = c == ' ';
      if (!is_space || !space) text += c;
      space = is_space;
    }
  }
  return text;
}

// Fields that are written anew on the way, or that say nothing to the server.
bool changes_on_the_way(std::string_view name) {
  constexpr std::array names{"authorization", "accept-encoding", "connection",        "expect",     "te",
                             "user-agent",    "content-length",  "transfer-encoding", "keep-alive", "upgrade",
                             "trailer",       "proxy-connection"};
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::vector<std::string> headers_to_sign(const RequestHead& head, const std::vector<std::string>& also) {
  std::set<std::string> present, names{"host"};
  for (const Field& field : head.fields) {
    std::string name = lower(field.name);
    if (name.starts_with("x-amz-") || name == "content-type" || name == "content-md5") names.insert(name);
    present.insert(std::move(name));
  }
  for (const std::string& name : also)
    if (present.contains(name) && !changes_on_the_way(name)) names.insert(name);
  return {names.begin(), names.end()};
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ";") + name;
  return text;
}

void remove_fields(RequestHead& head, std::size_t& field, std::string_view name) {
  for (std::size_t i = head.fields.size(); i-- > 0;) {
    if (i == field || lower(head.fields[i].name) != name) continue;
    head.fields.erase(head.fields.begin() + static_cast<std::ptrdiff_t>(i));
    if (i < field) --field;
  }
}

}  // namespace

std::string SigV4Scope::text() const {
  return fmt::format("{}/{}/{}/{}", date, region, service, terminator);
}

Result<SigV4Scope> SigV4Scope::parse(std::string_view text) {
  auto parts = split(text, '/');
  if (parts.size() != 4 || parts[3] != terminator) return malformed("no proper scope");
  if (parts[0].size() != 8 || parts[0].find_first_not_of("0123456789") != std::string_view::npos)
    return malformed("no proper date");
  if (!is_part(parts[1]) || !is_part(parts[2])) return malformed("no proper region and service");
  return SigV4Scope{std::string(parts[0]), std::string(parts[1]), std::string(parts[2])};
}

Result<std::optional<SigV4Authorization>> parse_sigv4(std::string_view value) {
  if (!value.starts_with(scheme) || value.size() == scheme.size() || value[scheme.size()] != ' ')
    return std::nullopt;
  std::optional<std::string_view> credential, headers, signature;
  for (std::string_view part : split(value.substr(scheme.size()), ',')) {
    part = trimmed(part);
    auto equals = part.find('=');
    std::string_view name = part.substr(0, equals);
    auto* place = name == "Credential"      ? &credential
                  : name == "SignedHeaders" ? &headers
                  : name == "Signature"     ? &signature
                                            : nullptr;
    if (equals == std::string_view::npos || !place || *place) return malformed("a part that does not belong");
    *place = part.substr(equals + 1);
  }
  if (!credential || !headers || !signature) return malformed("not all its parts");
  auto slash = credential->find('/');
  if (slash == std::string_view::npos || !is_part(credential->substr(0, slash)))
    return malformed("no proper access key id");
  SigV4Authorization parsed;
  parsed.access_key_id = credential->substr(0, slash);
  parsed.scope = ANCHORHOLD_TRY(SigV4Scope::parse(credential->substr(slash + 1)));
  for (std::string_view name : split(*headers, ';')) {
    if (!is_header_name(name) || parsed.signed_headers.size() >= max_headers)
      return malformed("no proper list of headers");
    parsed.signed_headers.push_back(lower(name));
  }
  if (!is_hex(*signature, 64)) return malformed("no proper signature");
  parsed.signature = *signature;
  return std::optional(std::move(parsed));
}

Secret sigv4_signing_key(std::string_view secret_access_key, const SigV4Scope& scope) {
  Secret first = Secret::zeros(4 + secret_access_key.size());
  std::copy_n("AWS4", 4, first.data());
  std::copy(secret_access_key.begin(), secret_access_key.end(), first.data() + 4);
  unsigned char key[key_bytes];
  hmac(key, first.expose(), scope.date);
  for (std::string_view part :
       {std::string_view(scope.region), std::string_view(scope.service), terminator}) {
    unsigned char next[key_bytes];
    hmac(next, {reinterpret_cast<const char*>(key), key_bytes}, part);
    std::copy(std::begin(next), std::end(next), key);
    sodium_memzero(next, sizeof next);
  }
  Secret made = Secret::of({reinterpret_cast<const char*>(key), key_bytes});
  sodium_memzero(key, sizeof key);
  return made;
}

std::string encode_sigv4_key(const SigV4Key& key) {
  std::string digits = hex(bytes_of(key.signing_key), key.signing_key.size());
  std::string text;
  text.reserve(key.access_key_id.size() + key.session_token.size() + digits.size() + 2);
  text.append(key.access_key_id).append(1, '\n').append(key.session_token).append(1, '\n').append(digits);
  wipe(digits);
  return text;
}

Result<SigV4Key> parse_sigv4_key(std::string_view text) {
  auto lines = split(text, '\n');
  if (lines.size() != 3 || lines[0].empty() || !is_hex(lines[2], key_bytes * 2))
    return fail(ErrorCode::data_loss, "what the host gave to sign with is no key");
  SigV4Key key{std::string(lines[0]), std::string(lines[1]), std::string(key_bytes, '\0')};
  std::size_t size = 0;
  sodium_hex2bin(reinterpret_cast<unsigned char*>(key.signing_key.data()), key_bytes, lines[2].data(),
                 lines[2].size(), nullptr, &size, nullptr);
  return key;
}

Result<SigV4Payload> sigv4_payload(const RequestHead& head) {
  auto values = values_of(head.fields, "x-amz-content-sha256");
  if (values.size() > 1) return malformed("its payload hash twice");
  if (values.empty()) {
    bool no_body = head.body.kind == BodyFraming::Kind::none ||
                   (head.body.kind == BodyFraming::Kind::length && head.body.length == 0);
    if (no_body) return SigV4Payload{SigV4Payload::Kind::given, std::string(empty_hash)};
    return SigV4Payload{SigV4Payload::Kind::hashed, {}};
  }
  std::string_view value = values[0];
  if (is_hex(value, 64) || value == "UNSIGNED-PAYLOAD" || value == "STREAMING-UNSIGNED-PAYLOAD-TRAILER")
    return SigV4Payload{SigV4Payload::Kind::given, std::string(value)};
  if (value.starts_with("STREAMING-"))
    return fail(ErrorCode::permission_denied,
                "the body is signed chunk by chunk, which is not signed again here: have the client send it "
                "as UNSIGNED-PAYLOAD or with one hash");
  return malformed("a payload hash that is none");
}

std::string sigv4_time(std::chrono::system_clock::time_point time) {
  using namespace std::chrono;
  auto day = floor<days>(time);
  year_month_day date(day);
  hh_mm_ss clock(floor<seconds>(time - day));
  return fmt::format("{:04}{:02}{:02}T{:02}{:02}{:02}Z", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                     clock.hours().count(), clock.minutes().count(), clock.seconds().count());
}

std::string sigv4_canonical_request(const RequestHead& head, const std::vector<std::string>& signed_headers,
                                    std::string_view service, std::string_view payload,
                                    std::uint16_t scheme_port) {
  std::string host =
      head.destination.port == scheme_port ? head.destination.host.text() : head.destination.text();
  std::string text =
      fmt::format("{}\n{}\n{}\n", head.method, canonical_path(head.path, service), canonical_query(head));
  for (const std::string& name : signed_headers)
    text += fmt::format("{}:{}\n", name, name == "host" ? host : canonical_value(head.fields, name));
  return text += fmt::format("\n{}\n{}", joined(signed_headers), payload);
}

void sign_sigv4(RequestHead& head, std::size_t field, const SigV4Key& key, const SigV4Scope& scope,
                std::string_view time, std::string_view payload, const std::vector<std::string>& also,
                std::uint16_t scheme_port) {
  remove_fields(head, field, "x-amz-date");
  remove_fields(head, field, "x-amz-security-token");
  head.fields.push_back({"X-Amz-Date", std::string(time)});
  if (!key.session_token.empty()) head.fields.push_back({"X-Amz-Security-Token", key.session_token});
  auto names = headers_to_sign(head, also);
  std::string request = sigv4_canonical_request(head, names, scope.service, payload, scheme_port);
  std::string to_sign = fmt::format("{}\n{}\n{}\n{}", scheme, time, scope.text(), sha256(request));
  wipe(request);  // it has the token of temporary credentials in it
  unsigned char signature[key_bytes];
  hmac(signature, key.signing_key, to_sign);
  head.fields[field].value =
      fmt::format("{} Credential={}/{}, SignedHeaders={}, Signature={}", scheme, key.access_key_id,
                  scope.text(), joined(names), hex(signature, sizeof signature));
}

}  // namespace anchorhold::egress
