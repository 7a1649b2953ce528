// Git over HTTPS through an opened connection: real clients, a real server, both versions of HTTP.
#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>

#include "bed.h"
#include "git_server.h"

namespace anchorhold::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

const std::string host_name = "git.example.com";

policy::EgressRule git_rule() {
  using enum policy::GitOperation;
  auto made = rule(host_name);
  made.git = {{{"team/*"}, {fetch}, {}, {}},
              {{"team/app"}, {fetch, push}, {"refs/heads/agent/*", "refs/tags/agent-*"}, {"ci.skip"}},
              {{"team/pages"}, {fetch, push, deletes, lfs}, {"refs/heads/*"}, {}}};
  return made;
}

// The parameter is the version of HTTP that both the client and the server speak.
class EgressGit : public EgressBed, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    EgressBed::SetUp();
    if (IsSkipped()) return;
    folder_ = *TemporaryDirectory::create("git");
    server_ = std::make_unique<GitServer>(folder_->path() / "served");
    for (const char* repository : {"team/app", "team/pages", "other/private"}) make_repository(repository);
    dns().set(host_name, {"44.128.1.1"});
    bool second = GetParam() == std::string("HTTP/2");
    site_ = std::make_unique<Site>(
        "44.128.1.1", 443,
        [this, second](Wire& wire) {
          if (!second) return server_->serve_http1(wire);
          Http2Peer peer(wire, true);
          peer.serve([this](const Http2Message& request) { return server_->serve_http2(request); });
        },
        tls(host_name, {second ? "h2" : "http/1.1"}));
  }
  void TearDown() override {
    port_.reset();
    stop();
  }
  void begin(policy::EgressRule with) {
    allow(std::move(with));
    start();
    port_ = std::make_unique<ProxyPort>(door());
    ca_ = file("session-ca.pem", door().ca_certificate_pem());
  }

  std::filesystem::path served(const std::string& repository) const {
    return folder_->path() / "served" / (repository + ".git");
  }
  std::filesystem::path work(const std::string& name) const { return folder_->path() / name; }

  GitResult local(std::vector<std::string> arguments) {
    return run_git(folder_->path(), std::move(arguments));
  }
  void must(std::vector<std::string> arguments) {
    auto result = local(arguments);
    ASSERT_TRUE(result.ok) << ::testing::PrintToString(arguments) << result.output;
  }
  // As a guest does it, through the proxy.
  GitResult guest(std::vector<std::string> arguments) {
    return run_git(folder_->path(), std::move(arguments),
                   {"https_proxy=" + port_->url(), "GIT_SSL_CAINFO=" + ca_.string(), "GIT_CONFIG_COUNT=2",
                    "GIT_CONFIG_KEY_0=http.version", std::string("GIT_CONFIG_VALUE_0=") + GetParam(),
                    "GIT_CONFIG_KEY_1=core.compression", "GIT_CONFIG_VALUE_1=0"});
  }
  GitResult in_clone(std::vector<std::string> arguments) {
    std::vector<std::string> all{"-C", work("clone").string()};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return guest(std::move(all));
  }
  void commit(const std::string& name, const std::string& content) {
    std::ofstream(work("clone") / name, std::ios::binary) << content;
    must({"-C", work("clone").string(), "add", name});
    must({"-C", work("clone").string(), "commit", "-q", "-m", "Add " + name});
  }
  void make_repository(const std::string& name) {
    auto bare = served(name), seed = work("seed");
    must({"init", "-q", "-b", "main", "--bare", bare.string()});
    must({"init", "-q", "-b", "main", seed.string()});
    std::ofstream(seed / "README") << name << "\n";
    must({"-C", seed.string(), "add", "README"});
    must({"-C", seed.string(), "commit", "-q", "-m", "Begin"});
    must({"-C", seed.string(), "push", "-q", bare.string(), "main"});
    std::filesystem::remove_all(seed);
  }
  std::string refs_of(const std::string& repository) {
    return local({"-C", served(repository).string(), "for-each-ref", "--format=%(refname)"}).output;
  }
  std::string url(const std::string& repository) { return "https://" + host_name + "/" + repository; }
  void clone(const std::string& repository = "team/app") {
    auto cloned = guest({"clone", "-q", url(repository), work("clone").string()});
    ASSERT_TRUE(cloned.ok) << cloned.output;
  }

  std::optional<TemporaryDirectory> folder_;
  std::unique_ptr<GitServer> server_;
  std::unique_ptr<Site> site_;
  std::unique_ptr<ProxyPort> port_;
  std::filesystem::path ca_;
};

