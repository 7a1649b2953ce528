// Both ends of an opened HTTP/2 connection, as the guest and the server send them: any bytes, in any cuts and
// order. Whatever comes, the bridge ends when both have ended, and holds no more than its windows.
// Input: a byte that says what the rule demands, and whether the server can be reached again, then pieces: a
// byte (1: the server's; 2: comes after the other side's turn; 4: after a rest, when nothing is asked), two
// for its length, the bytes.
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <cstdlib>

#include "http2_bridge.h"
#include "signal.h"

namespace {

using namespace anchorhold;
using namespace anchorhold::egress;

constexpr std::string_view token = "anchorhold-session-0123456789abcdef";

// One end: what it sends is put in, what is written to it is dropped.
class FuzzStream final : public Stream {
 public:
  explicit FuzzStream(asio::io_context& loop) : changed_(loop) {}
  void put(std::string_view bytes) {
    waiting_ += bytes;
    changed_.set();
  }
  void end() {
    ended_ = true;
    changed_.set();
  }
  Io try_read(std::span<char> buffer) override {
    if (waiting_.empty()) {
      if (ended_) return {Io::State::end};
      changed_.reset();
      return {Io::State::waiting, 0, Direction::read};
    }
    std::size_t count = waiting_.copy(buffer.data(), buffer.size());
    waiting_.erase(0, count);
    return {Io::State::done, count};
  }
  Io try_write(std::string_view bytes) override {
    if (cut_) return {Io::State::failed};
    return {Io::State::done, bytes.size()};
  }
  Io try_shutdown() override { return {Io::State::done, 0}; }
  Awaitable<void> wait(Direction) override { co_await changed_.wait(); }
  void cut() override {
    cut_ = true;
    waiting_.clear();
    end();
  }

 private:
  std::string waiting_;
  bool ended_ = false, cut_ = false;
  Signal changed_;
};

class FuzzConnection final : public OpenedConnection {
 public:
  FuzzConnection(asio::io_context& loop, std::uint8_t demands)
      : loop_(loop), server_(std::make_unique<FuzzStream>(loop)), reachable_((demands & 8) == 0) {
    auto configuration = std::make_shared<Configuration>();
    policy::EgressRule rule;
    rule.host = *policy::HostPattern::parse("site.test");
    rule.ports = {443};
    rule.action = policy::EgressAction::allow;
    rule.paths = {"/*"};
    if (demands & 1) {
      rule.credential = "forge";
      configuration->credentials["forge"] = {};
    }
    if (demands & 2) rule.max_upload = ByteSize{1000};
    if (demands & 4) {
      policy::GitGrant grant;
      grant.repositories = {"team/*"};
      grant.operations = {policy::GitOperation::fetch, policy::GitOperation::push};
      grant.refs = {"refs/heads/agent/*"};
      rule.git.push_back(std::move(grant));
    }
    configuration->rules.user.push_back(std::move(rule));
    configuration->session_token = token;
    destination_ = *policy::Destination::parse("site.test:443", std::nullopt);
    decided_.decision = policy::decide(configuration->rules, destination_, policy::Person::absent);
    decided_.configuration = std::move(configuration);
    if (!decided_.allowed()) std::abort();
  }
  asio::io_context& loop() override { return loop_; }
  const policy::Destination& destination() const override { return destination_; }
  const Decided& decided() const override { return decided_; }
  FuzzStream* server() override { return server_.get(); }
  std::unique_ptr<Stream> let_go_of_server() override { return std::move(server_); }
  Awaitable<std::optional<Refusal>> dial_server() override {
    co_await asio::post(loop_, asio::use_awaitable);
    std::optional<Refusal> refused;
    if (reachable_)
      server_ = std::make_unique<FuzzStream>(loop_);
    else
      refused.emplace().status = 502;
    co_return refused;
  }
  void moves() override { resting_ = false; }
  void rests(std::chrono::milliseconds) override { resting_ = true; }
  bool was_resting() { return std::exchange(resting_, false); }
  EventReport report_of(EventKind kind, std::string cause) const override {
    EventReport report;
    report.kind = kind;
    report.cause = std::move(cause);
    return report;
  }
  Awaitable<bool> record(EventReport) override {
    co_await asio::post(loop_, asio::use_awaitable);
    co_return true;
  }
  Awaitable<Result<std::string>> secret(SecretRequest) override {
    co_await asio::post(loop_, asio::use_awaitable);
    Result<std::string> secret(std::string("the-secret-of-the-forge"));
    co_return secret;
  }
  std::string& last_git() override { return last_git_; }

 private:
  asio::io_context& loop_;
  std::unique_ptr<FuzzStream> server_;
  bool reachable_, resting_ = false;
  policy::Destination destination_;
  Decided decided_;
  std::string last_git_;
};

Awaitable<void> run(Http2Bridge& bridge, bool& over) {
  co_await bridge.run();
  over = true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string_view input(reinterpret_cast<const char*>(data), size);
  asio::io_context loop(1);
  FuzzConnection connection(loop, static_cast<std::uint8_t>(input[0]));
  input.remove_prefix(1);
  FuzzStream guest(loop);
  Http2Bridge bridge(connection, guest);
  bool over = false;
  asio::co_spawn(loop, run(bridge, over), asio::detached);
  while (input.size() > 3) {
    const auto kind = static_cast<std::uint8_t>(input[0]);
    const std::size_t length = static_cast<std::size_t>(static_cast<std::uint8_t>(input[1])) << 8 |
                               static_cast<std::uint8_t>(input[2]);
    input.remove_prefix(3);
    std::string_view piece = input.substr(0, length);
    input.remove_prefix(piece.size());
    if (kind & 6) loop.poll();
    if (kind & 4 && connection.was_resting()) bridge.time_is_over();
    if ((kind & 1) == 0)
      guest.put(piece);
    else if (connection.server())
      connection.server()->put(piece);
  }
  loop.poll();
  guest.end();
  if (connection.server()) connection.server()->end();
  loop.poll();
  if (!over) std::abort();
  return 0;
}
