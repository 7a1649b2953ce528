// The process around the device: sealed, alone with its descriptors, and ending for reasons that are told.
#include <fstream>
#include <gmock/gmock.h>
#include <sstream>
#include <sys/wait.h>

#include "base/process.h"
#include "fixture.h"

namespace anchorhold::vsock::testing {
namespace {

using ::testing::HasSubstr;

class Lifecycle : public WithDevice {};

std::string status_line(int pid, const std::string& name) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(name + ":")) return line.substr(line.find_first_not_of("\t ", name.size() + 1));
  return "missing";
}

TEST_F(Lifecycle, ProcessIsSealed) {
#ifdef ANCHORHOLD_SANITIZED
  GTEST_SKIP() << "sanitizers keep descriptors and rights of their own";
#endif
  EXPECT_EQ(status_line(device_->pid(), "Seccomp"), "2");
  EXPECT_EQ(status_line(device_->pid(), "NoNewPrivs"), "1");
  connect();
  listen(2048);
  auto pair = guest_dials(50000, 2048);
  ASSERT_TRUE(pair);
  // Standard descriptors, control, epoll, its wake-up, a timer, the front end, two kicks, two calls, one
  // stream. The two memory descriptors, the listener and the host's end of the stream are closed.
  std::vector<std::string> open;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(device_->pid()) + "/fd", error)) {
    auto target = std::filesystem::read_symlink(entry.path(), error).string();
    EXPECT_THAT(target, ::testing::Not(HasSubstr("memfd")));
    open.push_back(target);
  }
  // A process that cannot be dumped hides its descriptors from an ordinary user.
  if (geteuid() == 0) {
    EXPECT_EQ(open.size(), 13u) << ::testing::PrintToString(open);
  }
}

TEST_F(Lifecycle, ConfigurationIsTheGuestsCid) {
  FrontEnd front_end((folder_->path() / "v").string());
  struct {
    std::uint32_t offset = 0, size = 8, flags = 0;
    std::uint64_t cid = 0;
  } __attribute__((packed)) asked;
  front_end.send(24, std::as_bytes(std::span(&asked, 1)));
  auto answer = front_end.receive(24);
  ASSERT_EQ(answer.size(), sizeof asked);
  std::memcpy(&asked, answer.data(), sizeof asked);
  EXPECT_EQ(asked.cid, 3u);
}

TEST_F(Lifecycle, OnlyOneFrontEndInALife) {
  connect();
  EXPECT_THROW(FrontEnd second((folder_->path() / "v").string()), std::runtime_error);
}

TEST_F(Lifecycle, FrontEndThatClosesEndsTheDevice) {
  connect();
  listen(2048);
  auto pair = guest_dials(50000, 2048);
  ASSERT_TRUE(pair);
  driver_.reset();
  front_end_.reset();
  EXPECT_THAT(cause(), HasSubstr("virtual machine closed"));
  EXPECT_EQ(read_text(pair->host.get(), 1), "");
  auto late = device_->dial(5, patience);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::unavailable);
  EXPECT_FALSE(device_->listen(7, [](UniqueFd) {}));
  EXPECT_FALSE(device_->statistics());
}

TEST_F(Lifecycle, FrontEndThatIsKilledBeforeItReadsAnAnswerHasJustGone) {
  connect();
  front_end_->send(1, {});  // GET_FEATURES; closing with its answer unread resets the connection
  driver_.reset();
  front_end_.reset();
  EXPECT_THAT(cause(), HasSubstr("virtual machine closed"));
}

TEST_F(Lifecycle, DialThatWaitsEndsWithTheDevice) {
  connect();
  Mailbox<Error> outcome;
  device_->dial(7000, patience,
                [&](Result<UniqueFd> stream) { outcome.put(stream ? Error{} : stream.error()); });
  ASSERT_TRUE(driver_->receive());
  driver_.reset();
  front_end_.reset();
  auto error = outcome.take();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, ErrorCode::unavailable);
}

TEST_F(Lifecycle, ProcessThatIsKilledIsReportedAsThat) {
  connect();
  ASSERT_EQ(::kill(device_->pid(), SIGKILL), 0);
  EXPECT_THAT(cause(), HasSubstr("killed by signal 9"));
  EXPECT_TRUE(front_end_->closed());
}

