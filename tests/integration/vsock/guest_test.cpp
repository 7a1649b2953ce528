// The vsock device with a real guest: Linux, under QEMU's microvm, with a static init of our own. Needs the
// kernel of a built image and qemu-system-x86_64.
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include "base/files.h"
#include "base/process.h"
#include "base/seal.h"
#include "fixture.h"
#include "machine.h"
#include "test_image.h"
#include "vsock/device.h"

namespace anchorhold::vsock::testing {
namespace {

using std::chrono::minutes;

// Longer than a kernel's measuring of a clock, and run for less.
void interrupt(pid_t machine, std::stop_token stop) {
  using std::chrono::milliseconds;
  for (int turn = 0; !stop.stop_requested(); ++turn) {
    ::kill(machine, SIGSTOP);
    std::this_thread::sleep_for(milliseconds(120));
    ::kill(machine, SIGCONT);
    std::this_thread::sleep_for(milliseconds(20 + turn % 7));
  }
}

class WithGuest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto& image = anchorhold::testing::test_image();
    if (!image) GTEST_SKIP() << anchorhold::testing::no_test_image;
    kernel_ = image->kernel;
    qemu_ = find_program("qemu-system-x86_64");
    if (qemu_.empty()) GTEST_SKIP() << "qemu-system-x86_64 is not installed";
    auto folder = TemporaryDirectory::create();
    ASSERT_TRUE(folder);
    folder_.emplace(std::move(*folder));
    std::ofstream(folder_->path() / "initrd", std::ios::binary) << initrd_with_init(ANCHORHOLD_GUEST_INIT);
    VsockDeviceCallbacks callbacks;
    callbacks.refused = [this](std::uint32_t port, std::uint64_t) { refused_.put(port); };
    callbacks.ended = [this](Error cause) { ended_.put(std::move(cause)); };
    auto device = start_device(folder_->path() / "v", std::move(callbacks));
    ASSERT_TRUE(device) << device.error().message;
    device_ = std::move(*device);
    ASSERT_TRUE(device_->listen(2048, [this](UniqueFd stream) { agent_.put(std::move(stream)); }));
    boot();
  }

  // Whether the processors are stopped again and again while it boots.
  virtual bool is_hardly_run() const { return false; }

  void boot() {
    SpawnSpec spec;
    spec.argv = machine_arguments(qemu_, kernel_, folder_->path());
    spec.descriptors = {{2, 2}};
    auto child = Child::spawn(spec);
    ASSERT_TRUE(child) << child.error().message;
    machine_.emplace(std::move(*child));
    std::jthread interruptions;
    if (is_hardly_run())
      interruptions = std::jthread([pid = machine_->pid()](std::stop_token stop) { interrupt(pid, stop); });
    auto agent = agent_.take(minutes(2));
    ASSERT_TRUE(agent) << "the guest did not dial the host; its console: " << console();
    agent_stream_ = std::move(*agent);
  }
  std::string console() {
    auto text = read_file(folder_->path() / "console", 1 << 20);
    return text ? *text : text.error().message;
  }
  UniqueFd dial(std::uint32_t port) {
    auto stream = device_->dial(port, minutes(1));
    EXPECT_TRUE(stream) << stream.error().message;
    return stream ? std::move(*stream) : UniqueFd();
  }

  std::filesystem::path kernel_, qemu_;
  std::optional<TemporaryDirectory> folder_;
  Mailbox<UniqueFd> agent_;
  Mailbox<std::uint32_t> refused_;
  Mailbox<Error> ended_;
  std::unique_ptr<VsockDevice> device_;
  std::optional<Child> machine_;
  UniqueFd agent_stream_;
};

class HardlyRunGuest : public WithGuest {
  bool is_hardly_run() const override { return true; }
};

std::uint64_t mix(std::uint64_t hash, std::uint64_t word) {
  return (hash ^ word) * 1099511628211ull;
}

struct Digest {
  std::uint64_t count;
  std::uint64_t hash;
};

