#include "wire.h"

#include <fmt/format.h>
#include <random>

#include "text.h"

namespace anchorhold::agent {
namespace {

constexpr std::size_t max_refusal_bytes = 64 << 10;

struct Failure {
  Error error;
  bool again = false;
  std::optional<std::chrono::milliseconds> delay;  // what the server asks for
};

ErrorCode code_of_status(long status) {
  switch (status) {
    case 400:
    case 413:
    case 422:
      return ErrorCode::invalid_argument;
    case 401:
    case 403:
      return ErrorCode::permission_denied;
    case 402:
      return ErrorCode::resource_exhausted;
    case 404:
      return ErrorCode::not_found;
    case 429:
      return ErrorCode::resource_exhausted;
    default:
      return status >= 500 ? ErrorCode::unavailable : ErrorCode::failed_precondition;
  }
}

std::string hint_of_status(long status) {
  switch (status) {
    case 401:
      return "Check the key: ANTHROPIC_API_KEY, OPENAI_API_KEY or --key-file.";
    case 402:
      return "The account has no credit left.";
    case 403:
      return "The key may not use this model.";
    case 404:
      return "Check the model's name and --base-url.";
    case 429:
      return "The account's rate limit is reached; try again later.";
    default:
      return {};
  }
}

// A turn, or why there is none. A full window is a turn of its own kind.
tl::expected<Turn, Failure> try_once(const Wire& wire, TurnObserver& observer, const std::stop_token& stop) {
  std::unique_ptr<TurnDecoder> decoder;
  std::string refusal;
  auto sink = [&](const HttpHead& head, std::string_view piece) -> Status {
    if (head.status != 200) {
      refusal += piece.substr(0, max_refusal_bytes - refusal.size());
      return {};
    }
    if (!decoder) decoder = wire.make_decoder(observer, head);
    return decoder->feed(piece);
  };
  auto head = http_post(wire.request, sink, stop);
  if (head && head->status != 200) {
    auto said = wire.read_refusal(refusal);
    if (said.window_full) {
      Turn full;
      full.stop_reason = StopReason::context_exceeded;
      full.stop_text = said.message;
      return full;
    }
    std::string why = said.message.empty() ? std::string("no reason given") : one_line(said.message, 500);
    return tl::unexpected(Failure{
        {code_of_status(head->status), fmt::format("{} answered {}: {}", wire.server, head->status, why),
         hint_of_status(head->status)},
        should_retry(*head),
        server_delay(*head, std::chrono::system_clock::now())});
  }
  // A connection that breaks after everything had come is no fault.
  if (decoder && (head || head.error().code == ErrorCode::unavailable)) {
    auto turn = decoder->finish();
    if (turn) return std::move(*turn);
    if (head)
      return tl::unexpected(
          Failure{with_context(turn.error(), wire.server), turn.error().code == ErrorCode::unavailable, {}});
  }
  if (head)
    return tl::unexpected(
        Failure{{ErrorCode::unavailable, wire.server + " sent an empty answer", {}}, true, {}});
  const Error& error = head.error();
  bool again = error.code == ErrorCode::unavailable || error.code == ErrorCode::deadline_exceeded;
  return tl::unexpected(Failure{with_context(error, wire.server), again, {}});
}

double random_fraction() {
  static thread_local std::minstd_rand generator(std::random_device{}());
  return std::uniform_real_distribution<double>(0, 1)(generator);
}

}  // namespace

Result<Turn> stream_turn(const Wire& wire, const RetryPolicy& policy, TurnObserver& observer,
                         std::stop_token stop) {
  for (unsigned made = 0;; ++made) {
    auto turn = try_once(wire, observer, stop);
    if (turn) return std::move(*turn);
    Failure& failure = turn.error();
    if (stop.stop_requested()) return fail(ErrorCode::cancelled, "stopped");
    if (!failure.again || made >= policy.max_retries) return fail(std::move(failure.error));
    auto delay = failure.delay.value_or(default_delay(policy, made, random_fraction()));
    if (delay > policy.max_server_delay) return fail(std::move(failure.error));
    observer.restarted(failure.error.message, delay);
    if (!wait_for(delay, stop)) return fail(ErrorCode::cancelled, "stopped");
  }
}

}  // namespace anchorhold::agent
