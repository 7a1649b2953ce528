// What a reader and the host say to each other about changes that programs of the host make. The reader may
// not watch anything by itself: that would let a reader that was taken over see what happens outside of its
// folder. It hands the host a descriptor of a folder; the host finds out whether that is beneath the grant,
// and adds a watch to the inotify(7) instance whose descriptor the reader reads. What the reader makes of the
// events comes back as changes. Before a command starts, the host asks whether all that was changed until
// then has been told.
//
// Transport: SOCK_SEQPACKET, one message at a time in each direction, integers of the machine. The host
// treats what comes as hostile bytes; a message that breaks these rules ends the watching, and with it only
// the guest's longer memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/error.h"
#include "mounts/host_change.h"

namespace anchorhold::mounts {

// Reader to host.
struct WatchMessage {
  enum class Kind : std::uint16_t {
    watch = 1,    // with one descriptor, O_PATH, of a folder; number is the reader's name for it
    unwatch = 2,  // number is the watch
    change = 3,
    settled = 4,  // the answer to WatchWord::Kind::settle, after all changes: for this number and those below
  };
  Kind kind = Kind::watch;
  std::uint64_t number = 0;
  HostChange change{};  // of Kind::change
};

// Host to reader.
struct WatchWord {
  enum class Kind : std::uint64_t {
    answer = 1,  // to WatchMessage::Kind::watch
    settle = 2,  // tell all that was changed until now, and then Kind::settled
  };
  Kind kind;
  std::uint64_t number;   // as asked; of settle, one more each time, the first is 1
  std::int64_t watch{0};  // of an answer: the watch, or a negative errno value
};
static_assert(sizeof(WatchWord) == 24, "no padding");

inline constexpr std::size_t max_change_path = 4095;
inline constexpr std::size_t max_watch_message_bytes = 24 + 2 * max_change_path;

// A change with a path that is too long is cut to a lost one.
std::string encode_watch_message(const WatchMessage& message);
// Everything but whether the path exists: sizes, kinds, and that a path is relative and has no "..", no empty
// part and no NUL.
Result<WatchMessage> parse_watch_message(std::span<const std::byte> message);

}  // namespace anchorhold::mounts