INSTANTIATE_TEST_SUITE_P(Versions, EgressGit, ::testing::Values("HTTP/1.1", "HTTP/2"),
                         [](const auto& version) {
                           return std::string(version.param) == "HTTP/2" ? "Http2" : "Http1";
                         });

TEST_P(EgressGit, WhatIsGrantedWorksAsEverywhere) {
  begin(git_rule());
  clone("team/app.git");
  EXPECT_THAT(server_->requests().at(0), HasSubstr(GetParam()));
  commit("one", "1");
  auto pushed = in_clone({"push", "origin", "HEAD:agent/one"});
  EXPECT_TRUE(pushed.ok) << pushed.output;
  EXPECT_THAT(refs_of("team/app"), HasSubstr("refs/heads/agent/one"));
  EXPECT_TRUE(sink().wait_for("anchorhold.egress.allow", "git.operation=fetch git.repository=team/app"));
  EXPECT_TRUE(sink().wait_for("anchorhold.egress.allow", "git.refs=create refs/heads/agent/one"));

  must({"-C", work("clone").string(), "commit", "-q", "--amend", "-m", "Anew"});
  EXPECT_FALSE(in_clone({"push", "origin", "HEAD:agent/one"}).ok) << "the server's own refusal";
  for (std::vector<std::string> arguments : std::vector<std::vector<std::string>>{
           {"push", "--force", "origin", "HEAD:agent/one"},
           {"push", "--atomic", "origin", "HEAD:agent/two", "HEAD:agent/three"},
           {"push", "-o", "ci.skip", "origin", "HEAD:agent/four"},
           {"push", "origin", "HEAD:refs/tags/agent-1"},
           {"-c", "protocol.version=0", "push", "origin", "HEAD:agent/five"},
           {"-c", "protocol.version=1", "push", "origin", "HEAD:agent/six"},
           {"-c", "http.postBuffer=1", "push", "origin", "HEAD:agent/seven"},
           {"fetch", "origin"},
           {"-c", "protocol.version=0", "fetch", "origin"},
           {"-c", "protocol.version=1", "ls-remote", "origin"}}) {
    auto result = in_clone(arguments);
    EXPECT_TRUE(result.ok) << ::testing::PrintToString(arguments) << result.output;
  }
  for (const char* name : {"two", "three", "four", "five", "six", "seven"})
    EXPECT_THAT(refs_of("team/app"), HasSubstr(std::string("refs/heads/agent/") + name + "\n"));
  EXPECT_THAT(refs_of("team/app"), HasSubstr("refs/tags/agent-1"));
  auto shallow = guest({"clone", "-q", "--depth", "1", url("team/app"), work("shallow").string()});
  EXPECT_TRUE(shallow.ok) << shallow.output;
  auto partial = guest({"clone", "-q", "--filter=blob:none", url("team/app"), work("partial").string()});
  EXPECT_TRUE(partial.ok) << partial.output;
  // From the shallow one, too, whose push begins with lines of its own.
  must({"-C", work("shallow").string(), "commit", "-q", "--allow-empty", "-m", "Shallow"});
  auto from_shallow = guest({"-C", work("shallow").string(), "push", "origin", "HEAD:agent/shallow"});
  EXPECT_TRUE(from_shallow.ok) << from_shallow.output;
  std::filesystem::remove_all(work("clone"));
  clone("team/pages");
  auto gone = in_clone({"push", "origin", "HEAD:refs/heads/draft", "HEAD:refs/heads/keep"});
  EXPECT_TRUE(gone.ok) << gone.output;
  gone = in_clone({"push", "--delete", "origin", "draft"});
  EXPECT_TRUE(gone.ok) << gone.output;
  EXPECT_EQ(refs_of("team/pages"), "refs/heads/keep\nrefs/heads/main\n");
  EXPECT_TRUE(sink().wait_for("anchorhold.egress.allow", "git.refs=delete refs/heads/draft"));
}

