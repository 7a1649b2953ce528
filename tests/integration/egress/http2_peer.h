// A small HTTP/2 client and server of the test, by nghttp2, blocking, on a Wire.
#pragma once

#include <functional>
#include <map>
#include <nghttp2/nghttp2.h>
#include <string>
#include <utility>
#include <vector>

#include "site.h"

namespace anchorhold::testing {

using Http2Fields = std::vector<std::pair<std::string, std::string>>;

struct Http2Message {
  Http2Fields fields, trailers;
  std::vector<Http2Fields> interim;
  std::string body;
  bool ended = false, closed = false;
  bool goodbye = false;  // of a server: it says after it that it takes no more
  std::uint32_t error = 0;
  std::string field(const std::string& name) const;
  std::string trailer(const std::string& name) const;
};

class Http2Peer {
 public:
  Http2Peer(Wire& wire, bool server);
  ~Http2Peer();

  // Client: begins a request; its body is sent at once. Without an end, the body stays open.
  std::int32_t request(const Http2Fields& fields, const std::string& body = {},
                       const Http2Fields& trailers = {});
  // Client: reads until this stream has closed.
  Http2Message& response(std::int32_t id);
  // The other side has said that it takes no more.
  bool was_told_to_go() const { return told_to_go_; }
  // Reads until the other side has ended.
  void read_to_end();
  // Server: answers each request by this until the client is gone.
  using Answer = std::function<Http2Message(const Http2Message&)>;
  void serve(Answer answer);

 private:
  struct Sending {
    std::string body;
    std::size_t sent = 0;
    Http2Fields trailers;
  };
  struct Callbacks;
  friend struct Callbacks;
  bool turn();
  bool flush();
  void submit(std::int32_t id, const Http2Message& message);

  Wire& wire_;
  nghttp2_session* session_ = nullptr;
  std::map<std::int32_t, Http2Message> messages_;
  std::map<std::int32_t, Sending> sending_;
  Answer answer_;
  bool told_to_go_ = false;
};

}  // namespace anchorhold::testing
