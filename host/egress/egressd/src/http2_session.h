// One end of HTTP/2, by nghttp2, on a stream: frames are read as they come, and written as there are any.
// Flow control is ours: a peer may send again what was passed on, and so no more waits here than a window
// holds.
#pragma once

#include <functional>
#include <memory>
#include <nghttp2/nghttp2.h>
#include <string>
#include <vector>

#include "egress/http_head.h"
#include "signal.h"
#include "stream.h"

namespace anchorhold::egress {

// What a session tells: the calls come while frames are read.
class Http2Events {
 public:
  virtual ~Http2Events() = default;
  // A whole block of fields: a request, a response, or what follows a body.
  virtual void on_fields(std::int32_t id, std::vector<Field> fields, bool ends) = 0;
  virtual void on_data(std::int32_t id, std::string_view bytes) = 0;
  virtual void on_end(std::int32_t id) = 0;
  virtual void on_closed(std::int32_t id, std::uint32_t error) = 0;
  virtual void on_goaway() = 0;
  // Up to `room` bytes to send on this stream. None yet: nothing; over: `ends`, and trailers when there are
  // any.
  struct Part {
    std::string_view bytes;
    bool ends = false;
    const std::vector<Field>* trailers = nullptr;
  };
  virtual Part next_part(std::int32_t id, std::size_t room) = 0;
  virtual void part_was_sent(std::int32_t id, std::size_t size) = 0;
};

class Http2Session {
 public:
  enum class Side { server, client };
  Http2Session(asio::io_context& loop, Stream& stream, Side side, Http2Events& events);
  ~Http2Session();
  Http2Session(const Http2Session&) = delete;
  Http2Session& operator=(const Http2Session&) = delete;

  // Each returns when the stream has ended, and the second one when the session has.
  Awaitable<void> read();
  Awaitable<void> write();
  void wake() { written_.set(); }
  void end();
  // Ends, says so to the other side as far as that can be said at once, and keeps the stream for as long as
  // read() and write() still use it.
  void leave(std::unique_ptr<Stream> stream);
  // Holds less, until something is written again.
  void rest();
  const std::string& fault() const { return fault_; }

  // Negative: it cannot begin. Sensitive fields are never put into the table that compresses fields.
  std::int32_t request(const std::vector<Field>& fields, bool has_body, std::ptrdiff_t sensitive);
  bool respond(std::int32_t id, const std::vector<Field>& fields, bool has_body);
  void interim(std::int32_t id, const std::vector<Field>& fields);
  void resume(std::int32_t id);
  void reset(std::int32_t id, std::uint32_t error);
  void passed_on(std::int32_t id, std::size_t size);
  void announce_end();

 private:
  struct Memory;
  friend struct Memory;
  struct Callbacks;
  friend struct Callbacks;
  struct FrameBlock {
    void* bytes = nullptr;
    std::size_t size = 0;
  };
  struct Block {
    std::vector<Field> fields;
    std::size_t bytes = 0;
  };

  void take_frames(std::string& out);

  std::unique_ptr<Stream> left_;
  Stream& stream_;
  Http2Events& events_;
  FrameBlock frames_;
  nghttp2_session* session_ = nullptr;
  Signal written_;
  bool over_ = false;
  bool writing_ = false;  // a part of something is written
  std::string fault_;
  Block block_;  // of the frame that is being read; they do not interleave (RFC 9113 4.3)
};

}  // namespace anchorhold::egress