TEST_F(Lifecycle, DestroyingTheHandleEndsTheProcessAndRemovesTheSocket) {
  connect();
  pollfd ended{dup(device_->pidfd()), POLLIN, 0};
  UniqueFd owner(ended.fd);
  device_.reset();
  EXPECT_EQ(poll(&ended, 1, static_cast<int>(patience.count())), 1);
  EXPECT_FALSE(std::filesystem::exists(folder_->path() / "v"));
  EXPECT_TRUE(front_end_->closed());
}

TEST_F(Lifecycle, HostThatDiesTakesTheDeviceWithIt) {
  // Another process is the host, and is killed: it has no chance to tidy up.
  auto path = folder_->path() / "other";
  Pipe pipe = *make_pipe();
  pid_t host = fork();
  ASSERT_GE(host, 0);
  if (host == 0) {
    auto device = start_device(path);
    int pid = device ? (*device)->pid() : -1;
    (void)!write(pipe.write_end.get(), &pid, sizeof pid);
    for (;;) pause();
  }
  int pid = -1;
  ASSERT_TRUE(read_full(pipe.read_end.get(), std::as_writable_bytes(std::span(&pid, 1))));
  ASSERT_GT(pid, 0);
  FrontEnd front_end(path.string());
  front_end.negotiate();
  kill(host, SIGKILL);
  waitpid(host, nullptr, 0);
  EXPECT_TRUE(front_end.closed());
}

TEST_F(Lifecycle, StreamsSurviveAPauseButNotAResetOfTheDriver) {
  connect();
  listen(2048);
  auto pair = guest_dials(50000, 2048);
  ASSERT_TRUE(pair);
  auto rx_index = front_end_->stop_ring(0);
  auto tx_index = front_end_->stop_ring(1);
  // The host writes meanwhile; the guest gets it when it goes on.
  ASSERT_TRUE(write_all(pair->host.get(), bytes_of("while you slept")));
  front_end_->send_ring(0, static_cast<std::uint16_t>(rx_index));
  front_end_->send_ring(1, static_cast<std::uint16_t>(tx_index));
  front_end_->kick(0);
  ASSERT_TRUE(pair->guest.pump([&] { return pair->guest.data.size() == 15; }));
  // A driver that starts anew knows nothing of its streams.
  front_end_->stop_ring(0);
  front_end_->stop_ring(1);
  std::memset(front_end_->memory(), 0, 0x8000);
  front_end_->send_ring(0, 0);
  front_end_->send_ring(1, 0);
  EXPECT_EQ(read_text(pair->host.get(), 1), "");
}

TEST_F(Lifecycle, PortsOpenOnce) {
  listen(2048);
  auto again = device_->listen(2048, [](UniqueFd) {});
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::already_exists);
  EXPECT_TRUE(device_->unlisten(2048));
  EXPECT_FALSE(device_->unlisten(2048));
  listen(2048);
}

TEST(Program, RefusesArgumentsItDoesNotKnow) {
  for (std::vector<std::string> arguments :
       {std::vector<std::string>{"--what"}, {"--cid"}, {"--cid", "x"}, {"--cid", "3"}, {}}) {
    SpawnSpec spec;
    spec.argv = {std::string(ANCHORHOLD_PROGRAM_DIR) + "/anchorhold-vsockd"};
    spec.argv.insert(spec.argv.end(), arguments.begin(), arguments.end());
    auto child = Child::spawn(spec);
    ASSERT_TRUE(child);
    EXPECT_EQ(child->wait().code, 1);
  }
}

TEST(Start, PathThatIsTooLongIsRefused) {
  auto device = start_device("/tmp/" + std::string(200, 'x'));
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().code, ErrorCode::invalid_argument);
}

TEST(Start, ProgramThatIsNotOursIsNamed) {
  auto folder = *TemporaryDirectory::create();
  VsockDeviceSpec spec;
  spec.socket_path = folder.path() / "v";
  spec.program = "/bin/false";
  auto device = VsockDevice::start(spec);
  ASSERT_FALSE(device);
  EXPECT_THAT(device.error().message, HasSubstr("/bin/false"));
  EXPECT_FALSE(std::filesystem::exists(spec.socket_path));
}

}  // namespace
}  // namespace anchorhold::vsock::testing
