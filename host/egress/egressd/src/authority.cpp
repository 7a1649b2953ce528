#include "authority.h"

#include <array>
#include <ctime>
#include <fmt/format.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include "base/id.h"

namespace anchorhold::egress {
namespace {

constexpr std::size_t max_kept = 1000;
constexpr std::time_t hour = 3600, day = 24 * hour;
constexpr std::time_t backdated = 48 * hour;
constexpr std::time_t leaf_life = 30 * day, authority_life = 365 * day;
constexpr std::chrono::hours renewed_after{24};

tl::unexpected<Error> failed(std::string_view what) {
  return fail(ErrorCode::internal, fmt::format("{}: {}", what, openssl_error()));
}

Result<Certificate> begin_certificate(std::time_t life, EVP_PKEY* key, const std::string& name) {
  Certificate certificate(X509_new());
  std::array<unsigned char, 16> serial;
  if (!certificate || RAND_bytes(serial.data(), serial.size()) != 1) return failed("a certificate");
  serial[0] = (serial[0] & 0x7f) | 0x40;  // positive, and of full length (RFC 5280 4.1.2.2)
  std::unique_ptr<BIGNUM, Freed<BN_free>> number(BN_bin2bn(serial.data(), serial.size(), nullptr));
  std::time_t now = std::time(nullptr);
  X509_set_version(certificate.get(), X509_VERSION_3);
  X509_NAME* subject = X509_get_subject_name(certificate.get());
  bool made = BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate.get())) &&
              ASN1_TIME_set(X509_getm_notBefore(certificate.get()), now - backdated) &&
              ASN1_TIME_set(X509_getm_notAfter(certificate.get()), now + life) &&
              X509_set_pubkey(certificate.get(), key) == 1 &&
              X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8,
                                         reinterpret_cast<const unsigned char*>(name.data()),
                                         static_cast<int>(name.size()), -1, 0) == 1;
  if (!made) return failed("a certificate");
  return certificate;
}

bool add_extension(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  std::unique_ptr<X509_EXTENSION, Freed<X509_EXTENSION_free>> extension(
      X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str()));
  return extension && X509_add_ext(certificate, extension.get(), -1) == 1;
}

}  // namespace

Result<std::unique_ptr<Authority>> Authority::create() {
  std::unique_ptr<Authority> authority(new Authority);
  authority->key_.reset(EVP_EC_gen("P-256"));
  authority->leaf_key_.reset(EVP_EC_gen("P-256"));
  if (!authority->key_ || !authority->leaf_key_) return failed("a key");
  authority->certificate_ = ANCHORHOLD_TRY(begin_certificate(
      authority_life, authority->key_.get(), fmt::format("Anchorhold session {}", random_hex(6))));
  X509* made = authority->certificate_.get();
  X509_set_issuer_name(made, X509_get_subject_name(made));
  if (!add_extension(made, made, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
      !add_extension(made, made, NID_key_usage, "critical,keyCertSign,cRLSign") ||
      !add_extension(made, made, NID_subject_key_identifier, "hash") ||
      X509_sign(made, authority->key_.get(), EVP_sha256()) == 0)
    return failed("the session's authority");
  std::unique_ptr<BIO, Freed<BIO_free>> bio(BIO_new(BIO_s_mem()));
  if (!bio || PEM_write_bio_X509(bio.get(), made) != 1) return failed("the session's authority");
  char* text = nullptr;
  long size = BIO_get_mem_data(bio.get(), &text);
  authority->pem_.assign(text, static_cast<std::size_t>(size));
  authority->context_ = ANCHORHOLD_TRY(server_context());
  return authority;
}

Result<Certificate> Authority::make_leaf(const policy::Host& host) {
  std::string name = host.address() ? host.address()->text() : host.text();
  // A common name holds 64 characters; clients look at the alternative name (RFC 9525).
  std::string common = name.size() <= 64 ? name : "anchorhold";
  auto leaf = ANCHORHOLD_TRY(begin_certificate(leaf_life, leaf_key_.get(), common));
  X509_set_issuer_name(leaf.get(), X509_get_subject_name(certificate_.get()));
  std::string alternative = fmt::format("{}:{}", host.address() ? "IP" : "DNS", name);
  if (!add_extension(leaf.get(), certificate_.get(), NID_basic_constraints, "critical,CA:FALSE") ||
      !add_extension(leaf.get(), certificate_.get(), NID_key_usage, "critical,digitalSignature") ||
      !add_extension(leaf.get(), certificate_.get(), NID_ext_key_usage, "serverAuth") ||
      !add_extension(leaf.get(), certificate_.get(), NID_authority_key_identifier, "keyid:always") ||
      !add_extension(leaf.get(), certificate_.get(), NID_subject_alt_name, alternative) ||
      X509_sign(leaf.get(), key_.get(), EVP_sha256()) == 0)
    return failed(fmt::format("a certificate for {}", name));
  return leaf;
}

Result<X509*> Authority::certificate_for(const policy::Host& host) {
  auto now = std::chrono::steady_clock::now();
  if (auto found = kept_.find(host.text()); found != kept_.end()) {
    order_.splice(order_.begin(), order_, found->second.order);
    if (now - found->second.made < renewed_after) return found->second.certificate.get();
    found->second.certificate = ANCHORHOLD_TRY(make_leaf(host));
    found->second.made = now;
    return found->second.certificate.get();
  }
  auto certificate = ANCHORHOLD_TRY(make_leaf(host));
  if (kept_.size() >= max_kept) {
    kept_.erase(order_.back());
    order_.pop_back();
  }
  order_.push_front(host.text());
  X509* made = certificate.get();
  kept_.emplace(host.text(), Kept{std::move(certificate), now, order_.begin()});
  return made;
}

}  // namespace anchorhold::egress
