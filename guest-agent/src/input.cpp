#include "input.h"

#include <cerrno>
#include <unistd.h>
#include <utility>

namespace anchorhold::guest {

Result<std::unique_ptr<Input>> Input::create(vsock::EventLoop& loop, UniqueFd fd, Kind kind) {
  ANCHORHOLD_CHECK(set_nonblocking(fd.get()));
  std::unique_ptr<Input> input(new Input(std::move(fd), kind));
  input->watch_ =
      ANCHORHOLD_TRY(loop.watch(input->fd_.get(), vsock::ready::writable | vsock::ready::edge,
                                [self = input.get()](std::uint32_t events) { self->on_events(events); }));
  return input;
}

Input::~Input() = default;

void Input::on_events(std::uint32_t events) {
  // The other end of a pipe is gone: an error. That of a terminal: a hang-up, which a terminal also reports
  // before the command has opened it, but then there is nothing to write either.
  if (events & vsock::ready::error || (kind_ == Kind::terminal && events & vsock::ready::hangup)) {
    give_up();
    return;
  }
  writable_ = true;
  pump();
}

void Input::write(std::string data, Done done) {
  if (!fd_) {
    done(Outcome::closed_by_command);
    return;
  }
  pending_ = std::move(data);
  position_ = 0;
  done_ = std::move(done);
  pump();
}

void Input::pump() {
  while (fd_ && writable_ && position_ < pending_.size()) {
    ssize_t put = ::write(fd_.get(), pending_.data() + position_, pending_.size() - position_);
    if (put > 0) {
      position_ += static_cast<std::size_t>(put);
      continue;
    }
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno == EAGAIN) {
      writable_ = false;
      break;
    }
    give_up();
    return;
  }
  if (!fd_ || position_ < pending_.size()) return;
  if (!pending_.empty()) last_ = pending_.back();
  pending_.clear();
  position_ = 0;
  if (closing_) {
    watch_ = {};
    fd_.reset();
  }
  if (auto done = std::exchange(done_, nullptr)) done(Outcome::written);
}

void Input::give_up() {
  watch_ = {};
  fd_.reset();
  pending_.clear();
  closed_by_command_ = true;
  if (auto done = std::exchange(done_, nullptr)) done(Outcome::closed_by_command);
  if (auto callback = std::exchange(closed_callback_, nullptr)) callback();
}

void Input::on_closed_by_command(std::function<void()> callback) {
  if (closed_by_command_ && callback) {
    callback();
    return;
  }
  closed_callback_ = std::move(callback);
}

void Input::close() {
  if (!fd_ || closing_) return;
  closing_ = true;
  if (kind_ == Kind::terminal) {
    // VEOF ends the read that waits; within a line the first one only hands over the line.
    char last = pending_.empty() ? last_ : pending_.back();
    pending_ += last == '\n' || last == '\r' || last == '\x04' ? "\x04" : "\x04\x04";
  }
  pump();
}

}  // namespace anchorhold::guest