TEST_P(EgressGit, APushOfAnythingElseIsRefusedInWordsThatGitShows) {
  begin(git_rule());
  clone();
  commit("one", "1");
  ASSERT_TRUE(in_clone({"push", "-q", "origin", "HEAD:agent/there"}).ok);
  const std::string before = refs_of("team/app");
  server_->forget();

  auto main = in_clone({"push", "origin", "HEAD:main"});
  EXPECT_FALSE(main.ok);
  EXPECT_THAT(main.output,
              HasSubstr("remote: anchorhold: a push to team/app may change refs/heads/agent/*, "
                        "refs/tags/agent-*, not refs/heads/main, by the rule for git.example.com "
                        "(test)"));
  EXPECT_THAT(main.output, HasSubstr("! [remote rejected] HEAD -> main (not allowed)"));
  EXPECT_THAT(main.output, HasSubstr("remote: This is decided outside of this machine."));
  EXPECT_TRUE(sink().wait_for("anchorhold.egress.deny", "git.refs=update refs/heads/main"));

  auto mixed = in_clone({"push", "origin", "HEAD:agent/good", "HEAD:main"});
  EXPECT_FALSE(mixed.ok);
  EXPECT_THAT(mixed.output, HasSubstr("HEAD -> agent/good (not sent, since the push as a whole is refused)"));
  EXPECT_THAT(mixed.output, HasSubstr("HEAD -> main (not allowed)"));

  struct Case {
    std::vector<std::string> arguments;
    std::string reason;
  };
  for (const auto& c : std::vector<Case>{
           {{"push", "--force", "origin", "HEAD:main"}, "not refs/heads/main"},
           {{"push", "--delete", "origin", "agent/there"}, "may not delete refs/heads/agent/there"},
           {{"push", "--delete", "origin", "main"}, "not refs/heads/main"},
           {{"push", "--atomic", "origin", "HEAD:agent/x", "HEAD:refs/tags/v1"}, "not refs/tags/v1"},
           {{"push", "--mirror", "origin"}, "! [remote rejected] main -> main (not allowed)"},
           {{"push", "-o", "merge_request.create", "origin", "HEAD:agent/x"},
            "push option 'merge_request.create' is not allowed for team/app"},
           {{"-c", "http.postBuffer=1", "push", "origin", "HEAD:main"}, "not refs/heads/main"},
           {{"-c", "protocol.version=0", "push", "origin", "HEAD:main"}, "not refs/heads/main"}}) {
    auto result = in_clone(c.arguments);
    EXPECT_FALSE(result.ok) << ::testing::PrintToString(c.arguments);
    EXPECT_THAT(result.output, HasSubstr("remote: anchorhold: ")) << result.output;
    EXPECT_THAT(result.output, HasSubstr(c.reason)) << result.output;
  }
  EXPECT_EQ(refs_of("team/app"), before);
  for (const auto& request : server_->requests()) {
    bool push = request.starts_with("POST /team/app/git-receive-pack ");
    EXPECT_TRUE(!push || request.find("pack 4 HTTP") != std::string::npos)
        << request << ": nothing of a push goes on but the question beforehand";
  }

  auto other = guest({"clone", url("other/private"), work("other").string()});
  EXPECT_FALSE(other.ok);
  EXPECT_THAT(other.output, HasSubstr("remote: anchorhold: it is not allowed to fetch from the repository "
                                      "other/private, by the rule for git.example.com (test)"));
  must({"-C", work("clone").string(), "remote", "add", "read-only", url("team/site")});
  auto read_only = in_clone({"push", "read-only", "HEAD:agent/x"});
  EXPECT_FALSE(read_only.ok);
  EXPECT_THAT(read_only.output,
              HasSubstr("remote: anchorhold: it is not allowed to push to the repository team/site"));
  auto dumb = run_git(folder_->path(), {"ls-remote", url("team/app")},
                      {"https_proxy=" + port_->url(), "GIT_SSL_CAINFO=" + ca_.string(), "GIT_SMART_HTTP=0"});
  EXPECT_FALSE(dumb.ok);
  EXPECT_THAT(dumb.output, HasSubstr("only Git's smart HTTP is allowed"));
}

