#include "tls_stream.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

namespace anchorhold::egress {

std::string openssl_error() {
  std::string text;
  while (unsigned long error = ERR_get_error()) {
    const char* reason = ERR_reason_error_string(error);
    if (text.empty()) text = reason ? reason : fmt::format("error {:x}", error);
  }
  return text.empty() ? "the connection was closed" : text;
}

// OpenSSL asks which of the client's protocols is spoken.
struct TlsCallbacks {
  static int select_protocol(SSL* ssl, const unsigned char** out, unsigned char* out_size,
                             const unsigned char* offered, unsigned size, void*) {
    auto* stream = static_cast<TlsStream*>(SSL_get_app_data(ssl));
    const std::string& wanted = stream->wanted_protocol_;
    for (unsigned i = 0; i < size; i += 1u + offered[i]) {
      std::string_view name(reinterpret_cast<const char*>(offered + i + 1), offered[i]);
      if (wanted.empty() || name != wanted) continue;
      *out = offered + i + 1;
      *out_size = offered[i];
      return SSL_TLSEXT_ERR_OK;
    }
    return wanted.empty() ? SSL_TLSEXT_ERR_NOACK : SSL_TLSEXT_ERR_ALERT_FATAL;
  }
};

int TlsStream::bio_read(BIO* bio, char* buffer, int size) {
  auto* stream = static_cast<TlsStream*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  if (size <= 0) return 0;
  if (!stream->prefix_.empty()) {
    auto count = std::min(stream->prefix_.size(), static_cast<std::size_t>(size));
    std::memcpy(buffer, stream->prefix_.data(), count);
    stream->prefix_.erase(0, count);
    if (stream->prefix_.empty()) std::string().swap(stream->prefix_);
    return static_cast<int>(count);
  }
  Io io = stream->below_->try_read({buffer, static_cast<std::size_t>(size)});
  if (io.state == Io::State::done) return static_cast<int>(io.count);
  if (io.state == Io::State::end) return 0;
  if (io.state == Io::State::waiting)
    io.direction == Direction::read ? BIO_set_retry_read(bio) : BIO_set_retry_write(bio);
  return -1;
}

int TlsStream::bio_write(BIO* bio, const char* bytes, int size) {
  auto* stream = static_cast<TlsStream*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  if (size <= 0) return 0;
  Io io = stream->below_->try_write({bytes, static_cast<std::size_t>(size)});
  if (io.state == Io::State::done) return static_cast<int>(io.count);
  if (io.state == Io::State::waiting)
    io.direction == Direction::read ? BIO_set_retry_read(bio) : BIO_set_retry_write(bio);
  return -1;
}

long TlsStream::bio_control(BIO*, int command, long, void*) {
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

BIO_METHOD* TlsStream::method() {
  static BIO_METHOD* const made = [] {
    BIO_METHOD* fresh = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "anchorhold stream");
    BIO_meth_set_read(fresh, &TlsStream::bio_read);
    BIO_meth_set_write(fresh, &TlsStream::bio_write);
    BIO_meth_set_ctrl(fresh, &TlsStream::bio_control);
    return fresh;
  }();
  return made;
}

Result<std::unique_ptr<TlsStream>> TlsStream::create(SSL_CTX* context, Stream& below, std::string prefix) {
  SslSession ssl(SSL_new(context));
  BIO* bio = BIO_new(method());
  if (!ssl || !bio) return fail(ErrorCode::internal, "TLS: " + openssl_error());
  std::unique_ptr<TlsStream> stream(new TlsStream(std::move(ssl), below, std::move(prefix)));
  BIO_set_data(bio, stream.get());
  BIO_set_init(bio, 1);
  SSL_set_bio(stream->ssl_.get(), bio, bio);
  SSL_set_app_data(stream->ssl_.get(), stream.get());
  return stream;
}

Result<std::unique_ptr<TlsStream>> TlsStream::create(SSL_CTX* context, std::unique_ptr<Stream> below) {
  auto stream = ANCHORHOLD_TRY(create(context, *below));
  stream->owned_ = std::move(below);
  return stream;
}

Awaitable<Status> TlsStream::shake_hands() {
  for (;;) {
    ERR_clear_error();
    int result = SSL_do_handshake(ssl_.get());
    if (result == 1) co_return Status();
    Io io = outcome(result);
    if (io.state == Io::State::waiting) {
      co_await below_->wait(io.direction);
      continue;
    }
    long verified = SSL_get_verify_result(ssl_.get());
    if (verified != X509_V_OK)
      co_return fail(ErrorCode::permission_denied,
                     fmt::format("the server's certificate cannot be trusted: {}",
                                 X509_verify_cert_error_string(verified)));
    co_return fail(ErrorCode::unavailable, "TLS: " + openssl_error());
  }
}

Awaitable<Status> TlsStream::connect(const std::string& name, bool is_address,
                                     std::vector<std::string> protocols) {
  SSL_set_connect_state(ssl_.get());
  X509_VERIFY_PARAM* parameters = SSL_get0_param(ssl_.get());
  bool named = is_address ? X509_VERIFY_PARAM_set1_ip_asc(parameters, name.c_str()) == 1
                          : X509_VERIFY_PARAM_set1_host(parameters, name.c_str(), 0) == 1 &&
                                SSL_set_tlsext_host_name(ssl_.get(), name.c_str()) == 1;
  std::string offered;
  for (const auto& protocol : protocols) {
    if (protocol.empty() || protocol.size() > 255) continue;
    offered += static_cast<char>(protocol.size());
    offered += protocol;
  }
  bool offers = offered.empty() ||
                SSL_set_alpn_protos(ssl_.get(), reinterpret_cast<const unsigned char*>(offered.data()),
                                    static_cast<unsigned>(offered.size())) == 0;
  if (!named || !offers) co_return fail(ErrorCode::internal, "TLS: " + openssl_error());
  co_return co_await shake_hands();
}

Awaitable<Status> TlsStream::accept(X509* certificate, EVP_PKEY* key, std::string protocol) {
  SSL_set_accept_state(ssl_.get());
  wanted_protocol_ = std::move(protocol);
  if (SSL_use_certificate(ssl_.get(), certificate) != 1 || SSL_use_PrivateKey(ssl_.get(), key) != 1)
    co_return fail(ErrorCode::internal, "TLS: " + openssl_error());
  co_return co_await shake_hands();
}

std::string TlsStream::protocol() const {
  const unsigned char* name = nullptr;
  unsigned size = 0;
  SSL_get0_alpn_selected(ssl_.get(), &name, &size);
  return {reinterpret_cast<const char*>(name), size};
}

Io TlsStream::outcome(int result) {
  switch (SSL_get_error(ssl_.get(), result)) {
    case SSL_ERROR_WANT_READ:
      return {Io::State::waiting, 0, Direction::read};
    case SSL_ERROR_WANT_WRITE:
      return {Io::State::waiting, 0, Direction::write};
    case SSL_ERROR_ZERO_RETURN:
      return {Io::State::end};
    default:
      broken_ = true;
      return {Io::State::failed};
  }
}

Io TlsStream::try_read(std::span<char> buffer) {
  if (broken_) return {Io::State::failed};
  // One record is at most 16 KiB: a larger buffer takes as many as have come.
  std::size_t total = 0;
  while (total < buffer.size()) {
    ERR_clear_error();
    std::size_t count = 0;
    int result = SSL_read_ex(ssl_.get(), buffer.data() + total, buffer.size() - total, &count);
    if (result == 1) {
      total += count;
      continue;
    }
    Io io = outcome(result);
    if (total == 0) return io;
    break;  // what stopped it is found again
  }
  return {Io::State::done, total};
}

Io TlsStream::try_write(std::string_view bytes) {
  if (broken_) return {Io::State::failed};
  ERR_clear_error();
  std::size_t count = 0;
  int result = SSL_write_ex(ssl_.get(), bytes.data(), bytes.size(), &count);
  if (result == 1) return {Io::State::done, count};
  return outcome(result);
}

Io TlsStream::try_shutdown() {
  if (broken_) return {Io::State::failed};
  ERR_clear_error();
  int result = SSL_shutdown(ssl_.get());
  if (result < 0) {
    Io io = outcome(result);
    if (io.state == Io::State::waiting) return io;
  }
  return below_->try_shutdown();
}

namespace {

void set_common(SSL_CTX* context) {
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
}

}  // namespace

Result<SslContext> client_context(const std::string& trust_pem) {
  SslContext context(SSL_CTX_new(TLS_client_method()));
  if (!context) return fail(ErrorCode::internal, "TLS: " + openssl_error());
  set_common(context.get());
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  std::unique_ptr<BIO, Freed<BIO_free>> bio(
      BIO_new_mem_buf(trust_pem.data(), static_cast<int>(trust_pem.size())));
  X509_STORE* store = SSL_CTX_get_cert_store(context.get());
  // A root that is not self-signed is one, when the person says so.
  X509_STORE_set_flags(store, X509_V_FLAG_PARTIAL_CHAIN);
  std::size_t count = 0;
  using Certificate = std::unique_ptr<X509, Freed<X509_free>>;
  // One that cannot be read is passed over: the others are no worse for it.
  for (;;) {
    ERR_clear_error();
    Certificate certificate{PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)};
    if (certificate)
      count += X509_STORE_add_cert(store, certificate.get()) == 1 ? 1 : 0;
    else if (BIO_eof(bio.get()) || ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE)
      break;
  }
  ERR_clear_error();
  if (count == 0) return fail(ErrorCode::invalid_argument, "there is no certificate to trust");
  return context;
}

Result<SslContext> server_context() {
  SslContext context(SSL_CTX_new(TLS_server_method()));
  if (!context) return fail(ErrorCode::internal, "TLS: " + openssl_error());
  set_common(context.get());
  SSL_CTX_set_options(context.get(), SSL_OP_NO_TICKET | SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_num_tickets(context.get(), 0);
  SSL_CTX_set_alpn_select_cb(context.get(), &TlsCallbacks::select_protocol, nullptr);
  return context;
}

}  // namespace anchorhold::egress
