// Whose credential a request carries, and what a person is asked.
#include <future>

#include "bed.h"

namespace anchorhold::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const std::string secret = "sk-real-secret-of-the-person-42";

class EgressCredential : public EgressBed {
 protected:
  void SetUp() override {
    EgressBed::SetUp();
    if (IsSkipped()) return;
    dns().set("api.example.com", {"44.128.1.1"});
    dns().set("other.example.com", {"44.128.1.2"});
    auto with = rule("api.example.com");
    with.credential = "example";
    allow(with);
    allow(opened("other.example.com"));
    spec().policy.credentials["example"] = {egress::CredentialForm::Kind::bearer, {}, {}};
    host().secret = [this](const egress::SecretRequest& request, auto give) {
      asked_.push_back(request.credential + " " + request.destination.text() + " " + request.method + " " +
                       request.path);
      give(secret);
    };
    api_ = std::make_unique<Site>("44.128.1.1", 443, echo_server("api"), tls("api.example.com"));
    other_ = std::make_unique<Site>("44.128.1.2", 443, echo_server("other"), tls("other.example.com"));
    start();
  }
  void TearDown() override {
    stop();
    EXPECT_THAT(sink().all(), Not(::testing::Contains(HasSubstr(secret))));
  }
  std::string request(const std::string& name, const std::string& head, const std::string& body = {}) {
    Wire wire = connect(name + ":443");
    EXPECT_EQ(wire.connect_tls(door().ca_certificate_pem(), name, {"http/1.1"}), "");
    wire.write(head + body);
    return wire.read_response();
  }
  std::string get(const std::string& name, const std::string& path, const std::string& fields) {
    return request(name, "GET " + path + " HTTP/1.1\r\nHost: " + name + "\r\n" + fields + "\r\n");
  }

  std::vector<std::string> asked_;
  std::unique_ptr<Site> api_, other_;
};

