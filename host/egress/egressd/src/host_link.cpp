#include "host_link.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include "base/secret.h"

namespace anchorhold::egress {
namespace {

constexpr std::chrono::seconds secret_limit(30);
constexpr std::chrono::seconds record_limit(60);
constexpr auto quietly = asio::experimental::as_tuple(asio::use_awaitable);

}  // namespace

HostLink::HostLink(asio::io_context& loop, UniqueFd control)
    : loop_(loop), control_(loop, control.release()) {}

Awaitable<Status> HostLink::serve(std::function<Status(ControlMessage)> take) {
  for (;;) {
    auto received = receive_control(control_.native_handle());
    if (!received) co_return fail(std::move(received).error());
    if (!*received) {
      co_await control_.async_wait(asio::posix::stream_descriptor::wait_read, quietly);
      continue;
    }
    ControlMessage& message = **received;
    switch (message.type) {
      case ControlType::recorded:
        finish(events_, message);
        break;
      case ControlType::answer:
        finish(questions_, message);
        break;
      case ControlType::secret:
        finish(secrets_, message);
        break;
      default:
        if (auto taken = take(std::move(message)); !taken) co_return taken;
    }
  }
}

void HostLink::finish(Table& table, ControlMessage& message) {
  auto node = table.extract(message.id);
  if (!node) {
    wipe(message.payload);
    return;
  }
  node.mapped()->code = message.code;
  node.mapped()->payload = message.payload;
  if (message.type == ControlType::secret) wipe(message.payload);
  node.mapped()->done.set();
}

std::shared_ptr<HostLink::Waiting> HostLink::begin(Table& table, std::uint64_t id) {
  return table[id] = std::make_shared<Waiting>(loop_);
}

void HostLink::send(ControlMessage message) {
  queue_.push_back(std::move(message));
  if (std::exchange(writing_, true)) return;
  asio::co_spawn(loop_, write_queue(), asio::detached);
}

Awaitable<void> HostLink::write_queue() {
  while (!queue_.empty()) {
    auto sent = send_control(control_.native_handle(), queue_.front());
    if (!sent && sent.error().code == ErrorCode::resource_exhausted) {
      co_await control_.async_wait(asio::posix::stream_descriptor::wait_write, quietly);
      continue;
    }
    queue_.pop_front();  // sent, or the host is gone, which serve() finds
  }
  writing_ = false;
}

Awaitable<bool> HostLink::record(const EventReport& report) {
  std::uint64_t id = next_id_++;
  auto waiting = begin(events_, id);
  ControlMessage message{
      .type = ControlType::event, .code = static_cast<std::uint32_t>(report.kind), .id = id};
  message.payload = encode_event(report);
  send(std::move(message));
  bool in_time = co_await waiting->done.wait_for(record_limit);
  events_.erase(id);
  co_return in_time && waiting->code == 0;
}

Awaitable<std::optional<Answer>> HostLink::ask(Question question, std::chrono::milliseconds limit) {
  auto waiting = begin(questions_, question.id);
  ControlMessage message{.type = ControlType::ask, .id = question.id};
  message.payload = encode_question(question);
  send(std::move(message));
  bool in_time = co_await waiting->done.wait_for(limit);
  bool answered = in_time && questions_.erase(question.id) == 0;
  if (answered) co_return parse_answer(waiting->payload);
  send({.type = ControlType::withdraw, .id = question.id});
  co_return std::nullopt;
}

void HostLink::take_back(std::uint64_t question) {
  if (auto found = questions_.find(question); found != questions_.end()) found->second->done.set();
}

Awaitable<Result<std::string>> HostLink::secret(SecretRequest request) {
  request.id = next_id_++;
  auto waiting = begin(secrets_, request.id);
  ControlMessage message{.type = ControlType::want_secret, .id = request.id};
  message.payload = encode_secret_request(request);
  send(std::move(message));
  if (!co_await waiting->done.wait_for(secret_limit)) {
    secrets_.erase(request.id);
    co_return fail(ErrorCode::deadline_exceeded, "the vault did not answer");
  }
  std::string secret = waiting->payload;
  wipe(waiting->payload);
  if (waiting->code != 0) co_return fail(ErrorCode::permission_denied, std::move(secret));
  co_return secret;
}

}  // namespace anchorhold::egress
