#include "git_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/process.h"

namespace anchorhold::testing {
namespace {

constexpr std::chrono::seconds program_limit(240);

UniqueFd memory_file(const std::string& content = {}) {
  UniqueFd file(memfd_create("git", MFD_CLOEXEC));
  for (std::size_t at = 0; at < content.size();) {
    ssize_t count = write(file.get(), content.data() + at, content.size() - at);
    if (count <= 0) break;
    at += static_cast<std::size_t>(count);
  }
  lseek(file.get(), 0, SEEK_SET);
  return file;
}

std::string content_of(int file) {
  std::string content(static_cast<std::size_t>(lseek(file, 0, SEEK_END)), '\0');
  for (std::size_t at = 0; at < content.size();) {
    ssize_t count = pread(file, content.data() + at, content.size() - at, static_cast<off_t>(at));
    if (count <= 0) break;
    at += static_cast<std::size_t>(count);
  }
  return content;
}

GitResult run(std::vector<std::string> argv, std::vector<std::string> environment, const std::string& input,
              bool with_errors) {
  UniqueFd in = memory_file(input), out = memory_file();
  SpawnSpec spec;
  spec.argv = std::move(argv);
  spec.environment = std::move(environment);
  spec.descriptors = {{in.get(), 0}, {out.get(), 1}};
  if (with_errors) spec.descriptors.push_back({out.get(), 2});
  auto child = Child::spawn(spec);
  if (!child) return {false, child.error().message};
  auto status = child->wait(program_limit);
  return {status && status->ok(), content_of(out.get()) + (status ? "" : "\n(it did not end)")};
}

std::string chunked_body(Wire& wire) {
  std::string body;
  for (;;) {
    std::string line = wire.read_until("\r\n");
    std::size_t size = line.empty() ? 0 : std::stoul(line, nullptr, 16);
    if (size == 0) break;
    body += wire.read_exactly(size);
    wire.read_exactly(2);
  }
  wire.read_until("\r\n");
  return body;
}

}  // namespace

void GitServer::serve_http1(Wire& wire) {
  for (;;) {
    std::string head = wire.read_until("\r\n\r\n");
    if (!head.ends_with("\r\n\r\n")) return;
    Request request;
    auto space = head.find(' '), end = head.find(" HTTP/");
    request.method = head.substr(0, space);
    request.target = head.substr(space + 1, end - space - 1);
    request.version = "HTTP/1.1";
    request.content_type = field_of(head, "content-type");
    request.content_encoding = field_of(head, "content-encoding");
    request.protocol = field_of(head, "git-protocol");
    request.authorization = field_of(head, "authorization");
    if (!field_of(head, "expect").empty()) wire.write("HTTP/1.1 100 Continue\r\n\r\n");
    if (auto length = field_of(head, "content-length"); !length.empty())
      request.body = wire.read_exactly(std::stoul(length));
    else if (field_of(head, "transfer-encoding") == "chunked")
      request.body = chunked_body(wire);
    Response response = answer(request);
    std::string text = "HTTP/1.1 " + response.status + " As Git Says\r\n";
    for (const auto& [name, value] : response.fields) text += name + ": " + value + "\r\n";
    text += "Content-Length: " + std::to_string(response.body.size()) + "\r\n\r\n";
    if (!wire.write(text) || !wire.write(response.body)) return;
  }
}

Http2Message GitServer::serve_http2(const Http2Message& request) {
  Response response = answer({request.field(":method"), request.field(":path"), "HTTP/2", request.body,
                              request.field("content-type"), request.field("content-encoding"),
                              request.field("git-protocol"), request.field("authorization")});
  Http2Message message;
  message.fields = {{":status", response.status}};
  for (auto& [name, value] : response.fields) {
    std::string lower;
    for (char c : name) lower += c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    message.fields.emplace_back(lower, value);
  }
  message.body = std::move(response.body);
  return message;
}

GitServer::Response GitServer::answer(const Request& request) {
  {
    std::lock_guard lock(mutex_);
    requests_.push_back(request.method + " " + request.target + " " + std::to_string(request.body.size()) +
                        " " + request.version);
  }
  if (!required_.empty() && request.authorization != required_)
    return {"401", {{"WWW-Authenticate", "Basic realm=\"git\""}}, {}};
  auto question = request.target.find('?');
  std::string path = request.target.substr(0, question);
  std::string query = question == std::string::npos ? "" : request.target.substr(question + 1);
  if (path.find("/info/lfs/") != std::string::npos)
    return {"200", {{"Content-Type", "application/vnd.git-lfs+json"}}, "{\"objects\":[]}"};
  return run_backend(request, path, query);
}

GitServer::Response GitServer::run_backend(const Request& request, const std::string& path,
                                           const std::string& query) {
  std::vector<std::string> environment{"PATH=/usr/bin:/bin",
                                       "HOME=/nonexistent",
                                       "GIT_CONFIG_NOSYSTEM=1",
                                       "GIT_HTTP_EXPORT_ALL=1",
                                       "REMOTE_USER=guest",
                                       "REMOTE_ADDR=44.128.9.9",
                                       "GIT_PROJECT_ROOT=" + folder_.string(),
                                       "GIT_CONFIG_COUNT=3",
                                       "GIT_CONFIG_KEY_0=safe.directory",
                                       "GIT_CONFIG_VALUE_0=*",
                                       "GIT_CONFIG_KEY_1=receive.advertisePushOptions",
                                       "GIT_CONFIG_VALUE_1=true",
                                       "GIT_CONFIG_KEY_2=core.compression",
                                       "GIT_CONFIG_VALUE_2=0",
                                       "PATH_INFO=" + path,
                                       "QUERY_STRING=" + query,
                                       "REQUEST_METHOD=" + request.method,
                                       "CONTENT_TYPE=" + request.content_type,
                                       "CONTENT_LENGTH=" + std::to_string(request.body.size()),
                                       "HTTP_CONTENT_ENCODING=" + request.content_encoding,
                                       "GIT_PROTOCOL=" + request.protocol};
  auto result = run({"/usr/bin/git", "http-backend"}, std::move(environment), request.body, false);
  auto end = result.output.find("\r\n\r\n");
  if (end == std::string::npos) return {"500", {}, result.output};
  Response response;
  std::string head = "\r\n" + result.output.substr(0, end + 2);
  for (std::size_t at = 2; at < head.size();) {
    auto next = head.find("\r\n", at);
    std::string line = head.substr(at, next - at);
    auto colon = line.find(": ");
    if (line.starts_with("Status: "))
      response.status = line.substr(8, 3);
    else if (colon != std::string::npos)
      response.fields.emplace_back(line.substr(0, colon), line.substr(colon + 2));
    at = next + 2;
  }
  response.body = result.output.substr(end + 4);
  return response;
}

std::vector<std::string> GitServer::requests() {
  std::lock_guard lock(mutex_);
  return requests_;
}

void GitServer::forget() {
  std::lock_guard lock(mutex_);
  requests_.clear();
}

ProxyPort::ProxyPort(egress::Door& door)
    : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), stop_(eventfd(0, EFD_CLOEXEC)) {
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof where;
  EXPECT_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&where), size), 0);
  EXPECT_EQ(listen(listener_.get(), 64), 0);
  EXPECT_EQ(getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&where), &size), 0);
  port_ = ntohs(where.sin_port);
  thread_ = std::thread([this, &door] {
    for (;;) {
      pollfd entries[] = {{stop_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
      if (poll(entries, 2, -1) < 0) continue;
      if (entries[0].revents) return;
      UniqueFd connection(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (connection) (void)door.adopt(std::move(connection));
    }
  });
}

ProxyPort::~ProxyPort() {
  std::uint64_t one = 1;
  (void)!write(stop_.get(), &one, sizeof one);
  thread_.join();
}

std::string ProxyPort::url() const {
  return "http://127.0.0.1:" + std::to_string(port_);
}

GitResult run_git(const std::filesystem::path& home, std::vector<std::string> arguments,
                  std::vector<std::string> environment) {
  std::vector<std::string> argv{"/usr/bin/git"};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  for (std::string each : {"PATH=/usr/bin:/bin", "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
                           "GIT_AUTHOR_NAME=Agent", "GIT_AUTHOR_EMAIL=agent@example.com",
                           "GIT_COMMITTER_NAME=Agent", "GIT_COMMITTER_EMAIL=agent@example.com"})
    environment.push_back(std::move(each));
  environment.push_back("HOME=" + home.string());
  return run(std::move(argv), std::move(environment), {}, true);
}

}  // namespace anchorhold::testing
