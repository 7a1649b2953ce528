#include "egress/git.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

namespace anchorhold::egress {
namespace {

using policy::GitOperation;
using ::testing::HasSubstr;
using namespace std::string_literals;

RequestHead head_of(const std::string& text) {
  auto parsed = parse_request_head(text, 443);
  EXPECT_TRUE(parsed && *parsed) << text;
  return (*parsed)->head;
}

RequestHead get(const std::string& target, const std::string& fields = "") {
  return head_of("GET " + target + " HTTP/1.1\r\nHost: git.example.com\r\n" + fields + "\r\n");
}

RequestHead post(const std::string& path, const std::string& service, const std::string& fields = "") {
  return head_of("POST " + path +
                 " HTTP/1.1\r\nHost: git.example.com\r\nContent-Length: 4\r\nContent-Type: "
                 "application/x-" +
                 service + "-request\r\n" + fields + "\r\n");
}

TEST(GitRequest, SmartHttpIsReadAsRepositoryAndOperation) {
  struct Case {
    RequestHead head;
    std::string repository;
    GitOperation operation;
    bool commands = false, gzip = false;
  };
  const std::string up = "git-upload-pack", receive = "git-receive-pack";
  for (const auto& c : std::vector<Case>{
           {get("/team/app/info/refs?service=git-upload-pack"), "team/app", GitOperation::fetch},
           {get("/team/app.git/info/refs?service=git-upload-pack", "Git-Protocol: version=2\r\n"), "team/app",
            GitOperation::fetch},
           {get("/app.git/info/refs?service=git-receive-pack"), "app", GitOperation::push},
           {get("/a%20b/%c3%bc.git/info/refs?service=git-receive-pack"), "a b/\xc3\xbc", GitOperation::push},
           {get("/%61pp/info/refs?service=git-upload-pack"), "app", GitOperation::fetch},
           {post("/team/app.git/git-upload-pack", up, "Content-Encoding: gzip\r\n"), "team/app",
            GitOperation::fetch, false, true},
           {post("/team/app.git/git-receive-pack", receive), "team/app", GitOperation::push, true},
           {post("/team/app.git/git-receive-pack", receive, "Git-Protocol: version=1\r\n"), "team/app",
            GitOperation::push, true},
           {post("/team/app.git/info/lfs/objects/batch", "git-lfs"), "team/app", GitOperation::lfs},
           {get("/team/app/info/lfs/locks?limit=1"), "team/app", GitOperation::lfs},
       }) {
    auto request = git_request(c.head);
    ASSERT_TRUE(request) << c.head.path << ": " << request.error().message;
    EXPECT_EQ(request->repository, c.repository) << c.head.path;
    EXPECT_EQ(request->operation, c.operation) << c.head.path;
    EXPECT_EQ(request->carries_commands, c.commands) << c.head.path;
    EXPECT_EQ(request->gzip, c.gzip) << c.head.path;
  }
}

TEST(GitRequest, EverythingElseIsRefused) {
  const std::string up = "git-upload-pack", receive = "git-receive-pack";
  for (const auto& head : std::vector<RequestHead>{
           get("/"),
           get("/team/app"),
           get("/team/app/info/refs"),
           get("/team/app/info/refs?service=git-upload-archive"),
           get("/team/app/info/refs?service=git-upload-pack&x=1"),
           get("/team/app/info/refs?x=1&service=git-upload-pack"),
           get("/team/app/info/refs?service=git-upload%2dpack"),
           get("/team/app/HEAD"),
           get("/team/app/objects/info/packs"),
           get("/info/refs?service=git-upload-pack"),
           get("//info/refs?service=git-upload-pack"),
           get("/.git/info/refs?service=git-upload-pack"),
           get("/team//app/info/refs?service=git-upload-pack"),
           get("/team/app//info/refs?service=git-upload-pack"),
           get("/team/./app/info/refs?service=git-upload-pack"),
           get("/team/x/../app/info/refs?service=git-upload-pack"),
           get("/team/%2e%2e/app/info/refs?service=git-upload-pack"),
           get("/team%2fapp/info/refs?service=git-upload-pack"),
           get("/team%5capp/info/refs?service=git-upload-pack"),
           get("/team%00/app/info/refs?service=git-upload-pack"),
           get("/team/%252e/app/info/refs?service=git-upload-pack"),
           get("/team/%zz/info/refs?service=git-upload-pack"),
           get("/team/app%2/info/refs?service=git-upload-pack"),
           get("/team/app.git/sub/info/refs?service=git-upload-pack"),
           get("/team/app/info/lfs/x/info/refs?service=git-upload-pack"),
           get("/team/git-receive-pack/x/info/refs?service=git-upload-pack"),
           get("/team/app/info/lfs/../../other"),
           get("/team/app/git-upload-pack"),
           get("/app/info/refs?service=git-upload-pack", "Connection: upgrade\r\nUpgrade: websocket\r\n"),
           post("/app/info/refs?service=git-upload-pack", up),
           post("/app/git-upload-pack?x", up),
           post("/app/git-upload-pack", receive),
           post("/app/git-receive-pack", up),
           post("/app/git-receive-pack", receive, "Content-Type: text/plain\r\n"),
           post("/app/git-receive-pack", receive, "Content-Encoding: br\r\n"),
           post("/app/git-receive-pack", receive, "Content-Encoding: gzip\r\nContent-Encoding: gzip\r\n"),
           post("/app/git-receive-pack", receive, "Git-Protocol: version=2\r\n"),
           post("/app/git-upload-archive", "git-upload-archive"),
       }) {
    auto request = git_request(head);
    EXPECT_FALSE(request) << head.method << " " << head.path << "?" << head.query << " "
                          << request->repository;
  }
}

const std::string zero(40, '0'), one(40, '1'), two(40, '2');

std::string line(const std::string& payload) {
  return fmt::format("{:04x}{}", payload.size() + 4, payload);
}
std::string command(const std::string& from, const std::string& to, const std::string& ref,
                    const std::string& capabilities = "") {
  return line(from + " " + to + " " + ref + (capabilities.empty() ? "" : "\0"s + capabilities));
}
const std::string caps = " report-status side-band-64k agent=git/2.39.5";

std::string compressed(const std::string& text) {
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(text.size() + 1000, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

// Empty when it could be read; otherwise why not.
std::string read(const std::string& body, bool gzip, std::size_t piece, GitPush& push) {
  GitPushReader reader(gzip);
  for (std::size_t at = 0; at < body.size(); at += piece) {
    auto whole = reader.take(std::string_view(body).substr(at, piece));
    if (!whole) return whole.error().message;
    push = reader.push();
    if (*whole) return {};
  }
  auto ended = reader.end();
  return ended ? std::string() : ended.error().message;
}

TEST(GitPush, CommandsAreReadHoweverTheyAreCut) {
  const std::string body = line("shallow " + one) +
                           command(zero, one, "refs/heads/agent/new", caps + " push-options atomic quiet") +
                           command(one, two, "refs/heads/agent/old\n") +
                           command(two, zero, "refs/tags/gone") + "0000" + line("ci.skip") +
                           line("ci.variable=X\n") + "0000" + "PACK, and whatever";
  for (bool gzip : {false, true}) {
    for (std::size_t piece : {std::size_t{1}, std::size_t{3}, std::size_t{64}, body.size()}) {
      GitPush push;
      ASSERT_EQ(read(gzip ? compressed(body) : body, gzip, piece, push), "") << piece;
      ASSERT_EQ(push.commands.size(), 3u);
      EXPECT_EQ(text_of_refs(push),
                "create refs/heads/agent/new, update refs/heads/agent/old, delete refs/tags/gone");
      EXPECT_EQ(push.options, (std::vector<std::string>{"ci.skip", "ci.variable=X"}));
      EXPECT_TRUE(push.report_status && push.side_band);
    }
  }
  GitPush push;
  EXPECT_EQ(read("0000", false, 4, push), "") << "the probe of a client that has much to send";
  const std::string id256(64, 'a'), zero256(64, '0');
  EXPECT_EQ(
      read(command(zero256, id256, "refs/heads/x", " object-format=sha256") + "0000", false, 1000, push), "");
}

TEST(GitPush, WhatCannotBeJudgedIsRefused) {
  const std::string good = command(zero, one, "refs/heads/a", caps);
  const std::pair<std::string, std::string> table[] = {
      {"", "ended before"},
      {"00", "ended before"},
      {"0000more", "no commands, and more"},
      {good, "ended before"},
      {good.substr(0, 50), "ended before"},
      {"0001", "does not belong"},
      {"0002", "does not belong"},
      {"0004", "does not belong"},
      {good + "0001", "does not belong"},
      {"zzzz", "not made of Git's lines"},
      {"PACK", "not made of Git's lines"},
      {"-001", "not made of Git's lines"},
      {"fff1" + std::string(70000, 'x'), "not made of Git's lines"},
      {"00AB" + std::string(300, 'x'), "not made of Git's lines"},
      {line("push-cert\0 report-status"s), "signed pushes"},
      {line("hello"), "malformed command"},
      {command(zero, one, "refs/heads/a", " report-status object-format=sha256"), "cannot be judged"},
      {command(zero, one, "refs/heads/a", " new-thing"), "'new-thing', which is not known"},
      {command(zero, one, "refs/heads/a", " push-cert=nonce"), "cannot be judged"},
      {command(zero, one, "refs/heads/a", " quiet\0atomic"s), "a second NUL"},
      {good + command(zero, one, "refs/heads/b", " quiet"), "a NUL where"},
      {good + line("shallow " + one), "malformed line about"},
      {line("shallow 12"), "malformed line about"},
      {line("shallow " + one) + "0000", "no commands"},
      {command(zero, zero, "refs/heads/a"), "malformed command"},
      {command(one.substr(1), one, "refs/heads/a"), "malformed command"},
      {command(one, one + "1", "refs/heads/a"), "malformed command"},
      {command(std::string(40, 'A'), one, "refs/heads/a"), "malformed command"},
      {line(zero + "  " + one + " refs/heads/a"), "malformed command"},
      {command(zero, one, "HEAD"), "no name of a ref"},
      {command(zero, one, " refs/heads/a"), "no name of a ref"},
      {command(zero, one, "refs/heads/a..b"), "no name of a ref"},
      {command(zero, one, "refs/heads/a\nb"), "no name of a ref"},
      {command(zero, one, "refs/heads/a", " push-options") + "0000" + line("a\0b"s),
       "push option with a NUL"},
      {command(zero, one, "refs/heads/a", " push-options") + "0000", "ended before"},
  };
  for (const auto& [body, reason] : table)
    for (std::size_t piece : {std::size_t{1}, std::size_t{100'000}}) {
      GitPush push;
      EXPECT_THAT(read(body, false, piece, push), HasSubstr(reason)) << body.substr(0, 200);
    }
}

TEST(GitPush, HugeOrCompressedNonsenseIsBounded) {
  std::string many;
  for (int i = 0; i < 3000; ++i) many += command(zero, one, "refs/heads/agent/" + std::to_string(i));
  GitPush push;
  EXPECT_THAT(read(many + "0000", false, 65536, push), HasSubstr("too many refs at once"));
  EXPECT_THAT(read(compressed(many + "0000"), true, 65536, push), HasSubstr("too many refs at once"));
  const std::string good = command(zero, one, "refs/heads/a") + "0000";
  EXPECT_THAT(read(good, true, 1000, push), HasSubstr("cannot be read"));
  EXPECT_THAT(read(compressed(good.substr(0, 20)) + good, true, 1000, push), HasSubstr("something follows"));
  EXPECT_THAT(read(compressed(good.substr(0, 20)), true, 1000, push), HasSubstr("ended before"));
  EXPECT_EQ(read(compressed(good + std::string(20'000'000, '\0')), true, 65536, push), "");
}

TEST(GitPush, AChunkedBodyIsLookedAtWhereItStands) {
  const std::string commands = command(zero, one, "refs/heads/a", caps) + "0000";
  std::string chunked;
  for (char c : commands) chunked += std::string("1\r\n") + c + "\r\n";
  HeldPush held({BodyFraming::Kind::chunked, 0}, false);
  for (std::size_t size = 0; size < chunked.size(); ++size) {
    auto whole = held.look(chunked.substr(0, size));
    ASSERT_TRUE(whole) << whole.error().message;
    if (*whole) {
      EXPECT_GE(size, chunked.size() - 2);
      break;
    }
  }
  EXPECT_EQ(held.push().commands.size(), 1u);
  HeldPush probe({BodyFraming::Kind::length, 4}, false);
  EXPECT_EQ(probe.look("00"), false);
  EXPECT_EQ(probe.look("0000GET / HTTP/1.1"), true) << "what follows is another request's";
  HeldPush cut({BodyFraming::Kind::chunked, 0}, false);
  EXPECT_FALSE(cut.look("5\r\n00000\r\n0\r\n\r\n"));
  HeldPush none({BodyFraming::Kind::none, 0}, false);
  EXPECT_FALSE(none.look(""));
}

TEST(GitPush, EachRefIsHeldAgainstTheGrant) {
  using enum GitOperation;
  const std::vector<policy::GitGrant> grants{
      {{"team/*"}, {fetch}, {}, {}},
      {{"team/app"}, {fetch, push}, {"refs/heads/agent/*", "refs/tags/agent-*"}, {"ci.skip"}},
      {{"team/pages"}, {push, deletes}, {"refs/heads/preview"}, {}},
  };
  struct Case {
    std::string body, repository, reason;
  };
  const std::string with_options = " report-status push-options";
  for (const auto& c : std::vector<Case>{
           {command(zero, one, "refs/heads/agent/x"), "team/app", ""},
           {command(one, two, "refs/tags/agent-1"), "team/app", ""},
           {command(one, two, "refs/heads/main"), "team/app",
            "a push to team/app may change refs/heads/agent/*, refs/tags/agent-*, not refs/heads/main"},
           {command(zero, one, "refs/heads/agent/x") + command(one, two, "refs/heads/main"), "team/app",
            "not refs/heads/main"},
           {command(one, zero, "refs/heads/agent/x"), "team/app", "may not delete refs/heads/agent/x"},
           {command(one, zero, "refs/heads/preview"), "team/pages", ""},
           {command(one, zero, "refs/heads/agent/x"), "team/pages", "not refs/heads/agent/x"},
           {command(one, two, "refs/heads/preview"), "team/app", "not refs/heads/preview"},
           {command(one, two, "refs/heads/preview") + command(one, two, "refs/heads/preview"), "team/pages",
            "stands twice"},
           {command(zero, one, "refs/heads/agent/x", with_options) + "0000" + line("ci.skip"), "team/app",
            ""},
           {command(zero, one, "refs/heads/agent/x", with_options) + "0000" + line("merge.main"), "team/app",
            "the push option 'merge.main' is not allowed"},
           {command(zero, one, "refs/heads/preview", with_options) + "0000" + line("ci.skip"), "team/pages",
            "the push option 'ci.skip' is not allowed"},
       }) {
    GitPush push;
    ASSERT_EQ(read(c.body + "0000", false, 100'000, push), "");
    auto judgement = judge_git_push(push, c.repository, grants);
    EXPECT_EQ(judgement.allowed(), c.reason.empty()) << judgement.reason;
    EXPECT_THAT(judgement.reason, HasSubstr(c.reason));
  }
}

TEST(GitPush, TheAnswerNamesWhatIsRefusedAndWhatIsNotSent) {
  GitPush push;
  ASSERT_EQ(
      read(command(zero, one, "refs/heads/agent/x", caps) + command(one, two, "refs/heads/main") + "0000",
           false, 100'000, push),
      "");
  auto judgement = judge_git_push(push, "app", {{{"app"}, {GitOperation::push}, {"refs/heads/agent/*"}, {}}});
  const std::string report = line("unpack ok\n") +
                             line("ng refs/heads/agent/x not sent, since the push as a whole is refused\n") +
                             line("ng refs/heads/main not allowed\n") + "0000";
  EXPECT_EQ(git_push_report(push, judgement, "why"), line("\2why\n") + line("\1" + report) + "0000");
  push.side_band = false;
  EXPECT_EQ(git_push_report(push, judgement, "why"), report);
  push.report_status = false;
  EXPECT_EQ(git_push_report(push, judgement, "why"), "");
}

}  // namespace
}  // namespace anchorhold::egress
