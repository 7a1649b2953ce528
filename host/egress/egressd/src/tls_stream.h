// TLS on a stream, by OpenSSL, which reads and writes through the stream below: there are no buffers between
// the two, and none in OpenSSL while a connection is idle.
#pragma once

#include <memory>
#include <openssl/ssl.h>
#include <string>
#include <vector>

#include "stream.h"

namespace anchorhold::egress {

template <auto free_function>
struct Freed {
  template <typename T>
  void operator()(T* object) const {
    free_function(object);
  }
};
using SslContext = std::unique_ptr<SSL_CTX, Freed<SSL_CTX_free>>;
using SslSession = std::unique_ptr<SSL, Freed<SSL_free>>;

// The last error of OpenSSL, for a person; empties its queue.
std::string openssl_error();

class TlsStream : public Stream {
 public:
  // `prefix` was read from the stream already and comes first. The stream must outlive this.
  static Result<std::unique_ptr<TlsStream>> create(SSL_CTX* context, Stream& below, std::string prefix = {});
  // The same, owning the stream.
  static Result<std::unique_ptr<TlsStream>> create(SSL_CTX* context, std::unique_ptr<Stream> below);

  // As the client; `name` is verified against the server's certificate.
  Awaitable<Status> connect(const std::string& name, bool is_address, std::vector<std::string> protocols);
  // As the server; it speaks `protocol` (none: no ALPN) when the client offers it.
  Awaitable<Status> accept(X509* certificate, EVP_PKEY* key, std::string protocol);
  // The protocol that ALPN chose, or nothing.
  std::string protocol() const;

  Io try_read(std::span<char> buffer) override;
  Io try_write(std::string_view bytes) override;
  Io try_shutdown() override;
  Awaitable<void> wait(Direction direction) override { return below_->wait(direction); }
  void cut() override { below_->cut(); }

 private:
  TlsStream(SslSession ssl, Stream& below, std::string prefix)
      : ssl_(std::move(ssl)), below_(&below), prefix_(std::move(prefix)) {}
  static BIO_METHOD* method();
  static int bio_read(BIO* bio, char* buffer, int size);
  static int bio_write(BIO* bio, const char* bytes, int size);
  static long bio_control(BIO* bio, int command, long number, void* pointer);
  friend struct TlsCallbacks;

  Io outcome(int result);
  Awaitable<Status> shake_hands();

  std::unique_ptr<Stream> owned_;
  SslSession ssl_;
  Stream* below_;
  std::string prefix_;
  std::string wanted_protocol_;
  bool broken_ = false;
};

// For connections to servers: verified against these certificates, TLS 1.2 or later.
Result<SslContext> client_context(const std::string& trust_pem);
// For connections of the guest.
Result<SslContext> server_context();

}  // namespace anchorhold::egress
