// The person's files under load: what is open is what a text says that was there as a whole.
#include <atomic>
#include <condition_variable>
#include <fcntl.h>
#include <fmt/format.h>
#include <fstream>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include "bed.h"
#include "way_out.h"

namespace anchorhold::testing {
namespace {

constexpr std::uint16_t port = 9000;

std::string rule_text(const std::string& host, const std::string& action) {
  return fmt::format("[[egress.rule]]\nhost = \"{}\"\nports = [{}]\naction = \"{}\"\n", host, port, action);
}

class EgressReload : public EgressBed {
 protected:
  void SetUp() override {
    EgressBed::SetUp();
    if (IsSkipped()) return;
    rules_ = *TemporaryDirectory::create("rules");
  }
  void TearDown() override { way_out_.reset(); }

  void start_way_out() {
    session::EgressSpec spec;
    spec.rules = rules_->path();
    auto person = policy::load_person_rules(rules_->path());
    ASSERT_TRUE(person) << person.error().message;
    policy::apply(*person, spec.policy.rules);
    spec.resolver.servers = {"44.128.0.53"};
    spec.trust.extra_ca = {file("ca.pem", authority().pem())};
    session::WayOutParts parts;
    parts.questions = std::make_shared<session::QuestionDesk>(SessionId("s"), nullptr, sink());
    parts.notice = [this](const std::string& text) {
      std::lock_guard lock(mutex_);
      notices_ += text + "\n";
      told_.notify_all();
    };
    auto started = session::WayOut::start(std::move(spec), std::move(parts), sink());
    ASSERT_TRUE(started) << started.error().message;
    way_out_ = std::move(*started);
  }
  // With the certificate of the bed, which stays trusted.
  std::string text(const std::string& rules) {
    return fmt::format("[egress]\nextra_ca = [\"{}\"]\n{}", file("ca.pem", authority().pem()).string(),
                       rules);
  }
  std::filesystem::path config() const { return rules_->path() / "config.toml"; }
  void replace(const std::string& text) { ASSERT_TRUE(write_file_atomic(config(), text)); }

  Wire connect_to(const std::string& host, std::string& status) {
    auto [ours, theirs] = *socket_pair(SOCK_STREAM);
    way_out_->adopt(std::move(theirs));
    Wire wire(std::move(ours));
    auto target = fmt::format("{}:{}", host, port);
    wire.write("CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n\r\n");
    // One that is being decided when the rules change is cut without a word.
    auto said = wire.read_until("\r\n\r\n");
    status = said.size() < 12 ? "cut" : said.substr(9, 3);
    return wire;
  }
  std::string status_of(const std::string& host) {
    std::string status;
    connect_to(host, status);
    return status;
  }
  // Until it is so; the limit only ends a test that fails.
  void becomes(const std::string& host, const std::string& status) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    std::string now;
    while ((now = status_of(host)) != status)
      ASSERT_LT(std::chrono::steady_clock::now(), end) << host << " is " << now << ", not " << status;
  }
  // What the person was told, once it holds this; a change is told after it is in force.
  bool told(const std::string& text) {
    std::unique_lock lock(mutex_);
    return told_.wait_for(lock, std::chrono::seconds(60),
                          [&] { return notices_.find(text) != std::string::npos; });
  }

