#include "http2_peer.h"

#include <cstring>

namespace anchorhold::testing {
namespace {

std::string text(const std::uint8_t* bytes, std::size_t size) {
  return {reinterpret_cast<const char*>(bytes), size};
}

std::vector<nghttp2_nv> pairs_of(const Http2Fields& fields) {
  std::vector<nghttp2_nv> pairs;
  for (const auto& [name, value] : fields)
    pairs.push_back({reinterpret_cast<std::uint8_t*>(const_cast<char*>(name.data())),
                     reinterpret_cast<std::uint8_t*>(const_cast<char*>(value.data())), name.size(),
                     value.size(), NGHTTP2_NV_FLAG_NONE});
  return pairs;
}

std::string find(const Http2Fields& fields, const std::string& name) {
  for (const auto& [key, value] : fields)
    if (key == name) return value;
  return {};
}

}  // namespace

std::string Http2Message::field(const std::string& name) const {
  return find(fields, name);
}
std::string Http2Message::trailer(const std::string& name) const {
  return find(trailers, name);
}

struct Http2Peer::Callbacks {
  static Http2Peer& self(void* user) { return *static_cast<Http2Peer*>(user); }
  static int field(nghttp2_session*, const nghttp2_frame* frame, const std::uint8_t* name,
                   std::size_t name_size, const std::uint8_t* value, std::size_t value_size, std::uint8_t,
                   void* user) {
    Http2Message& message = self(user).messages_[frame->hd.stream_id];
    bool after = !message.fields.empty() && (message.ended || !message.body.empty() ||
                                             (name[0] != ':' && find(message.fields, ":end") == "1"));
    (after ? message.trailers : message.fields).emplace_back(text(name, name_size), text(value, value_size));
    return 0;
  }
  static int frame(nghttp2_session*, const nghttp2_frame* frame, void* user) {
    Http2Peer& peer = self(user);
    if (frame->hd.type == NGHTTP2_GOAWAY) peer.told_to_go_ = true;
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA) return 0;
    Http2Message& message = peer.messages_[frame->hd.stream_id];
    if (frame->hd.type == NGHTTP2_HEADERS && find(message.fields, ":status").starts_with('1')) {
      message.interim.push_back(std::exchange(message.fields, {}));
      return 0;
    }
    if (frame->hd.type == NGHTTP2_HEADERS) message.fields.emplace_back(":end", "1");
    if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) == 0) return 0;
    message.ended = true;
    if (peer.answer_) peer.submit(frame->hd.stream_id, peer.answer_(message));
    return 0;
  }
  static int data(nghttp2_session*, std::uint8_t, std::int32_t id, const std::uint8_t* bytes,
                  std::size_t size, void* user) {
    self(user).messages_[id].body += text(bytes, size);
    return 0;
  }
  static int closed(nghttp2_session*, std::int32_t id, std::uint32_t error, void* user) {
    Http2Message& message = self(user).messages_[id];
    message.closed = true;
    message.error = error;
    return 0;
  }
  static ssize_t part(nghttp2_session* session, std::int32_t id, std::uint8_t* buffer, std::size_t size,
                      std::uint32_t* flags, nghttp2_data_source*, void* user) {
    Sending& sending = self(user).sending_[id];
    std::size_t count = std::min(size, sending.body.size() - sending.sent);
    std::memcpy(buffer, sending.body.data() + sending.sent, count);
    sending.sent += count;
    if (sending.sent < sending.body.size()) return static_cast<ssize_t>(count);
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (!sending.trailers.empty()) {
      auto pairs = pairs_of(sending.trailers);
      nghttp2_submit_trailer(session, id, pairs.data(), pairs.size());
      *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
    }
    return static_cast<ssize_t>(count);
  }
};

Http2Peer::Http2Peer(Wire& wire, bool server) : wire_(wire) {
  nghttp2_session_callbacks* table = nullptr;
  nghttp2_session_callbacks_new(&table);
  nghttp2_session_callbacks_set_on_header_callback(table, &Callbacks::field);
  nghttp2_session_callbacks_set_on_frame_recv_callback(table, &Callbacks::frame);
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(table, &Callbacks::data);
  nghttp2_session_callbacks_set_on_stream_close_callback(table, &Callbacks::closed);
  if (server)
    nghttp2_session_server_new(&session_, table, this);
  else
    nghttp2_session_client_new(&session_, table, this);
  nghttp2_session_callbacks_del(table);
  nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, nullptr, 0);
}

Http2Peer::~Http2Peer() {
  nghttp2_session_del(session_);
}

bool Http2Peer::flush() {
  for (;;) {
    const std::uint8_t* bytes = nullptr;
    ssize_t size = nghttp2_session_mem_send(session_, &bytes);
    if (size <= 0) return size == 0;
    if (!wire_.write(text(bytes, static_cast<std::size_t>(size)))) return false;
  }
}

bool Http2Peer::turn() {
  flush();
  std::string bytes = wire_.read_some();
  if (bytes.empty()) return false;
  return nghttp2_session_mem_recv(session_, reinterpret_cast<const std::uint8_t*>(bytes.data()),
                                  bytes.size()) >= 0;
}

std::int32_t Http2Peer::request(const Http2Fields& fields, const std::string& body,
                                const Http2Fields& trailers) {
  auto pairs = pairs_of(fields);
  nghttp2_data_provider provider{{.ptr = nullptr}, &Callbacks::part};
  bool has_body = !body.empty() || !trailers.empty();
  std::int32_t id = nghttp2_submit_request(session_, nullptr, pairs.data(), pairs.size(),
                                           has_body ? &provider : nullptr, nullptr);
  sending_[id] = {body, 0, trailers};
  flush();
  return id;
}

Http2Message& Http2Peer::response(std::int32_t id) {
  while (!messages_[id].closed && turn()) {
  }
  return messages_[id];
}

void Http2Peer::read_to_end() {
  while (turn()) {
  }
}

void Http2Peer::submit(std::int32_t id, const Http2Message& message) {
  for (const auto& interim : message.interim) {
    auto pairs = pairs_of(interim);
    nghttp2_submit_headers(session_, NGHTTP2_FLAG_NONE, id, nullptr, pairs.data(), pairs.size(), nullptr);
  }
  auto pairs = pairs_of(message.fields);
  nghttp2_data_provider provider{{.ptr = nullptr}, &Callbacks::part};
  sending_[id] = {message.body, 0, message.trailers};
  nghttp2_submit_response(session_, id, pairs.data(), pairs.size(), &provider);
  if (message.goodbye) nghttp2_submit_goaway(session_, NGHTTP2_FLAG_NONE, id, NGHTTP2_NO_ERROR, nullptr, 0);
}

void Http2Peer::serve(Answer answer) {
  answer_ = std::move(answer);
  read_to_end();
  flush();
}

}  // namespace anchorhold::testing
