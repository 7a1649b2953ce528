#include "trust.h"

#include <fmt/format.h>

#include "base/files.h"
#include "java_keystore.h"

namespace anchorhold::guest {
namespace {

constexpr std::string_view mark = "\n# Of this session:\n";
constexpr std::string_view bundle_path = "etc/ssl/certs/ca-certificates.crt";
constexpr std::string_view authority_path = "usr/local/share/ca-certificates/anchorhold-session.crt";
constexpr std::string_view java_path = "etc/ssl/certs/java/cacerts";
// OpenSSL looks here first when no variable says otherwise. Debian has nothing there: its OpenSSL goes by a
// folder of links named after hashes.
constexpr std::string_view openssl_path = "usr/lib/ssl/cert.pem";
constexpr std::size_t max_bundle_bytes = 16 << 20;

Status put(const std::filesystem::path& file, std::string_view text) {
  std::error_code error;
  std::filesystem::create_directories(file.parent_path(), error);
  if (error) return fail_errno(error.value(), file.parent_path().string());
  return write_file_atomic(file, text, 0644);
}

Status link_openssl(const std::filesystem::path& root) {
  const auto link = root / openssl_path;
  std::error_code error;
  if (std::filesystem::exists(std::filesystem::symlink_status(link, error))) return {};
  std::filesystem::create_directories(link.parent_path(), error);
  std::filesystem::create_symlink("/" + std::string(bundle_path), link, error);
  if (error) return fail_errno(error.value(), link.string());
  return {};
}

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
  bundle = bundle_with(bundle, authority_pem);
  ANCHORHOLD_CHECK(put(root / authority_path, authority_pem));
  ANCHORHOLD_CHECK(put(path, bundle));
  ANCHORHOLD_CHECK(put(root / java_path, java_keystore(certificates_in(bundle))));
  return link_openssl(root);
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
          {"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", bundle},
          {"AWS_CA_BUNDLE", bundle},
          {"CARGO_HTTP_CAINFO", bundle},
          {"NODE_EXTRA_CA_CERTS", "/" + std::string(authority_path)}};
}

}  // namespace anchorhold::guest
