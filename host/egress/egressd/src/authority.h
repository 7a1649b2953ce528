// The session's certificate authority: made when the process starts, its key in this process's memory and
// nowhere else, gone with it. It makes the certificates that opened connections show to the guest, valid from
// two days ago on, since a guest's clock may be wrong.
#pragma once

#include <list>
#include <memory>
#include <openssl/evp.h>
#include <openssl/x509.h>
#include <string>
#include <unordered_map>

#include "policy/destination.h"
#include "tls_stream.h"

namespace anchorhold::egress {

using Certificate = std::unique_ptr<X509, Freed<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;

class Authority {
 public:
  static Result<std::unique_ptr<Authority>> create();
  const std::string& certificate_pem() const { return pem_; }
  // The certificate for this host; kept for the next connection. Owned here, until many others were made.
  Result<X509*> certificate_for(const policy::Host& host);
  // Of every certificate that is made here.
  EVP_PKEY* leaf_key() { return leaf_key_.get(); }
  SSL_CTX* context() { return context_.get(); }

 private:
  struct Kept {
    Certificate certificate;
    std::chrono::steady_clock::time_point made;
    std::list<std::string>::iterator order;
  };
  Authority() = default;
  Result<Certificate> make_leaf(const policy::Host& host);

  Key key_, leaf_key_;
  Certificate certificate_;
  std::string pem_;
  SslContext context_;
  std::unordered_map<std::string, Kept> kept_;
  std::list<std::string> order_;  // the one used last stands first
};

}  // namespace anchorhold::egress
