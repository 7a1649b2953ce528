// One output of one command: a pipe or a terminal on one side, readers on the other.
//
// Held back (foreground): bytes are read from the pipe only when a reader has room for them, so a slow reader
// fills the pipe and the command waits. Nothing is kept here. Kept (background): bytes are always read, and
// the last of them are kept up to a bound.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "vsock/event_loop.h"

namespace anchorhold::guest {

inline constexpr std::size_t chunk_bytes = 64 * 1024;

// Belongs to the loop's thread.
class Output {
 public:
  // Takes one chunk at a time: after chunk() it gets nothing until it called ready() again.
  class Reader {
   public:
    virtual ~Reader() = default;
    // `more`: the next one is probably there already.
    virtual void chunk(std::string data, std::uint64_t offset, bool more) = 0;
    // The last call: at the output's end, or (a kept output, without follow) after what is held.
    virtual void end(bool at_end, std::uint64_t offset) = 0;
  };

  // tail_bytes 0: held back. `changed` is called after bytes came or the end was reached.
  Output(vsock::EventLoop& loop, std::size_t tail_bytes) : loop_(loop), tail_bytes_(tail_bytes) {}
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  // The command's side exists from here on. Non-blocking.
  Status open(UniqueFd fd, std::function<void()> changed);

  // already_exists: a held-back output has one reader at a time.
  Status attach(Reader* reader, std::uint64_t from_offset, bool follow);
  void detach(Reader* reader);
  void ready(Reader* reader);

  // No more bytes: what was not read yet is given up.
  void close();
  // Nobody is left who could write: it has ended if nothing waits to be read.
  void settle();

  bool ended() const { return ended_; }
  // Nothing waits to be read.
  bool drained() const;
  bool has_reader() const { return !readers_.empty(); }
  std::uint64_t total() const { return total_; }
  std::uint64_t dropped() const { return held_start_; }

 private:
  struct Attached {
    Reader* reader;
    std::uint64_t offset;
    bool follow;
    bool waiting = false;
  };
  void arm();
  void on_events();
  void pump();
  void keep();
  bool serve(Attached& attached);
  // Up to a chunk; empty: nothing there now, or the end was reached.
  std::string read_chunk();
  void end_input();
  Attached* find(Reader* reader);

  vsock::EventLoop& loop_;
  std::size_t tail_bytes_;
  std::function<void()> changed_;
  UniqueFd fd_;
  vsock::EventLoop::Watch watch_;
  std::vector<Attached> readers_;
  bool readable_ = false;
  bool ended_ = false;
  std::uint64_t total_ = 0;
  std::string held_;  // kept outputs only; begins at held_start_
  std::uint64_t held_start_ = 0;
  bool again_posted_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace anchorhold::guest
