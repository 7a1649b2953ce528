#include "egress/upstream.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fmt/format.h>
#include <sodium.h>
#include <vector>

#include "base/files.h"
#include "egress/text.h"

namespace anchorhold::egress {
namespace {

constexpr std::size_t max_resolv_conf_bytes = 64 * 1024;
constexpr std::size_t max_bundle_bytes = 8u << 20;
constexpr std::string_view blank = " \t\r";  // of a line of a file
constexpr std::string_view pem_begin = "-----BEGIN CERTIFICATE-----";

// Each from its first line to its last, with something between that can be one (RFC 7468): half a file is
// none.
bool holds_certificates(std::string_view text) {
  constexpr std::string_view pem_end = "-----END CERTIFICATE-----";
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(pem_begin, at)) != std::string_view::npos; ++count) {
    at += pem_begin.size();
    auto end = text.find(pem_end, at);
    if (end == std::string_view::npos) return false;
    auto body = text.substr(at, end - at);
    std::vector<unsigned char> bytes(body.size());
    std::size_t length = 0;
    constexpr unsigned char der_sequence = 0x30;
    if (sodium_base642bin(bytes.data(), bytes.size(), body.data(), body.size(), "\r\n \t", &length, nullptr,
                          sodium_base64_VARIANT_ORIGINAL) != 0 ||
        length < 2 || bytes[0] != der_sequence)
      return false;
    at = end;
  }
  return count > 0;
}

Result<std::string> percent_decoded(std::string_view text) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    std::string hex = lower(text.substr(i + 1, 2));
    if (hex.size() != 2 || hex.find_first_not_of(digits) != std::string::npos)
      return fail(ErrorCode::invalid_argument, "a proxy's user or password is not properly encoded");
    decoded += static_cast<char>(digits.find(hex[0]) * 16 + digits.find(hex[1]));
    i += 2;
  }
  return decoded;
}

bool excepts(std::string_view entry, const policy::Destination& destination) {
  if (entry == "*") return true;
  if (auto block = policy::HostPattern::parse(entry); block && block->names_address())
    return block->matches(destination.host);
  if (entry.starts_with("*.")) entry.remove_prefix(1);
  if (entry.starts_with('.')) entry.remove_prefix(1);
  auto named = policy::Destination::parse(entry, destination.port);
  if (!named || named->port != destination.port) return false;
  if (named->host == destination.host) return true;
  const std::string &name = destination.host.text(), &suffix = named->host.text();
  return destination.host.is_name() && named->host.is_name() && name.size() > suffix.size() &&
         name.ends_with(suffix) && name[name.size() - suffix.size() - 1] == '.';
}

}  // namespace

Result<ResolverSpec> ResolverSpec::of_host(const std::filesystem::path& resolv_conf) {
  std::string text = ANCHORHOLD_TRY(read_file(resolv_conf, max_resolv_conf_bytes));
  ResolverSpec spec;
  for (std::string_view rest = text; !rest.empty();) {
    auto end = std::min(rest.find('\n'), rest.size());
    std::string_view line = trimmed(rest.substr(0, end), blank);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    constexpr std::string_view word = "nameserver";
    if (!line.starts_with(word)) continue;
    std::string_view value = trimmed(line.substr(word.size()), blank);
    value = value.substr(0, value.find_first_of(" \t"));
    bool v6 = value.find(':') != std::string_view::npos;
    std::string server = v6 ? fmt::format("[{}]", value) : std::string(value);
    // One with a zone ("fe80::1%eth0") cannot be written in our form, and is left out as an unusable one is.
    if (auto host = policy::Host::parse(server); host && !host->is_name()) spec.servers.push_back(server);
  }
  if (spec.servers.empty())
    return fail(ErrorCode::failed_precondition, fmt::format("{} names no nameserver", resolv_conf.string()));
  return spec;
}

