// One request on its way through the dispatcher.
#pragma once

#include <cstring>

#include "reader/dispatcher.h"
#include "vsock/virtqueue.h"

namespace anchorhold::mounts {

struct Dispatcher::Call {
  const fuse_in_header& header;
  Arguments arguments;
  const RequestBuffers& buffers;
  Scratch& scratch;
  std::size_t answered = 0;         // bytes behind the answer's header
  const char* malformed = nullptr;  // what no kernel would have sent

  int bad(const char* what) {
    malformed = what;
    return EIO;
  }
  std::size_t room() const { return buffers.writable_bytes - sizeof(fuse_out_header); }
  void answer(const void* bytes, std::size_t size) {
    answered += vsock::copy_to(buffers.writable, sizeof(fuse_out_header) + answered,
                               std::span(static_cast<const std::byte*>(bytes), size));
  }
  template <typename T>
  void answer(const T& value) {
    answer(&value, sizeof value);
  }
};

}  // namespace anchorhold::mounts