TEST_F(WithGuest, StreamsOfARealDriver) {
  // The boot handshake, and a port that is not open.
  EXPECT_EQ(read_text(agent_stream_.get(), 10), "ready 104\n");  // ECONNRESET
  EXPECT_EQ(refused_.take(), 2049u);

  // Echo, then half close from the host: the guest reads the end and closes.
  auto echo = dial(6000);
  ASSERT_TRUE(echo);
  ASSERT_TRUE(write_all(echo.get(), bytes_of("there and back")));
  EXPECT_EQ(read_text(echo.get(), 14), "there and back");
  ::shutdown(echo.get(), SHUT_WR);
  EXPECT_EQ(read_text(echo.get(), 1), "");

  // 64 MiB to the guest; after our half close its answer still comes back.
  constexpr std::size_t total = 64u << 20;
  std::vector<std::uint64_t> words(total / 8);
  std::uint64_t hash = 14695981039346656037ull;
  for (std::size_t i = 0; i < words.size(); ++i) hash = mix(hash, words[i] = i * 0x9e3779b97f4a7c15ull);
  auto sink = dial(6001);
  ASSERT_TRUE(sink);
  auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(write_all(sink.get(), std::as_bytes(std::span(words))));
  ::shutdown(sink.get(), SHUT_WR);
  Digest answer{};
  auto got = read_full(sink.get(), std::as_writable_bytes(std::span(&answer, 1)));
  ASSERT_TRUE(got && *got == sizeof answer);
  auto seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf("to the guest: %.0f MiB/s\n", 64 / seconds);
  EXPECT_EQ(answer.count, total);
  EXPECT_EQ(answer.hash, hash);

  // 64 MiB from the guest.
  auto source = dial(6002);
  ASSERT_TRUE(source);
  begin = std::chrono::steady_clock::now();
  std::uint64_t count = total;
  ASSERT_TRUE(write_all(source.get(), std::as_bytes(std::span(&count, 1))));
  got = read_full(source.get(), std::as_writable_bytes(std::span(words)));
  seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf("from the guest: %.0f MiB/s\n", 64 / seconds);
  ASSERT_TRUE(got);
  EXPECT_EQ(*got, total);
  for (std::size_t i = 0; i < words.size(); ++i) ASSERT_EQ(words[i], i);
  EXPECT_EQ(read_text(source.get(), 1), "");

  // Nobody listens there.
  auto nobody = device_->dial(6999, minutes(1));
  ASSERT_FALSE(nobody);
  EXPECT_EQ(nobody.error().code, ErrorCode::unavailable);

  // One reader that never reads stops nothing else.
  auto stalled = dial(6002);
  ASSERT_TRUE(stalled);
  ASSERT_TRUE(write_all(stalled.get(), std::as_bytes(std::span(&count, 1))));
  std::vector<UniqueFd> echoes;
  for (int i = 0; i < 50; ++i) {
    auto stream = dial(6000);
    ASSERT_TRUE(stream);
    ASSERT_TRUE(write_all(stream.get(), bytes_of("still here")));
    echoes.push_back(std::move(stream));
  }
  for (auto& stream : echoes) EXPECT_EQ(read_text(stream.get(), 10), "still here");

  // The guest ends: the device says that the machine closed it, and its process ends well.
  ASSERT_TRUE(write_all(agent_stream_.get(), bytes_of("x")));
  auto ended = ended_.take(minutes(1));
  ASSERT_TRUE(ended);
  EXPECT_THAT(ended->message, ::testing::HasSubstr("virtual machine closed"));
  EXPECT_TRUE(machine_->wait(minutes(1)));
}

TEST_F(HardlyRunGuest, BootsAllTheSame) {
  EXPECT_EQ(read_text(agent_stream_.get(), 10), "ready 104\n");
}

TEST_F(WithGuest, DeviceThatDiesIsNoticed) {
  EXPECT_EQ(::kill(device_->pid(), SIGKILL), 0);
  auto ended = ended_.take(minutes(1));
  ASSERT_TRUE(ended);
  EXPECT_THAT(ended->message, ::testing::HasSubstr("signal 9"));
  char byte;
  EXPECT_LE(read(agent_stream_.get(), &byte, 1), 10);
  auto again = device_->dial(6000, minutes(1));
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::unavailable);
}

}  // namespace
}  // namespace anchorhold::vsock::testing
