// The process's side of the control socket: what it says to the host, and the answers it waits for.
#pragma once

#include <boost/asio/posix/stream_descriptor.hpp>
#include <deque>
#include <functional>
#include <map>
#include <memory>

#include "egress/control.h"
#include "signal.h"

namespace anchorhold::egress {

class HostLink {
 public:
  HostLink(asio::io_context& loop, UniqueFd control);

  // Takes every message that nothing here waits for. Ends when the host is gone, or said what is no message.
  Awaitable<Status> serve(std::function<Status(ControlMessage)> take);

  void send(ControlMessage message);
  // True once the host has recorded it.
  Awaitable<bool> record(const EventReport& report);
  // Nothing when nobody answered in time, or when the question was taken back.
  Awaitable<std::optional<Answer>> ask(Question question, std::chrono::milliseconds limit);
  std::uint64_t new_question() { return next_id_++; }
  void take_back(std::uint64_t question);
  Awaitable<Result<std::string>> secret(SecretRequest request);

 private:
  struct Waiting {
    explicit Waiting(asio::io_context& loop) : done(loop) {}
    Signal done;
    std::uint32_t code = 0;
    std::string payload;
  };
  using Table = std::map<std::uint64_t, std::shared_ptr<Waiting>>;
  std::shared_ptr<Waiting> begin(Table& table, std::uint64_t id);
  void finish(Table& table, ControlMessage& message);
  Awaitable<void> write_queue();

  asio::io_context& loop_;
  asio::posix::stream_descriptor control_;
  std::deque<ControlMessage> queue_;
  bool writing_ = false;
  std::uint64_t next_id_ = 1;
  Table events_, questions_, secrets_;
};

}  // namespace anchorhold::egress