Result<UpstreamProxy> UpstreamProxy::parse(std::string_view url) {
  UpstreamProxy proxy;
  std::uint16_t port = 80;
  if (auto scheme = url.find("://"); scheme != std::string_view::npos) {
    std::string name = lower(url.substr(0, scheme));
    if (name != "http" && name != "https")
      return fail(ErrorCode::unsupported, fmt::format("a proxy of the kind {}:// is not supported", name),
                  "use an http:// or https:// proxy");
    proxy.tls = name == "https";
    if (proxy.tls) port = 443;
    url.remove_prefix(scheme + 3);
  }
  url = url.substr(0, url.find_first_of("/?#"));
  if (auto at = url.rfind('@'); at != std::string_view::npos) {
    std::string_view who = url.substr(0, at);
    auto colon = std::min(who.find(':'), who.size());
    proxy.user = ANCHORHOLD_TRY(percent_decoded(who.substr(0, colon)));
    if (colon < who.size()) proxy.password = ANCHORHOLD_TRY(percent_decoded(who.substr(colon + 1)));
    url.remove_prefix(at + 1);
  }
  proxy.address = ANCHORHOLD_TRY(policy::Destination::parse(url, port));
  return proxy;
}

Result<UpstreamProxies> UpstreamProxies::from_environment(
    const std::function<const char*(const char*)>& environment) {
  auto value = [&](std::initializer_list<const char*> names) -> std::string {
    for (const char* name : names) {
      const char* found = environment ? environment(name) : std::getenv(name);
      if (found && *found) return found;
    }
    return {};
  };
  UpstreamProxies proxies;
  auto read = [&](std::string text, std::string_view what, std::optional<UpstreamProxy>& proxy) -> Status {
    if (text.empty()) return {};
    auto parsed = UpstreamProxy::parse(text);
    if (!parsed) return fail(with_context(std::move(parsed).error(), what));
    proxy = std::move(*parsed);
    return {};
  };
  ANCHORHOLD_CHECK(read(value({"http_proxy", "all_proxy", "ALL_PROXY"}), "http_proxy", proxies.http));
  ANCHORHOLD_CHECK(
      read(value({"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"}), "https_proxy", proxies.https));
  std::string exceptions = value({"no_proxy", "NO_PROXY"});
  for (std::string_view rest = exceptions; !rest.empty();) {
    auto end = std::min(rest.find(','), rest.size());
    if (auto entry = trimmed(rest.substr(0, end), blank); !entry.empty())
      proxies.no_proxy.emplace_back(entry);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return proxies;
}

const UpstreamProxy* UpstreamProxies::for_destination(const policy::Destination& destination,
                                                      bool plain) const {
  const auto& proxy = plain ? http : https;
  if (!proxy || std::any_of(no_proxy.begin(), no_proxy.end(),
                            [&](const std::string& entry) { return excepts(entry, destination); }))
    return nullptr;
  return &*proxy;
}

Result<std::string> TrustSpec::pem() const {
  std::vector<std::filesystem::path> files = extra_ca;
  if (system) {
    std::filesystem::path bundle = system_bundle;
    // Debian and its kin, Fedora and its kin, openSUSE, OpenSSL's own place.
    constexpr std::array places{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                                "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"};
    std::error_code error;
    for (const char* place : places)
      if (bundle.empty() && std::filesystem::exists(place, error)) bundle = place;
    if (bundle.empty())
      return fail(ErrorCode::not_found, "this system has no bundle of trusted certificates",
                  "install ca-certificates");
    files.push_back(std::move(bundle));
  }
  std::string all;
  for (const auto& file : files) {
    std::string text = ANCHORHOLD_TRY(read_file(file, max_bundle_bytes));
    if (!holds_certificates(text))
      return fail(ErrorCode::invalid_argument, fmt::format("{} holds no certificate", file.string()),
                  "a PEM file is needed");
    all += text;
    if (!all.ends_with('\n')) all += '\n';
  }
  return all;
}

}  // namespace anchorhold::egress
