// The door to a running session: what other processes of the person may say, and what becomes of nonsense.
#include "session/control.h"

#include <future>
#include <mutex>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "policy/configuration.h"
#include "proto/host.grpc.pb.h"
#include "session_fixture.h"
#include "vsock/channel.h"

namespace anchorhold::session {
namespace {

namespace wire = ::anchorhold::host::v1;

class ControlTest : public testing::Test {
 protected:
  ControlTest() {
    std::filesystem::permissions(folder_.path(), std::filesystem::perms::owner_all);
    setenv("XDG_RUNTIME_DIR", folder_.path().c_str(), 1);
  }
  std::unique_ptr<ControlServer> start() {
    ControlHandlers handlers;
    handlers.grant = [this](const std::filesystem::path& path, mounts::Mode mode) {
      return grant(path, mode);
    };
    auto server = ControlServer::start(session_, std::move(handlers));
    EXPECT_TRUE(server) << server.error().message;
    return std::move(*server);
  }
  std::filesystem::path socket_path() const { return folder_.path() / "anchorhold/sessions/session-1"; }
  UniqueFd connect() const {
    UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    socket_path().native().copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return fd;
  }
  std::unique_ptr<wire::Session::Stub> raw() const {
    return wire::Session::NewStub(*vsock::channel_from_stream(connect()));
  }