  std::optional<TemporaryDirectory> rules_;
  std::mutex mutex_;
  std::condition_variable told_;
  std::string notices_;
  std::unique_ptr<session::WayOut> way_out_;
};

TEST_F(EgressReload, AChangeCutsWhatItDoesNotAllowAndABrokenFileEverything) {
  Site first("44.128.1.1", port, [](Wire& wire) { wire.read_all(); });
  Site second("44.128.1.2", port, [](Wire& wire) { wire.read_all(); });
  const auto good = text(rule_text("44.128.1.1", "allow"));
  replace(good);
  start_way_out();
  std::string status;
  Wire open = connect_to("44.128.1.1", status);
  ASSERT_EQ(status, "200");
  becomes("44.128.1.2", "403");

  replace(text(rule_text("44.128.1.2", "allow")));
  EXPECT_EQ(open.read_all(), "");
  ASSERT_TRUE(sink().wait_for("anchorhold.egress.deny", "egress.cut=true"));
  becomes("44.128.1.1", "403");
  Wire other = connect_to("44.128.1.2", status);
  ASSERT_EQ(status, "200");

  // What is wrong in it is elsewhere.
  replace(text(rule_text("44.128.1.2", "allow") + "\n\nnonsense = 1\n"));
  EXPECT_EQ(other.read_all(), "");
  auto event = sink().wait_for("anchorhold.policy.reject", "config.toml:9");
  ASSERT_TRUE(event) << ::testing::PrintToString(sink().all());
  becomes("44.128.1.2", "403");
  replace(good);
  becomes("44.128.1.1", "200");
  becomes("44.128.1.2", "403");
  EXPECT_TRUE(told("config.toml:9"));
  EXPECT_TRUE(told("understood again"));

  std::filesystem::remove(config());
  becomes("44.128.1.1", "403");
  std::filesystem::create_directory(config());
  ASSERT_TRUE(sink().wait_for("anchorhold.policy.reject", "not a regular file"));
  std::filesystem::remove(config());
  replace(good);
  becomes("44.128.1.1", "200");
}

// Two good texts and a broken one take turns, replaced and written in place, in halves. The first half of the
// second would allow what neither allows.
TEST_F(EgressReload, NothingIsAllowedByATextThatNeverWas) {
  Site allowed("44.128.1.1", port, [](Wire& wire) { wire.read_all(); });
  Site never("44.128.1.2", port, [](Wire& wire) { wire.read_all(); });
  Site sometimes("44.128.1.3", port, [](Wire& wire) { wire.read_all(); });
  const auto one = text(rule_text("44.128.1.1", "allow"));
  const auto half = text(rule_text("44.128.1.0/24", "allow"));
  const auto two = half + "#" + std::string(64 * 1024, '.') + "\n" + rule_text("44.128.1.2", "deny");
  const auto broken = half + "[[egress.rule]]\nhost = \"44.128.1.2\"\n";
  replace(one);
  start_way_out();

  std::atomic<bool> stop = false;
  std::atomic<int> through = 0, refused = 0, wrong = 0;
  std::vector<std::thread> guests;
  for (int i = 0; i < 4; ++i)
    guests.emplace_back([&] {
      while (!stop) {
        if (status_of("44.128.1.2") == "200") ++wrong;
        for (const char* host : {"44.128.1.1", "44.128.1.3"})
          (status_of(host) == "200" ? through : refused) += 1;
      }
    });
  auto in_place = [&](const std::string& first, const std::string& rest) {
    UniqueFd fd(::open(config().c_str(), O_WRONLY | O_TRUNC | O_CREAT | O_CLOEXEC, 0600));
    ASSERT_TRUE(fd);
    ASSERT_TRUE(write_all(fd.get(), std::as_bytes(std::span(first))));
    // Long enough to be seen, were it looked at.
    int before = refused + through;
    while (refused + through < before + 4) std::this_thread::yield();
    ASSERT_TRUE(write_all(fd.get(), std::as_bytes(std::span(rest))));
  };
  for (int round = 0; round < 30; ++round) {
    in_place(half, two.substr(half.size()));
    replace(one);
    in_place(half, broken.substr(half.size()));
    replace(two);
    in_place(one, "");
  }
  stop = true;
  for (auto& guest : guests) guest.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(never.connections(), 0);
  EXPECT_GT(refused, 0);
  EXPECT_GT(through, 0);
  becomes("44.128.1.1", "200");
  becomes("44.128.1.3", "403");
  replace(two);
  becomes("44.128.1.3", "200");
  becomes("44.128.1.2", "403");
}

}  // namespace
}  // namespace anchorhold::testing
