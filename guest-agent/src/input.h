// Standard input of one command: a pipe, or the controlling side of its terminal.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/fd.h"
#include "vsock/event_loop.h"

namespace anchorhold::guest {

// Belongs to the loop's thread.
class Input {
 public:
  enum class Kind { pipe, terminal };
  static Result<std::unique_ptr<Input>> create(vsock::EventLoop& loop, UniqueFd fd, Kind kind);
  ~Input();

  enum class Outcome { written, closed_by_command };
  using Done = std::function<void(Outcome)>;
  // One at a time. `done` may be called before this returns.
  void write(std::string data, Done done);
  // The end of input. On a terminal: what Ctrl-D does, as often as the line needs it.
  void close();
  // Nobody is left who could read: what is still to be written is given up.
  void abandon() {
    if (fd_) give_up();
  }
  // Called once, when the command can no longer read; at once when that is so already.
  void on_closed_by_command(std::function<void()> callback);
  bool open() const { return static_cast<bool>(fd_); }

 private:
  Input(UniqueFd fd, Kind kind) : fd_(std::move(fd)), kind_(kind) {}
  void on_events(std::uint32_t events);
  void pump();
  void give_up();

  UniqueFd fd_;
  Kind kind_;
  vsock::EventLoop::Watch watch_;
  std::string pending_;
  std::size_t position_ = 0;
  Done done_;
  bool writable_ = true;
  bool closing_ = false;
  bool closed_by_command_ = false;
  char last_ = '\n';
  std::function<void()> closed_callback_;
};

}  // namespace anchorhold::guest
