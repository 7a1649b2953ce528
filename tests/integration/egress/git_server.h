// A server of Git repositories: `git http-backend` behind a site of the test, and a real client of Git that
// reaches it through a door, as a guest's would.
#pragma once

#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

#include "base/fd.h"
#include "egress/door.h"
#include "http2_peer.h"
#include "site.h"

namespace anchorhold::testing {

class GitServer {
 public:
  explicit GitServer(std::filesystem::path folder) : folder_(std::move(folder)) {}
  // Only requests with this in Authorization are served; the others get 401.
  void require(std::string authorization) { required_ = std::move(authorization); }

  void serve_http1(Wire& wire);
  Http2Message serve_http2(const Http2Message& request);
  // "GET /team/app.git/info/refs?service=git-upload-pack 0 HTTP/2", the number of the body's bytes.
  std::vector<std::string> requests();
  void forget();

 private:
  struct Request {
    std::string method, target, version, body;
    std::string content_type, content_encoding, protocol, authorization;
  };
  struct Response {
    std::string status = "200";
    Http2Fields fields;
    std::string body;
  };
  Response answer(const Request& request);
  Response run_backend(const Request& request, const std::string& path, const std::string& query);

  std::filesystem::path folder_;
  std::string required_;
  std::mutex mutex_;
  std::vector<std::string> requests_;
};

// A proxy as a program in the guest sees it: every connection to it becomes a stream of the door.
class ProxyPort {
 public:
  explicit ProxyPort(egress::Door& door);
  ~ProxyPort();
  std::string url() const;

 private:
  UniqueFd listener_, stop_;
  std::uint16_t port_ = 0;
  std::thread thread_;
};

struct GitResult {
  bool ok = false;
  std::string output;  // of both streams
};
// With no configuration but what is given, no prompt, and a limit; `home` is where it finds its own.
GitResult run_git(const std::filesystem::path& home, std::vector<std::string> arguments,
                  std::vector<std::string> environment = {});

}  // namespace anchorhold::testing