TEST_P(EgressGit, HundredsOfMegabytesPassInLittleMemory) {
  begin(git_rule());
  // Random content, so that nothing becomes smaller on its way.
  auto seed = work("seed");
  must({"init", "-q", "-b", "main", seed.string()});
  must({"-C", seed.string(), "config", "core.compression", "0"});
  std::mt19937_64 random(7);
  for (int part = 0; part < 3; ++part) {
    std::string content(100'000'000, '\0');
    for (std::size_t at = 0; at + 8 <= content.size(); at += 8) {
      auto word = random();
      std::memcpy(content.data() + at, &word, 8);
    }
    std::ofstream(seed / ("part" + std::to_string(part)), std::ios::binary) << content;
    must({"-C", seed.string(), "add", "."});
    must({"-C", seed.string(), "commit", "-q", "-m", "Much"});
  }
  must({"clone", "-q", "--bare", seed.string(), served("team/big").string()});
  std::filesystem::remove_all(seed);
  auto peak = [this] {
    std::ifstream status("/proc/" + std::to_string(door().pid()) + "/status");
    for (std::string line; std::getline(status, line);)
      if (line.starts_with("VmHWM:")) return std::stol(line.substr(6));
    return 0L;
  };
  auto little = guest({"ls-remote", url("team/app")});
  ASSERT_TRUE(little.ok) << little.output;
  long before = peak();
  ASSERT_GT(before, 0);
  clone("team/big");
  auto pushed = in_clone({"push", url("team/app"), "HEAD:refs/heads/agent/big"});
  EXPECT_TRUE(pushed.ok) << pushed.output;
  EXPECT_THAT(refs_of("team/app"), HasSubstr("refs/heads/agent/big"));
  auto refused = in_clone({"push", url("team/pages"), "HEAD~2:refs/notes/big"});
  EXPECT_FALSE(refused.ok);
  EXPECT_THAT(refused.output, HasSubstr("! [remote rejected] HEAD~2 -> refs/notes/big (not allowed)"));
  std::size_t largest = 0;
  for (const auto& request : server_->requests())
    if (request.starts_with("POST /team/app/git-receive-pack "))
      largest = std::max<std::size_t>(largest, std::stoul(request.substr(31)));
  EXPECT_GT(largest, 300'000'000u);
  EXPECT_LT(peak() - before, 24 * 1024) << "KiB; it was " << before;
}