  TemporaryDirectory folder_ = *TemporaryDirectory::create("ahc");
  const SessionId session_{"session-1"};
  std::function<Result<GrantedFolder>(const std::filesystem::path&, mounts::Mode)> grant =
      [this](const std::filesystem::path& path, mounts::Mode mode) {
        asked_.emplace_back(path, mode);
        return GrantedFolder{path, "/mnt/x"};
      };
  std::vector<std::pair<std::filesystem::path, mounts::Mode>> asked_;
};

TEST_F(ControlTest, AskedAndAnswered) {
  auto server = start();
  struct stat info;
  ASSERT_EQ(stat(socket_path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_EQ(stat(socket_path().parent_path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  auto client = ControlClient::connect(session_);
  ASSERT_TRUE(client) << client.error().message;
  const std::string any_bytes = "/a/\xff\n b";
  for (auto mode : {mounts::Mode::ro, mounts::Mode::rw, mounts::Mode::rw_no_delete}) {
    auto granted = client->grant(any_bytes, mode);
    ASSERT_TRUE(granted) << granted.error().message;
    EXPECT_EQ(granted->host_path, any_bytes);
    EXPECT_EQ(granted->guest_path, "/mnt/x");
    EXPECT_EQ(asked_.back(), std::pair(std::filesystem::path(any_bytes), mode));
  }
  ASSERT_TRUE(client->grant("relative", mounts::Mode::ro));
  EXPECT_EQ(asked_.back().first, std::filesystem::current_path() / "relative");
}

TEST_F(ControlTest, ErrorsArriveAsTheyAre) {
  for (auto code : {ErrorCode::invalid_argument, ErrorCode::not_found, ErrorCode::already_exists,
                    ErrorCode::permission_denied, ErrorCode::resource_exhausted,
                    ErrorCode::failed_precondition, ErrorCode::unavailable, ErrorCode::cancelled,
                    ErrorCode::data_loss, ErrorCode::unsupported, ErrorCode::internal}) {
    grant = [&](const auto&, auto) -> Result<GrantedFolder> {
      return fail(code, "no: \"\xe2\x86\x92\"", "do this");
    };
    auto server = start();
    auto granted = ControlClient::connect(session_)->grant("/a", mounts::Mode::ro);
    ASSERT_FALSE(granted);
    EXPECT_EQ(granted.error().code, code);
    EXPECT_EQ(granted.error().message, "no: \"\xe2\x86\x92\"");
    EXPECT_EQ(granted.error().hint, "do this");
  }
}

TEST_F(ControlTest, WhatNoProgramOfOursSaysIsRefused) {
  auto server = start();
  struct Case {
    std::string path;
    int mode;
  };
  for (const auto& c : std::vector<Case>{{"relative", 1},
                                         {"", 1},
                                         {std::string("/a\0b", 4), 1},
                                         {"/" + std::string(4095, 'a'), 1},
                                         {"/a", 0},
                                         {"/a", 99},
                                         {"/a", -1}}) {
    wire::GrantRequest request;
    request.set_path(c.path);
    request.set_mode(static_cast<wire::GrantMode>(c.mode));
    wire::GrantReply reply;
    grpc::ClientContext context;
    EXPECT_EQ(raw()->Grant(&context, request, &reply).error_code(), grpc::StatusCode::INVALID_ARGUMENT)
        << c.path.size() << " " << c.mode;
  }
  wire::GrantRequest request;
  request.set_path(std::string(1 << 20, '/'));
  wire::GrantReply reply;
  grpc::ClientContext context;
  EXPECT_FALSE(raw()->Grant(&context, request, &reply).ok());
  // Not even HTTP: that connection is closed, the door stays open.
  UniqueFd nonsense = connect();
  const std::string bytes(100'000, '\xee');
  (void)!send(nonsense.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  char byte;
  while (recv(nonsense.get(), &byte, 1, 0) > 0) {
  }
  EXPECT_TRUE(asked_.empty());
  EXPECT_TRUE(ControlClient::connect(session_)->grant("/a", mounts::Mode::ro));
}

// A list that the test fills.
class TestQuestions : public Questions {
 public:
  std::vector<Pending> pending() const override {
    std::lock_guard lock(mutex_);
    return all_;
  }
  Result<Approval> answer(std::uint64_t number, Approval answer, std::string_view how) override {
    std::unique_lock lock(mutex_);
    for (auto each = all_.begin(); each != all_.end(); ++each)
      if (each->question.number == number) {
        all_.erase(each);
        answered += std::string(to_string(answer)) + " " + std::string(how);
        lock.unlock();
        tell();
        return answer;
      }
    return fail(ErrorCode::not_found, "no such question");
  }
  std::uint64_t add_listener(std::function<void()> changed) override {
    std::lock_guard lock(listeners_);
    changed_ = std::move(changed);
    return 1;
  }
  void remove_listener(std::uint64_t) override {
    std::lock_guard lock(listeners_);
    changed_ = {};
  }
  void put(std::uint64_t number) {
    {
      std::lock_guard lock(mutex_);
      Question question{.kind = Question::Kind::egress,
                        .session = {},
                        .subject = "example.com:443",
                        .about = "GET /\xff",
                        .text = "the guest wants",
                        .limit = std::chrono::minutes(1)};
      question.number = number;
      question.activity = std::string(100'000, 'x');
      question.bytes_waiting = 7;
      all_.push_back({question, std::chrono::seconds(42)});
    }
    tell();
  }
  std::string answered;

 private:
  void tell() {
    std::lock_guard lock(listeners_);
    if (changed_) changed_();
  }
  mutable std::mutex mutex_, listeners_;
  std::vector<Pending> all_;
  std::function<void()> changed_;
};

TEST_F(ControlTest, QuestionsAreWatchedAndAnswered) {
  TestQuestions questions;
  questions.put(1);
  ControlHandlers handlers;
  handlers.questions = &questions;
  handlers.network = []() -> Result<NetworkView> {
    NetworkView view;
    view.rules.broken = "config.toml:3";
    view.rules.kept.push_back(*policy::parse_rule_argument("example.com", policy::EgressAction::allow));
    view.person = policy::Person::present;
    view.ask_timeout = std::chrono::seconds(5);
    return view;
  };
  auto server = *ControlServer::start(session_, std::move(handlers));
  auto client = ControlClient::connect(session_);
  ASSERT_TRUE(client);
  auto list = client->questions();
  ASSERT_TRUE(list) << list.error().message;
  ASSERT_EQ(list->size(), 1u);
  const auto& [question, left] = list->front();
  EXPECT_EQ(question.id(), "session-1.1");
  EXPECT_EQ(question.subject, "example.com:443");
  EXPECT_EQ(question.about, "GET /\xff");
  EXPECT_EQ(question.activity.size(), 2048u);
  EXPECT_EQ(question.bytes_waiting, 7u);
  EXPECT_EQ(left, std::chrono::seconds(42));

  auto stub = raw();
  grpc::ClientContext context;
  auto stream = stub->WatchQuestions(&context, wire::WatchQuestionsRequest());
  wire::QuestionList seen;
  ASSERT_TRUE(stream->Read(&seen));
  EXPECT_EQ(seen.questions_size(), 1);
  EXPECT_EQ(seen.questions(0).answers_size(), 5);
  questions.put(2);
  while (seen.questions_size() != 2) ASSERT_TRUE(stream->Read(&seen));
  auto answered = client->answer(1, Approval::allow_always);
  ASSERT_TRUE(answered) << answered.error().message;
  EXPECT_EQ(*answered, Approval::allow_always);
  EXPECT_EQ(questions.answered, "allow_always by another program");
  while (seen.questions_size() != 1) ASSERT_TRUE(stream->Read(&seen));
  EXPECT_EQ(client->answer(1, Approval::deny).error().code, ErrorCode::not_found);
  wire::AnswerRequest request;
  request.set_number(2);
  request.set_answer(static_cast<wire::AnswerWord>(99));
  wire::AnswerReply reply;
  grpc::ClientContext nonsense;
  EXPECT_EQ(stub->Answer(&nonsense, request, &reply).error_code(), grpc::StatusCode::INVALID_ARGUMENT);

  auto view = client->network();
  ASSERT_TRUE(view) << view.error().message;
  EXPECT_EQ(view->rules.broken, "config.toml:3");
  EXPECT_EQ(view->rules.kept.at(0).host.text(), "example.com");
  EXPECT_EQ(view->person, policy::Person::present);
  EXPECT_EQ(view->ask_timeout, std::chrono::seconds(5));

  // The end of the session ends who watches.
  server.reset();
  while (stream->Read(&seen)) {
  }
  EXPECT_FALSE(stream->Finish().ok());
}

TEST_F(ControlTest, ASessionThatAsksNothingSaysSo) {
  auto server = start();
  auto client = ControlClient::connect(session_);
  ASSERT_TRUE(client);
  EXPECT_TRUE(client->questions()->empty());
  EXPECT_EQ(client->answer(1, Approval::deny).error().code, ErrorCode::not_found);
  EXPECT_EQ(client->network().error().code, ErrorCode::failed_precondition);
}

// More than may watch, some of them gone without a word.
TEST_F(ControlTest, WatchersComeAndGo) {
  TestQuestions questions;
  ControlHandlers handlers;
  handlers.questions = &questions;
  auto server = *ControlServer::start(session_, std::move(handlers));
  for (int round = 0; round < 5; ++round) {
    std::vector<std::unique_ptr<wire::Session::Stub>> stubs;
    std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
    std::vector<std::unique_ptr<grpc::ClientReader<wire::QuestionList>>> streams;
    for (int i = 0; i < 8; ++i) {
      stubs.push_back(raw());
      contexts.push_back(std::make_unique<grpc::ClientContext>());
      streams.push_back(stubs.back()->WatchQuestions(contexts.back().get(), {}));
    }
    wire::QuestionList list;
    ASSERT_TRUE(streams[0]->Read(&list));
    questions.put(static_cast<std::uint64_t>(round + 1));
    for (auto& context : contexts) context->TryCancel();
    for (auto& stream : streams) (void)stream->Finish();
  }
  EXPECT_EQ(ControlClient::connect(session_)->questions()->size(), 5u);
}

TEST_F(ControlTest, WithoutASessionTheErrorSaysSo) {
  auto nobody = ControlClient::connect(session_);
  ASSERT_FALSE(nobody);
  EXPECT_EQ(nobody.error().code, ErrorCode::failed_precondition);
  auto server = start();
  auto client = ControlClient::connect(session_);
  ASSERT_TRUE(client);
  server.reset();
  EXPECT_FALSE(std::filesystem::exists(socket_path()));
  auto granted = client->grant("/a", mounts::Mode::ro);
  ASSERT_FALSE(granted);
  EXPECT_EQ(granted.error().code, ErrorCode::failed_precondition) << granted.error().message;
}

TEST_F(ControlTest, WhatAKilledSessionLeftIsReplacedAndSweptAway) {
  {
    auto server = start();
    std::filesystem::rename(socket_path(), socket_path().parent_path() / "session-0");
  }
  ASSERT_TRUE(std::filesystem::exists(socket_path().parent_path() / "session-0"));
  auto server = start();
  EXPECT_FALSE(std::filesystem::exists(socket_path().parent_path() / "session-0"));
  auto other = ControlServer::start(SessionId("session-2"), {});
  ASSERT_TRUE(other);
  EXPECT_TRUE(ControlClient::connect(session_)) << "one that lives is not swept away";
}

TEST_F(ControlTest, AnEndAnswersWhatWasAsked) {
  std::promise<void> begun, go_on;
  grant = [&](const auto& path, auto) -> Result<GrantedFolder> {
    begun.set_value();
    go_on.get_future().wait();
    return GrantedFolder{path, "/mnt/late"};
  };
  auto server = start();
  auto answer = std::async(std::launch::async,
                           [&] { return ControlClient::connect(session_)->grant("/a", mounts::Mode::ro); });
  begun.get_future().wait();
  auto ended = std::async(std::launch::async, [&] { server.reset(); });
  go_on.set_value();
  ended.get();
  auto granted = answer.get();
  ASSERT_TRUE(granted) << granted.error().message;
  EXPECT_EQ(granted->guest_path, "/mnt/late");
}

}  // namespace
}  // namespace anchorhold::session
