#include "trust.h"

#include <fmt/format.h>

#include "base/files.h"

namespace anchorhold::guest {
namespace {

constexpr std::string_view mark = "\n# Of this session:\n";
constexpr std::string_view bundle_path = "etc/ssl/certs/ca-certificates.crt";
constexpr std::string_view authority_path = "usr/local/share/ca-certificates/anchorhold-session.crt";
constexpr std::size_t max_bundle_bytes = 16 << 20;

}  // namespace

std::string bundle_with(std::string_view bundle, std::string_view authority_pem) {
  std::string text(bundle.substr(0, bundle.find(mark)));
  text += mark;
  text += authority_pem;
  if (!text.ends_with('\n')) text += '\n';
  return text;
}

Status trust_authority(std::string_view authority_pem, const std::filesystem::path& root) {
  constexpr std::string_view begin = "-----BEGIN CERTIFICATE-----";
  if (!authority_pem.starts_with(begin) || authority_pem.size() > max_authority_bytes ||
      authority_pem.find(mark) != authority_pem.npos)
    return fail(ErrorCode::invalid_argument, "not the certificate of an authority");
  std::string bundle;
  const auto path = root / bundle_path;
  if (std::filesystem::exists(path)) bundle = ANCHORHOLD_TRY(read_file(path, max_bundle_bytes));
  for (const auto& [file, text] : {std::pair(root / authority_path, std::string(authority_pem)),
                                   std::pair(path, bundle_with(bundle, authority_pem))}) {
    std::error_code error;
    std::filesystem::create_directories(file.parent_path(), error);
    if (error) return fail_errno(error.value(), file.parent_path().string());
    ANCHORHOLD_CHECK(write_file_atomic(file, text, 0644));
  }
  return {};
}

std::map<std::string, std::string> network_environment(std::uint16_t proxy_port) {
  const std::string proxy = fmt::format("http://127.0.0.1:{}", proxy_port);
  const std::string own = "localhost,127.0.0.1,::1";
  const std::string bundle = "/" + std::string(bundle_path);
  return {{"http_proxy", proxy},
          {"HTTP_PROXY", proxy},
          {"https_proxy", proxy},
          {"HTTPS_PROXY", proxy},
          {"all_proxy", proxy},
          {"ALL_PROXY", proxy},
          {"no_proxy", own},
          {"NO_PROXY", own},
          {"SSL_CERT_FILE", bundle},
          {"REQUESTS_CA_BUNDLE", bundle},
          {"CURL_CA_BUNDLE", bundle},
          {"GIT_SSL_CAINFO", bundle},
          {"NODE_EXTRA_CA_CERTS", "/" + std::string(authority_path)}};
}

}  // namespace anchorhold::guest
