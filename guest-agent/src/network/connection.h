// One connection of a program in the guest, and the stream to the host's egress port that carries it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "connect_head.h"
#include "vsock/event_loop.h"

namespace anchorhold::guest {

// What all connections share; belongs to the loop's thread and outlives them.
struct ConnectionHost {
  vsock::EventLoop& loop;
  FindName find_name;
  std::function<Result<UniqueFd>()> dial;  // a connecting, non-blocking stream to the host's egress port
  std::vector<char> scratch = std::vector<char>(64 << 10);
  std::size_t held_bytes = 0;  // read from one side and not yet taken by the other, of all connections
};
// When more than this is held, no connection reads more than a little at a time.
inline constexpr std::size_t plenty_held_bytes = 16 << 20;
inline constexpr std::size_t little_bytes = 4 << 10;

class Connection {
 public:
  enum class Kind {
    proxy,        // speaks HTTP to a proxy, which is passed on as it is, or SOCKS5
    transparent,  // does not know that it speaks to us
  };
  // `ended` is called once, from the loop and never from create(); the connection may be destroyed then.
  // `target`: transparent only.
  static Result<std::unique_ptr<Connection>> create(ConnectionHost& host, Kind kind, UniqueFd client,
                                                    std::string target, std::function<void()> ended);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

 private:
  enum class State { first_byte, socks, connecting, passing, refusing, ended };
  // Bytes in one direction.
  struct Direction {
    int from = -1;
    int to = -1;
    std::string held;
    bool from_ended = false;
    bool to_ended = false;
  };
  Connection(ConnectionHost& host, UniqueFd client, std::function<void()> ended)
      : host_(host), client_(std::move(client)), ended_(std::move(ended)) {}

  void go_on();
  void read_first_byte();
  void read_socks_request();
  void await_host();
  void pass();
  bool pass(Direction& direction);
  bool drop_input();
  void stream_failed();
  void hold(Direction& direction, std::string_view bytes);
  void refuse(std::string_view answer_of_host);
  Status dial(std::string request);
  void say_to_program(std::string_view bytes);
  void end(bool reset);

  ConnectionHost& host_;
  UniqueFd client_;
  UniqueFd stream_;
  std::function<void()> ended_;
  State state_ = State::first_byte;
  bool socks_ = false;
  bool greeted_ = false;
  bool http_port_ = false;
  bool scheduled_ = false;
  std::string talk_;     // of the conversation before bytes are passed on
  std::string request_;  // what the host is still to be told
  Direction out_, in_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  vsock::EventLoop::Watch client_watch_;
  vsock::EventLoop::Watch stream_watch_;
};

}  // namespace anchorhold::guest
