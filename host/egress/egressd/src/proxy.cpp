#include "proxy.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/steady_timer.hpp>
#include <fmt/format.h>
#include <malloc.h>
#include <sys/resource.h>

#include "guest_connection.h"
#include "refusal.h"
#include "relay.h"

namespace anchorhold::egress {
namespace {

constexpr std::chrono::milliseconds deadline_step(250);
constexpr std::size_t max_questions = 64;
constexpr int max_rounds = 4;
// Connections whose memory is worth a look, and servers that were let go of.
constexpr std::size_t many = 200, some = 20;
// Connections beyond the bound that are told so at a time.
constexpr std::size_t max_refusing = 128;
// For those that are told so, for what is dialled and looked up, and for the process itself.
constexpr std::size_t spare_descriptors = 400;

policy::EgressDecision denied(std::string reason) {
  return {policy::EgressAction::deny, {}, nullptr, std::move(reason)};
}

}  // namespace

struct Proxy::Pending {
  explicit Pending(asio::io_context& loop) : answered(loop) {}
  Signal answered;
  std::uint64_t id = 0;
  std::optional<Answer> answer;
};

Proxy::Proxy(asio::io_context& loop, UniqueFd control, std::unique_ptr<Resolver> resolver, OwnAddresses own,
             std::unique_ptr<Authority> authority, unsigned relay_threads)
    : loop_(loop),
      host_(loop, std::move(control)),
      resolver_(std::move(resolver)),
      own_(std::move(own)),
      dialer_(loop, *resolver_, own_),
      authority_(std::move(authority)),
      configuration_(std::make_shared<Configuration>()),
      relay_loops_(loop, relay_threads) {}

Proxy::~Proxy() = default;

Awaitable<Status> Proxy::serve(int landlock_version) {
  ControlMessage sealed{.type = ControlType::sealed, .code = static_cast<std::uint32_t>(landlock_version)};
  sealed.payload = authority_->certificate_pem();
  host_.send(std::move(sealed));
  asio::co_spawn(loop_, look_at_deadlines(), asio::detached);
  co_return co_await host_.serve([this](ControlMessage message) { return take(std::move(message)); });
}

Status Proxy::take(ControlMessage message) {
  switch (message.type) {
    case ControlType::trust: {
      std::string pem = ANCHORHOLD_TRY(read_text_descriptor(message.descriptor.get()));
      trust_ = ANCHORHOLD_TRY(client_context(pem));
      return {};
    }
    case ControlType::configure:
      return configure(std::move(message));
    case ControlType::stream:
      if (message.descriptor) accept(std::move(message.descriptor));
      return {};
    default:
      return fail(ErrorCode::data_loss, "the host said what only this process says");
  }
}

Status Proxy::configure(ControlMessage message) {
  std::string text = ANCHORHOLD_TRY(read_text_descriptor(message.descriptor.get()));
  auto parsed = parse_configuration_message(text);
  // One that cannot be read leaves nothing open: the empty one denies everything.
  Status understood = parsed ? resolver_->use(parsed->resolver.servers) : Status(fail(parsed.error()));
  bool usable = understood.has_value();
  if (!usable) (void)resolver_->use({});
  configuration_ = usable ? std::make_shared<const Configuration>(std::move(*parsed))
                          : std::make_shared<const Configuration>();
  std::vector<std::shared_ptr<GuestConnection>> open;
  for (const auto& [pointer, weak] : connections_)
    if (auto connection = weak.lock()) open.push_back(std::move(connection));
  for (const auto& connection : open) connection->judge_again();
  // What the new policy settles needs no answer.
  for (const auto& [destination, pending] : questions_)
    if (decide_now(destination).decision.action != policy::EgressAction::ask) host_.take_back(pending->id);
  ControlMessage done{.type = ControlType::configured, .code = usable ? 0u : 1u, .id = message.id};
  if (!usable) done.payload = understood.error().message;
  host_.send(std::move(done));
  return {};
}

void Proxy::accept(UniqueFd stream) {
  if (!set_nonblocking(stream.get())) return;
  const bool last = is_kept_descriptor(stream.get());
  if (last || connections_.size() >= most_connections()) {
    // Once for as long as it stays so: the guest opens them as fast as it likes.
    EventReport report;
    report.cause = fmt::format("the guest opened more connections than {}", most_connections());
    report.violation = true;
    std::string answer = refusal_response(503, report, {});
    if (!std::exchange(was_full_, true))
      asio::co_spawn(loop_, report_full(std::move(report)), asio::detached);
    if (!last && refusing_ < max_refusing)
      asio::co_spawn(loop_, refuse_full(std::move(stream), std::move(answer)), asio::detached);
    return;  // beyond those that are told why, it is closed
  }
  was_full_ = false;
  auto connection =
      std::make_shared<GuestConnection>(*this, std::make_unique<SocketStream>(loop_, std::move(stream)));
  connections_.emplace(connection.get(), connection);
  asio::co_spawn(loop_, run(connection), asio::detached);
}

// A process without descriptors would lose messages of the host.
std::size_t Proxy::most_connections() const {
  rlimit descriptors{};
  if (getrlimit(RLIMIT_NOFILE, &descriptors) != 0 || descriptors.rlim_cur < 2 * spare_descriptors) return 0;
  return std::min<std::size_t>(configuration_->limits.connections,
                               (descriptors.rlim_cur - spare_descriptors) / 2);
}

Awaitable<void> Proxy::report_full(EventReport report) {
  co_await host_.record(report);
}

Awaitable<void> Proxy::refuse_full(UniqueFd stream, std::string answer) {
  ++refusing_;
  SocketStream guest(loop_, std::move(stream));
  // It fits into the socket, or it is not told.
  if (guest.try_write(answer).count == answer.size()) co_await linger(loop_, guest);
  --refusing_;
}

Awaitable<void> Proxy::run(std::shared_ptr<GuestConnection> connection) {
  co_await connection->run();
  connections_.erase(connection.get());
}

Awaitable<void> Proxy::look_at_deadlines() {
  asio::steady_timer timer(loop_);
  std::size_t before = 0;
  bool was_busy = false;
  for (;;) {
    timer.expires_after(deadline_step);
    co_await timer.async_wait(asio::experimental::as_tuple(asio::use_awaitable));
    auto now = Deadline::Clock::now();
    for (const auto& [connection, weak] : connections_)
      if (connection->deadline().over(now)) connection->time_is_over();
    // What a burst of connections needed goes back to the system.
    bool busy = connections_.size() > many;
    const bool freed = given_back_ >= some && given_back_ == std::exchange(before, given_back_);
    if (freed || (was_busy && !busy)) malloc_trim(0);
    if (freed) given_back_ = 0;
    was_busy = busy;
  }
}

Decided Proxy::decide_now(const policy::Destination& destination) const {
  Decided decided;
  decided.configuration = configuration_;
  decided.decision = policy::decide(configuration_->rules, destination, configuration_->person);
  return decided;
}

Awaitable<Decided> Proxy::decide(Wanted wanted) {
  for (int round = 0; round < max_rounds; ++round) {
    Decided decided = decide_now(wanted.destination);
    if (decided.decision.action != policy::EgressAction::ask) co_return decided;
    auto found = questions_.find(wanted.destination);
    std::shared_ptr<Pending> pending;
    if (found != questions_.end()) {
      pending = found->second;
    } else if (questions_.size() >= max_questions) {
      decided.decision = denied(decided.decision.reason + "; too many questions wait for an answer already");
      co_return decided;
    } else {
      pending = std::make_shared<Pending>(loop_);
      pending->id = host_.new_question();
      questions_.emplace(wanted.destination, pending);
      asio::co_spawn(loop_, ask(pending, wanted, decided.decision.reason), asio::detached);
    }
    co_await pending->answered.wait();
    std::string reason = decided.decision.reason;
    Decided now = decide_now(wanted.destination);
    if (now.decision.action != policy::EgressAction::ask) co_return now;
    if (!pending->answer) {
      decided.decision = denied(reason + "; nobody answered in time");
      co_return decided;
    }
    if (*pending->answer == Answer::deny) {
      decided.decision = denied(reason + "; the person denied it");
      co_return decided;
    }
    if (*pending->answer != Answer::once) continue;  // the policy has the answer now
    // What the rule that asks demands of connections, it demands of this one.
    now.once = true;
    now.decision.action = policy::EgressAction::allow;
    now.decision.origin = policy::RuleOrigin::answer;
    now.decision.reason = fmt::format("{} was allowed once by the person", wanted.destination.text());
    co_return now;
  }
  Decided decided = decide_now(wanted.destination);
  if (decided.decision.action == policy::EgressAction::ask)
    decided.decision = denied(decided.decision.reason + "; the answer did not settle it");
  co_return decided;
}

Awaitable<void> Proxy::ask(std::shared_ptr<Pending> pending, Wanted wanted, std::string reason) {
  Question question{.id = pending->id, .destination = wanted.destination, .reason = std::move(reason)};
  question.method = wanted.method;
  question.path = wanted.path;
  question.bytes_waiting = wanted.bytes_waiting;
  auto limit = configuration_->ask_timeout;
  pending->answer = co_await host_.ask(std::move(question), limit);
  questions_.erase(wanted.destination);
  pending->answered.set();
}

}  // namespace anchorhold::egress