TEST_F(EgressCredential, TheSessionsTokenIsReplacedByTheSecretAndAnEchoOfItIsScrubbed) {
  std::string answer = get("api.example.com", "/v1", "Authorization: Bearer " + session_token + "\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
  // The server says what it got: the secret was there, and stars are what the guest sees of it.
  EXPECT_THAT(answer, HasSubstr("Authorization: Bearer " + std::string(secret.size(), '*')));
  EXPECT_THAT(answer, Not(HasSubstr(secret)));
  EXPECT_THAT(answer, Not(HasSubstr(session_token)));
  EXPECT_THAT(answer, HasSubstr("Accept-Encoding: identity"));
  EXPECT_EQ(asked_, std::vector<std::string>{"example api.example.com:443 GET /v1"});
  EXPECT_TRUE(sink().wait_for("anchorhold.credential.use", "credential.name=example"));
}

TEST_F(EgressCredential, AForeignCredentialIsRefusedWhereverItStands) {
  const std::string token = "Authorization: Bearer " + session_token + "\r\n";
  const std::pair<std::string, std::string> table[] = {
      {"/", "Authorization: Bearer sk-planted-key\r\n"},
      {"/", "Authorization: Basic dXNlcjpwbGFudGVk\r\n"},
      {"/", "X-Api-Key: planted\r\n"},
      {"/", token + "X-Api-Key: planted\r\n"},
      {"/", token + token},
      {"/", token + "Cookie: session=planted\r\n"},
      {"/?api_key=planted", token},
      {"/?a=b&access_token=planted", token},
      {"/", ""},
      {"/" + session_token, token},
  };
  for (const auto& [path, fields] : table)
    EXPECT_THAT(get("api.example.com", path, fields), StartsWith("HTTP/1.1 401")) << path << " " << fields;
  EXPECT_TRUE(asked_.empty());
  EXPECT_EQ(sink().count("anchorhold.credential.reject"), static_cast<int>(std::size(table)));
}

TEST_F(EgressCredential, TheSessionsTokenGoesNowhereElse) {
  EXPECT_THAT(get("other.example.com", "/", "Authorization: Bearer " + session_token + "\r\n"),
              StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(get("other.example.com", "/?x=" + session_token, ""), StartsWith("HTTP/1.1 403"));
  std::string body = "{\"key\": \"" + session_token + "\"}";
  EXPECT_THAT(request("other.example.com",
                      "POST / HTTP/1.1\r\nHost: other.example.com\r\nContent-Length: " +
                          std::to_string(body.size()) + "\r\n\r\n",
                      body),
              HasSubstr("the body holds the session's token"));
  EXPECT_THAT(get("other.example.com", "/", "X-Note: nothing\r\n"), StartsWith("HTTP/1.1 200"));
  EXPECT_TRUE(sink().wait_for("anchorhold.credential.reject", "belongs to another destination"));
}

TEST_F(EgressCredential, ACredentialGoesOverTlsOnly) {
  Wire wire = open();
  wire.write("GET http://api.example.com/ HTTP/1.1\r\nHost: api.example.com\r\nAuthorization: Bearer " +
             session_token + "\r\n\r\n");
  std::string answer = wire.read_response();
  // Nobody listens on port 80 there: whichever comes first, it is refused without the secret.
  EXPECT_THAT(answer, Not(StartsWith("HTTP/1.1 200")));
  EXPECT_TRUE(asked_.empty());
}

class EgressAsking : public EgressBed {
 protected:
  void SetUp() override {
    EgressBed::SetUp();
    if (IsSkipped()) return;
    dns().set("new.example.com", {"44.128.1.1"});
    site_ = std::make_unique<Site>("44.128.1.1", 443, echo_server("new"), tls("new.example.com"));
    spec().policy.rules.unnamed = policy::EgressAction::ask;
    spec().policy.person = policy::Person::present;
    host().ask = [this](const egress::Question& question, auto answer) {
      std::lock_guard lock(mutex_);
      questions_.push_back(question);
      answers_.push_back(std::move(answer));
      changed_.notify_all();
    };
    host().withdrawn = [this](std::uint64_t) {
      std::lock_guard lock(mutex_);
      ++withdrawn_;
      changed_.notify_all();
    };
  }
  void TearDown() override { stop(); }
  // Waits for the question and answers it.
  egress::Question answer_next(egress::Answer given) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(
        changed_.wait_for(lock, std::chrono::seconds(30), [&] { return answers_.size() > answered_; }));
    auto answer = answers_.at(answered_);
    auto question = questions_.at(answered_++);
    lock.unlock();
    answer(given);
    return question;
  }
  std::size_t questions() {
    std::lock_guard lock(mutex_);
    return questions_.size();
  }

  std::unique_ptr<Site> site_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<egress::Question> questions_;
  std::vector<std::function<void(egress::Answer)>> answers_;
  std::size_t answered_ = 0;
  int withdrawn_ = 0;
};

TEST_F(EgressAsking, ParallelRequestsWaitForOneQuestion) {
  start();
  std::vector<std::future<std::string>> said;
  for (int i = 0; i < 10; ++i)
    said.push_back(std::async(std::launch::async, [this] {
      std::string answer;
      Wire wire = connect("new.example.com:443", &answer);
      return answer.substr(0, 12);
    }));
  auto question = answer_next(egress::Answer::session);
  EXPECT_EQ(question.destination.text(), "new.example.com:443");
  EXPECT_EQ(question.reason, "no rule names new.example.com:443");
  for (auto& each : said) EXPECT_EQ(each.get(), "HTTP/1.1 200");
  EXPECT_EQ(questions(), 1u);
  EXPECT_TRUE(sink().wait_for("anchorhold.egress.ask", "new.example.com"));
  EXPECT_TRUE(sink().wait_for("anchorhold.egress.answer", "egress.answer=session"));
  // Known now, without a question, and in what the door says is in force.
  connect("new.example.com:443");
  EXPECT_EQ(questions(), 1u);
  EXPECT_EQ(door().policy().rules.answers.size(), 1u);
}

TEST_F(EgressAsking, OnceIsOnceAndNeverIsNever) {
  start();
  auto ask = [this] {
    return std::async(std::launch::async, [this] {
      std::string answer;
      Wire wire = connect("new.example.com:443", &answer);
      return answer.substr(9, 3);
    });
  };
  auto once = ask();
  answer_next(egress::Answer::once);
  EXPECT_EQ(once.get(), "200");
  auto denied = ask();
  answer_next(egress::Answer::deny);
  EXPECT_EQ(denied.get(), "403");
  auto never = ask();
  answer_next(egress::Answer::never);
  EXPECT_EQ(never.get(), "403");
  EXPECT_EQ(ask().get(), "403") << "and nobody is asked again";
  EXPECT_EQ(questions(), 3u);
}

TEST_F(EgressAsking, NoAnswerInTimeIsADenial) {
  spec().policy.ask_timeout = std::chrono::milliseconds(200);
  start();
  EXPECT_THAT(refused_connect("new.example.com:443"), HasSubstr("nobody answered in time"));
  std::unique_lock lock(mutex_);
  EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(30), [&] { return withdrawn_ == 1; }));
  lock.unlock();
  answers_.at(0)(egress::Answer::session);  // too late
  EXPECT_THAT(refused_connect("new.example.com:443"), HasSubstr("nobody answered in time"));
}

TEST_F(EgressAsking, WithoutAPersonNothingIsAsked) {
  spec().policy.person = policy::Person::absent;
  start();
  EXPECT_THAT(refused_connect("new.example.com:443"), HasSubstr("nobody is there to answer"));
  EXPECT_EQ(questions(), 0u);
}

TEST_F(EgressAsking, ARequestToTheProxyTellsItsMethodAndPath) {
  start();
  auto said = std::async(std::launch::async, [this] {
    Wire wire = open();
    wire.write(
        "POST http://new.example.com/v1/x?secret=1 HTTP/1.1\r\nHost: new.example.com\r\n"
        "Content-Length: 5\r\n\r\nhello");
    return wire.read_response();
  });
  auto question = answer_next(egress::Answer::deny);
  EXPECT_EQ(question.method, "POST");
  EXPECT_EQ(question.path, "/v1/x");
  EXPECT_EQ(question.bytes_waiting, 5u);
  EXPECT_THAT(said.get(), StartsWith("HTTP/1.1 403"));
}

}  // namespace
}  // namespace anchorhold::testing