TEST_P(EgressGit, TheSecretIsSentOnlyWhereTheGrantAllowsAndThePersonIsAskedForNothing) {
  auto with = git_rule();
  with.credential = "forge";
  spec().policy.credentials["forge"] = {egress::CredentialForm::Kind::basic, {}, "robot"};
  std::mutex mutex;
  std::vector<std::string> asked;
  host().secret = [&](const egress::SecretRequest& request, auto give) {
    std::lock_guard lock(mutex);
    asked.push_back(request.method + " " + request.path);
    give("s3cret-of-the-forge");
  };
  begin(std::move(with));
  server_->require("Basic cm9ib3Q6czNjcmV0LW9mLXRoZS1mb3JnZQ==");
  auto without = guest({"clone", url("team/app"), work("none").string()});
  EXPECT_FALSE(without.ok);
  EXPECT_THAT(without.output, HasSubstr("could not read Username")) << "git was asked to authenticate";
  const std::string known = "https://agent:" + session_token + "@" + host_name + "/team/app";
  auto cloned = guest({"clone", "-q", known, work("clone").string()});
  ASSERT_TRUE(cloned.ok) << cloned.output;
  commit("one", "1");
  auto pushed = in_clone({"push", "origin", "HEAD:agent/one"});
  EXPECT_TRUE(pushed.ok) << pushed.output;
  {
    std::lock_guard lock(mutex);
    asked.clear();
  }
  auto refused = in_clone({"push", "origin", "HEAD:main"});
  EXPECT_FALSE(refused.ok);
  EXPECT_THAT(refused.output, HasSubstr("not refs/heads/main"));
  {
    std::lock_guard lock(mutex);
    EXPECT_THAT(asked, Not(Contains(StartsWith("POST")))) << "no secret for a push that is refused";
  }
  auto planted = guest({"ls-remote", "https://agent:somebody-elses@" + host_name + "/team/app"});
  EXPECT_FALSE(planted.ok);
  EXPECT_TRUE(sink().wait_for("anchorhold.credential.reject", "not this session's"));
  EXPECT_FALSE(
      guest({"ls-remote", "https://agent:" + session_token + "@" + host_name + "/other/private"}).ok);
  stop();
  EXPECT_THAT(sink().all(), Not(Contains(HasSubstr("s3cret-of-the-forge"))));
}

// Requests that no client sends, and some that clients send only sometimes.
class EgressGitWire : public EgressGit {
 protected:
  void SetUp() override {
    EgressGit::SetUp();
    if (!IsSkipped()) begin(git_rule());
  }
  Wire inside() {
    Wire wire = connect(host_name + ":443");
    EXPECT_EQ(wire.connect_tls(door().ca_certificate_pem(), host_name, {"http/1.1"}), "");
    return wire;
  }
  static std::string line(const std::string& payload) {
    char digits[5];
    std::snprintf(digits, sizeof digits, "%04zx", payload.size() + 4);
    return digits + payload;
  }
  static std::string push_to(const std::string& ref, const std::string& capabilities) {
    return line(std::string(40, '0') + " " + std::string(40, '1') + " " + ref + '\0' + capabilities) + "0000";
  }
  static std::string post(const std::string& fields, const std::string& path = "/team/app/git-receive-pack") {
    return "POST " + path + " HTTP/1.1\r\nHost: " + host_name +
           "\r\nContent-Type: application/x-git-receive-pack-request\r\n" + fields + "\r\n";
  }
  static std::string post_of(const std::string& body) {
    return post("Content-Length: " + std::to_string(body.size()) + "\r\n") + body;
  }
  std::string said(const std::string& bytes) {
    Wire wire = inside();
    wire.write(bytes);
    return wire.read_response();
  }
};
INSTANTIATE_TEST_SUITE_P(Versions, EgressGitWire, ::testing::Values("HTTP/1.1"),
                         [](const auto&) { return "Http1"; });

