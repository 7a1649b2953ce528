// The door to a running session: what other processes of the person may say, and what becomes of nonsense.
#include "session/control.h"

#include <future>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
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
