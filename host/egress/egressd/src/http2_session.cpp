#include "http2_session.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

#include "relay.h"

namespace anchorhold::egress {
namespace {

constexpr std::uint32_t most_streams = 100;
constexpr std::uint32_t stream_window = 256 * 1024;
constexpr std::int32_t connection_window = 1 << 20;
constexpr std::size_t write_at_once = 64 * 1024;

constexpr std::size_t frame_block = 16 * 1024;

std::string_view view(const std::uint8_t* bytes, std::size_t size) {
  return {reinterpret_cast<const char*>(bytes), size};
}

std::vector<nghttp2_nv> pairs_of(const std::vector<Field>& fields, std::ptrdiff_t sensitive = -1) {
  std::vector<nghttp2_nv> pairs;
  for (const Field& field : fields) {
    auto text = [](const std::string& s) {
      return reinterpret_cast<std::uint8_t*>(const_cast<char*>(s.data()));
    };
    bool secret = static_cast<std::ptrdiff_t>(pairs.size()) == sensitive;
    pairs.push_back({text(field.name), text(field.value), field.name.size(), field.value.size(),
                     static_cast<std::uint8_t>(secret ? NGHTTP2_NV_FLAG_NO_INDEX : NGHTTP2_NV_FLAG_NONE)});
  }
  return pairs;
}

}  // namespace

// nghttp2 has a block of 16 KiB for each session, in which it writes frames, and most are small: in a mapping
// of its own, only the pages of it that were used take memory, and none while the session rests.
struct Http2Session::Memory {
  static FrameBlock& block(void* user) { return static_cast<Http2Session*>(user)->frames_; }
  static void* allocate(std::size_t size, void* user) {
    FrameBlock& frames = block(user);
    if (size < frame_block || frames.bytes) return std::malloc(size);
    void* bytes = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bytes == MAP_FAILED) return nullptr;
    frames = {bytes, size};
    return bytes;
  }
  static void release(void* pointer, void* user) {
    FrameBlock& frames = block(user);
    if (!pointer || pointer != frames.bytes) return std::free(pointer);
    munmap(frames.bytes, frames.size);
    frames = {};
  }
  static void* allocate_zeroed(std::size_t count, std::size_t size, void*) {
    return std::calloc(count, size);
  }
  static void* reallocate(void* pointer, std::size_t size, void* user) {
    FrameBlock& frames = block(user);
    if (!pointer) return allocate(size, user);
    if (pointer != frames.bytes) return std::realloc(pointer, size);
    void* fresh = std::malloc(size);
    if (!fresh) return nullptr;
    std::memcpy(fresh, pointer, std::min(frames.size, size));
    release(pointer, user);
    return fresh;
  }
};

struct Http2Session::Callbacks {
  static Http2Session& self(void* user) { return *static_cast<Http2Session*>(user); }

  static int begin(nghttp2_session*, const nghttp2_frame*, void* user) {
    self(user).block_ = {};
    return 0;
  }
  static int field(nghttp2_session*, const nghttp2_frame*, const std::uint8_t* name, std::size_t name_size,
                   const std::uint8_t* value, std::size_t value_size, std::uint8_t, void* user) {
    Block& block = self(user).block_;
    block.bytes += name_size + value_size;
    if (block.bytes > max_head_bytes || block.fields.size() >= max_fields)
      return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;  // resets the stream
    block.fields.push_back({std::string(view(name, name_size)), std::string(view(value, value_size))});
    return 0;
  }
  static int frame(nghttp2_session*, const nghttp2_frame* frame, void* user) {
    Http2Session& session = self(user);
    bool ends = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    if (frame->hd.type == NGHTTP2_HEADERS)
      session.events_.on_fields(frame->hd.stream_id, std::move(session.block_.fields), ends);
    else if (frame->hd.type == NGHTTP2_DATA && ends)
      session.events_.on_end(frame->hd.stream_id);
    else if (frame->hd.type == NGHTTP2_GOAWAY)
      session.events_.on_goaway();
    return 0;
  }
  static int data(nghttp2_session*, std::uint8_t, std::int32_t id, const std::uint8_t* bytes,
                  std::size_t size, void* user) {
    self(user).events_.on_data(id, view(bytes, size));
    return 0;
  }
  static int closed(nghttp2_session*, std::int32_t id, std::uint32_t error, void* user) {
    self(user).events_.on_closed(id, error);
    return 0;
  }
  static ssize_t part(nghttp2_session* session, std::int32_t id, std::uint8_t* buffer, std::size_t size,
                      std::uint32_t* flags, nghttp2_data_source*, void* user) {
    Http2Events& events = self(user).events_;
    auto part = events.next_part(id, size);
    if (part.bytes.empty() && !part.ends) return NGHTTP2_ERR_DEFERRED;
    std::size_t count = std::min(part.bytes.size(), size);
    if (count > 0) std::memcpy(buffer, part.bytes.data(), count);
    if (part.ends && count == part.bytes.size()) {
      *flags |= NGHTTP2_DATA_FLAG_EOF;
      if (part.trailers && !part.trailers->empty()) {
        auto pairs = pairs_of(*part.trailers);
        if (nghttp2_submit_trailer(session, id, pairs.data(), pairs.size()) == 0)
          *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
      }
    }
    events.part_was_sent(id, count);
    return static_cast<ssize_t>(count);
  }
  static nghttp2_session_callbacks* table() {
    static nghttp2_session_callbacks* const made = [] {
      nghttp2_session_callbacks* fresh = nullptr;
      nghttp2_session_callbacks_new(&fresh);
      nghttp2_session_callbacks_set_on_begin_headers_callback(fresh, &begin);
      nghttp2_session_callbacks_set_on_header_callback(fresh, &field);
      nghttp2_session_callbacks_set_on_frame_recv_callback(fresh, &frame);
      nghttp2_session_callbacks_set_on_data_chunk_recv_callback(fresh, &data);
      nghttp2_session_callbacks_set_on_stream_close_callback(fresh, &closed);
      return fresh;
    }();
    return made;
  }
};

