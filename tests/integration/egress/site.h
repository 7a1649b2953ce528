// Servers of the test: each listens at an address of its own, and does with a connection what the test says,
// on a thread for each connection.
#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <openssl/ssl.h>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"

namespace anchorhold::testing {

// A connection, plain or TLS, of a server or a client; blocking, with a limit on every wait.
class Wire {
 public:
  explicit Wire(UniqueFd fd);
  ~Wire();
  Wire(Wire&&) noexcept;

  // As the client, trusting this PEM. Empty: it worked; otherwise why not.
  std::string connect_tls(const std::string& trust_pem, const std::string& name,
                          std::vector<std::string> protocols = {});
  std::string accept_tls(SSL_CTX* context);
  std::string protocol() const;
  std::string peer_certificate_name() const;

  bool write(std::string_view bytes);
  // What is there; empty at the end.
  std::string read_some();
  std::string read_all();
  std::string read_until(std::string_view end);
  std::string read_exactly(std::size_t count);
  // A whole response with a Content-Length or a chunked body.
  std::string read_response();
  void end_writing();
  int fd() const { return fd_.get(); }
  SSL* ssl() { return ssl_; }

 private:
  UniqueFd fd_;
  SSL_CTX* context_ = nullptr;
  SSL* ssl_ = nullptr;
  std::string left_;
};

// A certificate authority of the test, and contexts of servers it vouches for.
class TestAuthority {
 public:
  TestAuthority();
  ~TestAuthority();
  const std::string& pem() const { return pem_; }
  struct Leaf {
    std::string name;
    bool expired = false;
    bool self_signed = false;
  };
  SSL_CTX* context_for(const Leaf& leaf, std::vector<std::string> protocols);

 private:
  EVP_PKEY* key_;
  X509* certificate_;
  std::string pem_;
  std::list<SSL_CTX*> contexts_;
  std::list<std::string> protocols_;
};

class Site {
 public:
  using Serve = std::function<void(Wire&)>;
  // With a context, TLS; `serve` gets the connection after the handshake.
  Site(const std::string& address, std::uint16_t port, Serve serve, SSL_CTX* context = nullptr);
  ~Site();
  // Taken by the site so far; a client may be connected a moment before.
  int connections() const { return connections_; }
  bool wait_for_connections(int count) const;
  std::vector<std::string> faults();

 private:
  void run();
  UniqueFd listener_, stop_;
  Serve serve_;
  SSL_CTX* context_;
  std::atomic<int> connections_{0};
  std::mutex mutex_;
  std::vector<std::string> faults_;
  std::list<std::thread> threads_;
  std::list<int> open_;
  std::thread thread_;
};

// Answers every request with "<method> <target> <host> <body size>" and what else a test adds.
Site::Serve echo_server(std::string greeting);
// Tells the value of a header field of a message, or nothing.
std::string field_of(std::string_view message, std::string_view name);

inline constexpr std::chrono::seconds wire_limit(30);

}  // namespace anchorhold::testing
