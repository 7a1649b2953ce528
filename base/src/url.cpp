#include "base/url.h"

#include <charconv>
#include <curl/curl.h>
#include <fmt/format.h>
#include <memory>
#include <optional>

namespace anchorhold {
namespace {

constexpr std::size_t shown_of_an_address = 200;

std::uint16_t own_port(const std::string& scheme) {
  return scheme == "http" ? 80 : 443;
}

}  // namespace

std::string Url::authority() const {
  return port == own_port(scheme) ? host : fmt::format("{}:{}", host, port);
}

std::string Url::target() const {
  return query.empty() ? path : fmt::format("{}?{}", path, query);
}

std::string Url::text() const {
  return fmt::format("{}://{}{}", scheme, authority(), target());
}

Result<Url> parse_url(const std::string& text, const std::string& base) {
  std::unique_ptr<CURLU, void (*)(CURLU*)> parsed(curl_url(), &curl_url_cleanup);
  auto wrong = [&](std::string_view what) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("the address {} {}", text.substr(0, shown_of_an_address), what),
                "give it as https://HOST/PATH or http://HOST:PORT/PATH");
  };
  auto set = [&](const std::string& address) {
    // What libcurl would stop at.
    return address.find('\0') == std::string::npos &&
           curl_url_set(parsed.get(), CURLUPART_URL, address.c_str(), 0) == CURLUE_OK;
  };
  if (!parsed || (!base.empty() && !set(base)) || !set(text)) return wrong("is not a URL");
  auto part = [&](CURLUPart which, unsigned flags = 0) -> std::optional<std::string> {
    char* found = nullptr;
    if (curl_url_get(parsed.get(), which, &found, flags) != CURLUE_OK) return std::nullopt;
    std::string value = found;
    curl_free(found);
    return value;
  };
  Url url;
  url.scheme = part(CURLUPART_SCHEME).value_or("");
  if (url.scheme != "http" && url.scheme != "https") return wrong("is neither http nor https");
  if (part(CURLUPART_USER) || part(CURLUPART_PASSWORD))
    return fail(ErrorCode::invalid_argument, "the address holds a user name or a password",
                "secrets have places of their own: a key file, or a credential");
  url.host = part(CURLUPART_HOST).value_or("");
  if (url.host.empty()) return wrong("names no host");
  if (part(CURLUPART_ZONEID)) return wrong("names a zone, which means nothing elsewhere");
  const std::string port = part(CURLUPART_PORT, CURLU_DEFAULT_PORT).value_or("");
  auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), url.port);
  if (error != std::errc() || end != port.data() + port.size() || url.port == 0)
    return wrong("has a port that is none");
  url.path = part(CURLUPART_PATH).value_or("/");
  url.query = part(CURLUPART_QUERY).value_or("");
  return url;
}

}  // namespace anchorhold