TEST_P(EgressGitWire, SpellingsOfOtherRepositoriesAreRefused) {
  for (const char* path :
       {"/other/private", "/team/../other/private", "/team/./app", "/team//app", "//team/app", "/Team/app",
        "/team%2fapp", "/team/%2e%2e/other/private", "/team/app/../../other/private", "/team%5c..%5cother",
        "/team/%252e%252e/other", "/team/app.git/sub", "/team/app.GIT/../x", "/team/app%00", "/teams/app",
        "/team/.git", "/team/app/info/refs"}) {
    std::string target = std::string(path) + "/info/refs?service=git-upload-pack";
    EXPECT_THAT(said("GET " + target + " HTTP/1.1\r\nHost: " + host_name + "\r\n\r\n"),
                StartsWith("HTTP/1.1 403"))
        << path;
  }
  EXPECT_THAT(said("GET /other/private/info/lfs/objects/x HTTP/1.1\r\nHost: " + host_name + "\r\n\r\n"),
              StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(server_->requests(), IsEmpty());
  EXPECT_THAT(
      said("GET /team/app.git/info/refs?service=git-upload-pack HTTP/1.1\r\nHost: " + host_name + "\r\n\r\n"),
      StartsWith("HTTP/1.1 200"));
}

TEST_P(EgressGitWire, LargeFilesNeedAGrantOfTheirOwn) {
  auto batch = [&](const std::string& repository) {
    return said("POST /" + repository + ".git/info/lfs/objects/batch HTTP/1.1\r\nHost: " + host_name +
                "\r\nContent-Type: application/vnd.git-lfs+json\r\nContent-Length: 2\r\n\r\n{}");
  };
  std::string refused = batch("team/app");
  EXPECT_THAT(refused, StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(refused, HasSubstr("it is not allowed to use large files (LFS) of the repository team/app"));
  EXPECT_THAT(batch("team/pages"), StartsWith("HTTP/1.1 200"));
  EXPECT_TRUE(sink().wait_for("anchorhold.egress.allow", "git.operation=lfs git.repository=team/pages"));
}

TEST_P(EgressGitWire, APushThatCannotBeReadGoesNowhere) {
  const std::string caps = " report-status side-band-64k";
  const std::pair<std::string, std::string> table[] = {
      {post_of("0000 and more"), "no commands, and more than that"},
      {post_of("PACK" + std::string(100, 'x')), "not made of Git's lines"},
      {post_of(push_to("refs/heads/agent/x", " new-thing")), "'new-thing', which is not known"},
      {post_of(line(std::string("push-cert\0 report-status", 24))), "signed pushes"},
      {post_of(push_to("refs/heads/agent/x", caps).substr(0, 60)), "ended before its commands"},
      {post("Content-Length: 4\r\nContent-Encoding: gzip\r\n") + "0000", "cannot be read"},
      {post("Transfer-Encoding: chunked\r\n") + "5\r\n0000x\r\n0\r\n\r\n", "no commands, and more"},
      {post("Content-Length: 4\r\nGit-Protocol: version=2\r\n") + "0000", "version 0 or 1"},
      {post_of(push_to("refs/heads/main", "quiet")), "not refs/heads/main"},
  };
  for (const auto& [bytes, reason] : table) {
    std::string answer = said(bytes);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 403"));
    EXPECT_THAT(field_of(answer, "content-type"), "text/plain");
    EXPECT_THAT(answer, HasSubstr(reason));
  }
  EXPECT_THAT(server_->requests(), IsEmpty());
  {
    Wire wire = inside();  // ends in the middle of its commands
    wire.write(post("Content-Length: 1000\r\n") + push_to("refs/heads/agent/x", caps).substr(0, 60));
    wire.end_writing();
    wire.read_all();
  }
  {
    Wire wire = inside();  // ends in the middle of its pack: the server must not take it for the whole
    wire.write(post("Content-Length: 1000\r\n") + push_to("refs/heads/agent/x", caps) + "PACK");
    wire.end_writing();
    wire.read_all();
  }
  EXPECT_EQ(refs_of("team/app"), "refs/heads/main\n");
}

TEST_P(EgressGitWire, AClientThatWaitsToBeToldSoSendsItsCommandsThen) {
  Wire wire = inside();
  const std::string body = push_to("refs/heads/main", " report-status");
  wire.write(post("Expect: 100-continue\r\nContent-Length: " + std::to_string(body.size()) + "\r\n"));
  EXPECT_EQ(wire.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  wire.write(body);
  std::string answer = wire.read_response();
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(answer, HasSubstr("ng refs/heads/main not allowed"));
  EXPECT_THAT(server_->requests(), IsEmpty());
  Wire again = inside();
  again.write(post("Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n"));
  EXPECT_EQ(again.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  again.write("4\r\n0000\r\n0\r\n\r\n");
  EXPECT_THAT(again.read_response(), HasSubstr("HTTP/1.1 200")) << "the question whether it may push at all";
  EXPECT_EQ(server_->requests().size(), 1u);
}

}  // namespace
}  // namespace anchorhold::testing
