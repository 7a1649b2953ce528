#include "site.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <chrono>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <stdexcept>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

namespace anchorhold::testing {
namespace {

std::string tls_error() {
  std::string text;
  while (unsigned long error = ERR_get_error()) {
    const char* reason = ERR_reason_error_string(error);
    text += (text.empty() ? "" : "; ") + std::string(reason ? reason : "?");
  }
  return text.empty() ? "closed" : text;
}

void set_limit(int fd) {
  timeval limit{wire_limit.count(), 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

std::string wire_form(const std::vector<std::string>& protocols) {
  std::string form;
  for (const auto& protocol : protocols) form += static_cast<char>(protocol.size()) + protocol;
  return form;
}

}  // namespace

Wire::Wire(UniqueFd fd) : fd_(std::move(fd)) {
  set_limit(fd_.get());
}

Wire::Wire(Wire&& other) noexcept
    : fd_(std::move(other.fd_)),
      context_(std::exchange(other.context_, nullptr)),
      ssl_(std::exchange(other.ssl_, nullptr)),
      left_(std::move(other.left_)) {}

Wire::~Wire() {
  if (ssl_) {
    SSL_shutdown(ssl_);
    SSL_free(ssl_);
  }
  if (context_) SSL_CTX_free(context_);
}

std::string Wire::connect_tls(const std::string& trust_pem, const std::string& name,
                              std::vector<std::string> protocols) {
  context_ = SSL_CTX_new(TLS_client_method());
  BIO* bio = BIO_new_mem_buf(trust_pem.data(), static_cast<int>(trust_pem.size()));
  while (X509* certificate = PEM_read_bio_X509(bio, nullptr, nullptr, nullptr)) {
    X509_STORE_add_cert(SSL_CTX_get_cert_store(context_), certificate);
    X509_free(certificate);
  }
  BIO_free(bio);
  ERR_clear_error();
  SSL_CTX_set_verify(context_, SSL_VERIFY_PEER, nullptr);
  ssl_ = SSL_new(context_);
  if (!name.empty()) {
    SSL_set_tlsext_host_name(ssl_, name.c_str());
    SSL_set1_host(ssl_, name.c_str());
  }
  std::string form = wire_form(protocols);
  if (!form.empty())
    SSL_set_alpn_protos(ssl_, reinterpret_cast<const unsigned char*>(form.data()),
                        static_cast<unsigned>(form.size()));
  SSL_set_fd(ssl_, fd_.get());
  if (SSL_connect(ssl_) == 1) return {};
  std::string why = tls_error();
  SSL_free(std::exchange(ssl_, nullptr));
  return why;
}

std::string Wire::accept_tls(SSL_CTX* context) {
  ssl_ = SSL_new(context);
  SSL_set_fd(ssl_, fd_.get());
  if (SSL_accept(ssl_) == 1) return {};
  std::string why = tls_error();
  SSL_free(std::exchange(ssl_, nullptr));
  return why;
}

std::string Wire::protocol() const {
  const unsigned char* name = nullptr;
  unsigned size = 0;
  if (ssl_) SSL_get0_alpn_selected(ssl_, &name, &size);
  return {reinterpret_cast<const char*>(name), size};
}

std::string Wire::peer_certificate_name() const {
  X509* certificate = ssl_ ? SSL_get1_peer_certificate(ssl_) : nullptr;
  if (!certificate) return {};
  char issuer[256] = {};
  X509_NAME_oneline(X509_get_issuer_name(certificate), issuer, sizeof issuer);
  X509_free(certificate);
  return issuer;
}

bool Wire::write(std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t count = ssl_ ? SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size()))
                         : send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

std::string Wire::read_some() {
  if (!left_.empty()) return std::exchange(left_, {});
  char buffer[65536];
  ERR_clear_error();
  ssize_t count = ssl_ ? SSL_read(ssl_, buffer, sizeof buffer) : recv(fd_.get(), buffer, sizeof buffer, 0);
  return count > 0 ? std::string(buffer, static_cast<std::size_t>(count)) : std::string();
}

std::string Wire::read_all() {
  std::string all;
  for (std::string part; !(part = read_some()).empty();) all += part;
  return all;
}

std::string Wire::read_until(std::string_view end) {
  std::string all;
  for (;;) {
    if (auto at = all.find(end); at != std::string::npos) {
      left_ = all.substr(at + end.size()) + left_;
      return all.substr(0, at + end.size());
    }
    std::string part = read_some();
    if (part.empty()) return all;
    all += part;
  }
}

std::string Wire::read_exactly(std::size_t count) {
  std::string all;
  while (all.size() < count) {
    std::string part = read_some();
    if (part.empty()) return all;
    all += part;
  }
  left_ = all.substr(count) + left_;
  return all.substr(0, count);
}

std::string Wire::read_response() {
  std::string head = read_until("\r\n\r\n");
  if (auto length = field_of(head, "content-length"); !length.empty())
    return head + read_exactly(std::stoul(length));
  if (field_of(head, "transfer-encoding") == "chunked") {
    std::string body;
    for (;;) {
      std::string line = read_until("\r\n");
      body += line;
      if (line.empty()) return head + body;
      std::size_t size = std::stoul(line, nullptr, 16);
      if (size == 0) {
        std::string last;
        do body += last = read_until("\r\n");
        while (last.size() > 2);
        return head + body;
      }
      body += read_exactly(size + 2);
    }
  }
  return head;
}

void Wire::end_writing() {
  if (ssl_) SSL_shutdown(ssl_);
  shutdown(fd_.get(), SHUT_WR);
}

std::string field_of(std::string_view message, std::string_view name) {
  for (std::size_t at = message.find("\r\n"); at != std::string_view::npos;
       at = message.find("\r\n", at + 2)) {
    std::string_view line = message.substr(at + 2, message.find("\r\n", at + 2) - at - 2);
    if (line.empty()) break;
    if (line.size() > name.size() && line[name.size()] == ':' &&
        strncasecmp(line.data(), name.data(), name.size()) == 0) {
      line.remove_prefix(name.size() + 1);
      line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
      return std::string(line);
    }
  }
  return {};
}

namespace {

X509* make_certificate(EVP_PKEY* key, const std::string& name, long from, long to) {
  X509* certificate = X509_new();
  X509_set_version(certificate, X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), rand());
  X509_gmtime_adj(X509_getm_notBefore(certificate), from);
  X509_gmtime_adj(X509_getm_notAfter(certificate), to);
  X509_set_pubkey(certificate, key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  return certificate;
}

void add_extension(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str());
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

int select_protocol(SSL*, const unsigned char** out, unsigned char* size, const unsigned char* offered,
                    unsigned offered_size, void* wanted) {
  auto* form = static_cast<std::string*>(wanted);
  int chosen = SSL_select_next_proto(const_cast<unsigned char**>(out), size,
                                     reinterpret_cast<const unsigned char*>(form->data()),
                                     static_cast<unsigned>(form->size()), offered, offered_size);
  return chosen == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_NOACK;
}

}  // namespace

TestAuthority::TestAuthority() : key_(EVP_EC_gen("P-256")) {
  certificate_ = make_certificate(key_, "Test Authority", -86400, 86400);
  X509_set_issuer_name(certificate_, X509_get_subject_name(certificate_));
  add_extension(certificate_, certificate_, NID_basic_constraints, "critical,CA:TRUE");
  X509_sign(certificate_, key_, EVP_sha256());
  BIO* bio = BIO_new(BIO_s_mem());
  PEM_write_bio_X509(bio, certificate_);
  char* text = nullptr;
  long size = BIO_get_mem_data(bio, &text);
  pem_.assign(text, static_cast<std::size_t>(size));
  BIO_free(bio);
}

TestAuthority::~TestAuthority() {
  for (SSL_CTX* context : contexts_) SSL_CTX_free(context);
  X509_free(certificate_);
  EVP_PKEY_free(key_);
}

SSL_CTX* TestAuthority::context_for(const Leaf& leaf, std::vector<std::string> protocols) {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate =
      make_certificate(key, "site", leaf.expired ? -86400 * 2 : -86400, leaf.expired ? -86400 : 86400);
  bool address = leaf.name.find_first_not_of("0123456789.") == std::string::npos;
  X509_set_issuer_name(certificate, X509_get_subject_name(leaf.self_signed ? certificate : certificate_));
  add_extension(certificate, certificate_, NID_subject_alt_name, (address ? "IP:" : "DNS:") + leaf.name);
  X509_sign(certificate, leaf.self_signed ? key : key_, EVP_sha256());
  SSL_CTX* context = SSL_CTX_new(TLS_server_method());
  SSL_CTX_use_certificate(context, certificate);
  SSL_CTX_use_PrivateKey(context, key);
  if (!protocols.empty()) {
    protocols_.push_back(wire_form(protocols));
    SSL_CTX_set_alpn_select_cb(context, &select_protocol, &protocols_.back());
  }
  X509_free(certificate);
  EVP_PKEY_free(key);
  contexts_.push_back(context);
  return context;
}

Site::Site(const std::string& address, std::uint16_t port, Serve serve, SSL_CTX* context)
    : stop_(eventfd(0, EFD_CLOEXEC)), serve_(std::move(serve)), context_(context) {
  bool v6 = address.find(':') != std::string::npos;
  listener_.reset(socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  int one = 1;
  setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  sockaddr_storage where{};
  if (v6) {
    auto* in = reinterpret_cast<sockaddr_in6*>(&where);
    in->sin6_family = AF_INET6;
    in->sin6_port = htons(port);
    inet_pton(AF_INET6, address.c_str(), &in->sin6_addr);
  } else {
    auto* in = reinterpret_cast<sockaddr_in*>(&where);
    in->sin_family = AF_INET;
    in->sin_port = htons(port);
    inet_pton(AF_INET, address.c_str(), &in->sin_addr);
  }
  if (bind(listener_.get(), reinterpret_cast<sockaddr*>(&where),
           v6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in)) != 0 ||
      listen(listener_.get(), 4096) != 0)
    throw std::runtime_error("a site cannot have " + address);
  thread_ = std::thread([this] { run(); });
}

Site::~Site() {
  std::uint64_t one = 1;
  (void)!::write(stop_.get(), &one, sizeof one);
  thread_.join();
  {
    std::lock_guard lock(mutex_);
    for (int fd : open_) shutdown(fd, SHUT_RDWR);
  }
  for (auto& thread : threads_) thread.join();
}

std::vector<std::string> Site::faults() {
  std::lock_guard lock(mutex_);
  return faults_;
}

bool Site::wait_for_connections(int count) const {
  const auto until = std::chrono::steady_clock::now() + wire_limit;
  while (connections_ < count && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  return connections_ >= count;
}

void Site::run() {
  for (;;) {
    pollfd entries[] = {{stop_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    if (poll(entries, 2, -1) < 0) continue;
    if (entries[0].revents) return;
    int fd = accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) continue;
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    ++connections_;
    std::lock_guard lock(mutex_);
    auto place = open_.insert(open_.end(), fd);
    threads_.emplace_back([this, fd, place] {
      {
        Wire wire{UniqueFd(fd)};
        std::string fault = context_ ? wire.accept_tls(context_) : "";
        if (fault.empty())
          serve_(wire);
        else {
          std::lock_guard inner(mutex_);
          faults_.push_back(fault);
        }
        std::lock_guard inner(mutex_);
        open_.erase(place);
      }
    });
  }
}

Site::Serve echo_server(std::string greeting) {
  return [greeting](Wire& wire) {
    for (;;) {
      std::string head = wire.read_until("\r\n\r\n");
      if (!head.ends_with("\r\n\r\n")) return;
      std::string body;
      if (auto length = field_of(head, "content-length"); !length.empty())
        body = wire.read_exactly(std::stoul(length));
      std::string line = head.substr(0, head.find(" HTTP/"));
      std::string text = greeting + " " + line + " " + field_of(head, "host") + " " +
                         std::to_string(body.size()) + "\n" + head;
      if (!wire.write("HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(text.size()) + "\r\n\r\n" +
                      text))
        return;
      if (field_of(head, "connection") == "close") return;
    }
  };
}

}  // namespace anchorhold::testing