Http2Session::Http2Session(asio::io_context& loop, Stream& stream, Side side, Http2Events& events)
    : stream_(stream), events_(events), written_(loop) {
  nghttp2_option* option = nullptr;
  nghttp2_option_new(&option);
  nghttp2_option_set_no_auto_window_update(option, 1);
  nghttp2_option_set_no_closed_streams(option, 1);  // it would keep a hundred of them
  nghttp2_option_set_peer_max_concurrent_streams(option, most_streams);
  nghttp2_mem memory{this, &Memory::allocate, &Memory::release, &Memory::allocate_zeroed,
                     &Memory::reallocate};
  if (side == Side::server)
    nghttp2_session_server_new3(&session_, Callbacks::table(), this, option, &memory);
  else
    nghttp2_session_client_new3(&session_, Callbacks::table(), this, option, &memory);
  nghttp2_option_del(option);
  std::vector<nghttp2_settings_entry> settings{{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, stream_window},
                                               {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, most_streams},
                                               {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, max_head_bytes}};
  if (side == Side::client) settings.push_back({NGHTTP2_SETTINGS_ENABLE_PUSH, 0});
  nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings.data(), settings.size());
  nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, 0, connection_window);
}

Http2Session::~Http2Session() {
  nghttp2_session_del(session_);
}

void Http2Session::end() {
  over_ = true;
  written_.set();
}

Awaitable<void> Http2Session::read() {
  for (;;) {
    Io io = co_await read_some(stream_, scratch());
    if (io.state != Io::State::done) break;
    if (over_) continue;
    ssize_t taken =
        nghttp2_session_mem_recv(session_, reinterpret_cast<std::uint8_t*>(scratch().data()), io.count);
    written_.set();
    if (taken < 0) {
      fault_ = nghttp2_strerror(static_cast<int>(taken));
      break;
    }
  }
}

void Http2Session::leave(std::unique_ptr<Stream> stream) {
  left_ = std::move(stream);
  announce_end();
  std::string out;
  if (!writing_) {
    take_frames(out);
    std::string_view bytes = out;
    if (write_now(stream_, bytes) && bytes.empty()) (void)stream_.try_shutdown();
  }
  stream_.cut();
  end();
}

void Http2Session::rest() {
  // Between two frames nothing in it is used again.
  if (!writing_ && frames_.bytes) madvise(frames_.bytes, frames_.size, MADV_DONTNEED);
}

void Http2Session::take_frames(std::string& out) {
  while (out.size() < write_at_once) {
    const std::uint8_t* bytes = nullptr;
    ssize_t size = nghttp2_session_mem_send(session_, &bytes);
    if (size < 0) fault_ = nghttp2_strerror(static_cast<int>(size));
    if (size <= 0) return;
    out += view(bytes, static_cast<std::size_t>(size));
  }
}

Awaitable<void> Http2Session::write() {
  std::string out;
  for (;;) {
    take_frames(out);
    if (!out.empty()) {
      writing_ = true;
      bool sent = co_await write_all(stream_, out);
      writing_ = false;
      if (!sent) co_return;
      out.clear();
      continue;
    }
    std::string().swap(out);
    bool wanted = nghttp2_session_want_read(session_) != 0 || nghttp2_session_want_write(session_) != 0;
    if (over_ || !wanted || !fault_.empty()) co_return;
    written_.reset();
    co_await written_.wait();
  }
}

std::int32_t Http2Session::request(const std::vector<Field>& fields, bool has_body,
                                   std::ptrdiff_t sensitive) {
  auto pairs = pairs_of(fields, sensitive);
  nghttp2_data_provider provider{{.ptr = nullptr}, &Callbacks::part};
  std::int32_t id = nghttp2_submit_request(session_, nullptr, pairs.data(), pairs.size(),
                                           has_body ? &provider : nullptr, nullptr);
  wake();
  return id;
}

bool Http2Session::respond(std::int32_t id, const std::vector<Field>& fields, bool has_body) {
  auto pairs = pairs_of(fields);
  nghttp2_data_provider provider{{.ptr = nullptr}, &Callbacks::part};
  int result =
      nghttp2_submit_response(session_, id, pairs.data(), pairs.size(), has_body ? &provider : nullptr);
  wake();
  return result == 0;
}

void Http2Session::interim(std::int32_t id, const std::vector<Field>& fields) {
  auto pairs = pairs_of(fields);
  nghttp2_submit_headers(session_, NGHTTP2_FLAG_NONE, id, nullptr, pairs.data(), pairs.size(), nullptr);
  wake();
}

void Http2Session::resume(std::int32_t id) {
  nghttp2_session_resume_data(session_, id);
  wake();
}

void Http2Session::reset(std::int32_t id, std::uint32_t error) {
  nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, id, error);
  wake();
}

void Http2Session::passed_on(std::int32_t id, std::size_t size) {
  nghttp2_session_consume(session_, id, size);
  wake();
}

void Http2Session::announce_end() {
  nghttp2_submit_goaway(session_, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(session_),
                        NGHTTP2_NO_ERROR, nullptr, 0);
  wake();
}

}  // namespace anchorhold::egress
