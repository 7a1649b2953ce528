// The contract itself, spoken without the typed client: what a host of another version, or a confused one,
// meets.
#include <chrono>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <thread>

#include "base/fd.h"
#include "base/process.h"
#include "proto/guest.grpc.pb.h"
#include "vsock/channel.h"

namespace anchorhold::guest::v1 {
namespace {

class Protocol : public testing::Test {
 protected:
  void SetUp() override {
    auto pair = socket_pair(SOCK_STREAM);
    ASSERT_TRUE(pair);
    SpawnSpec program;
    program.argv = {ANCHORHOLD_PROGRAM_DIR "/anchorhold-guest", "--serve-fd", "3"};
    program.descriptors = {{2, 2}, {pair->second.get(), 3}};
    auto child = Child::spawn(program);
    ASSERT_TRUE(child);
    child_.emplace(std::move(*child));
    auto channel = vsock::channel_from_stream(std::move(pair->first));
    ASSERT_TRUE(channel);
    stub_ = Guest::NewStub(*channel);
  }
  void TearDown() override {
    stub_.reset();
    EXPECT_TRUE(child_->wait(std::chrono::seconds(30)));
  }
  grpc::Status hello(std::uint32_t lowest, std::uint32_t highest, const std::string& token,
                     HelloReply* reply) {
    grpc::ClientContext context;
    HelloRequest request;
    request.mutable_protocol()->set_lowest(lowest);
    request.mutable_protocol()->set_highest(highest);
    request.set_host_version("test");
    request.set_session_token(token);
    return stub_->Hello(&context, request, reply);
  }
  std::optional<Child> child_;
  std::unique_ptr<Guest::Stub> stub_;
};

TEST_F(Protocol, HelloComesFirstAndOnlyOneSessionIsServed) {
  {
    grpc::ClientContext context;
    GetStatisticsReply reply;
    EXPECT_EQ(stub_->GetStatistics(&context, {}, &reply).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  }
  HelloReply reply;
  auto mismatch = hello(7, 9, "token", &reply);
  EXPECT_EQ(mismatch.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_NE(mismatch.error_message().find("7 to 9"), std::string::npos);
  EXPECT_NE(mismatch.error_message().find("1 to 2"), std::string::npos);
  ASSERT_TRUE(hello(1, 5, "token", &reply).ok());
  EXPECT_EQ(reply.protocol(), 2u);
  EXPECT_FALSE(reply.guest_version().empty());
  EXPECT_EQ(hello(1, 1, "another", &reply).error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_TRUE(hello(1, 1, "token", &reply).ok());
}

TEST_F(Protocol, SizesAreCapped) {
  HelloReply reply;
  EXPECT_EQ(hello(1, 1, std::string(65, 't'), &reply).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  ASSERT_TRUE(hello(1, 1, "t", &reply).ok());
  {
    grpc::ClientContext context;
    ExecRequest request;
    request.set_exec_id("cat");
    request.add_argv("cat");
    request.set_working_directory("/");
    request.set_input(INPUT_MODE_PIPE);
    auto exec = stub_->Exec(&context, request);
    grpc::ClientContext input_context;
    WriteInputReply written;
    auto input = stub_->WriteInput(&input_context, &written);
    InputChunk chunk;
    chunk.set_exec_id("cat");
    chunk.set_await_start(true);
    chunk.set_data(std::string(64 * 1024 + 1, 'x'));
    input->Write(chunk);
    EXPECT_EQ(input->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    context.TryCancel();
    exec->Finish();
  }
  {
    grpc::ClientContext context;
    ExecRequest request;
    request.add_argv("true");
    request.set_shell_command(std::string(5u << 20, 'x'));
    auto exec = stub_->Exec(&context, request);
    ExecEvent event;
    EXPECT_FALSE(exec->Read(&event));
    EXPECT_EQ(exec->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  }
}

TEST_F(Protocol, ATakenIdIsRefusedAndAnOutputHasOneReader) {
  HelloReply reply;
  ASSERT_TRUE(hello(1, 1, "t", &reply).ok());
  ExecRequest request;
  request.set_exec_id("one");
  request.set_working_directory("/");
  request.set_shell_command("sleep 1000");
  grpc::ClientContext context;
  auto exec = stub_->Exec(&context, request);
  ExecEvent event;
  ASSERT_TRUE(exec->Read(&event));
  EXPECT_EQ(event.started().exec_id(), "one");
  {
    grpc::ClientContext second;
    auto again = stub_->Exec(&second, request);
    EXPECT_EQ(again->Finish().error_code(), grpc::StatusCode::ALREADY_EXISTS);
  }
  ReadOutputRequest read;
  read.set_exec_id("one");
  read.set_stream(OUTPUT_STREAM_STDOUT);
  grpc::ClientContext first_context;
  auto first = stub_->ReadOutput(&first_context, read);
  // The two calls are not ordered; one of them is refused.
  grpc::ClientContext second_context;
  auto second = stub_->ReadOutput(&second_context, read);
  grpc::Status first_status, second_status;
  std::thread other([&] {
    OutputChunk ignored;
    if (first->Read(&ignored)) return;
    first_status = first->Finish();
    second_context.TryCancel();
  });
  OutputChunk ignored;
  if (!second->Read(&ignored)) {
    second_status = second->Finish();
    first_context.TryCancel();
  }
  other.join();
  // Whoever was cancelled is the one that was served.
  auto codes = std::pair(first_status.error_code(), second_status.error_code());
  EXPECT_TRUE(codes == std::pair(grpc::StatusCode::ALREADY_EXISTS, grpc::StatusCode::CANCELLED) ||
              codes == std::pair(grpc::StatusCode::CANCELLED, grpc::StatusCode::ALREADY_EXISTS))
      << codes.first << " " << codes.second;
  for (const char* id : {"UPPER", "a/b", "..", "a b"}) {
    grpc::ClientContext bad_context;
    request.set_exec_id(id);
    auto bad = stub_->Exec(&bad_context, request);
    EXPECT_EQ(bad->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT) << id;
  }
  context.TryCancel();
  exec->Finish();
}

TEST_F(Protocol, AHostedAgentTouchesNothingOfTheMachine) {
  HelloReply reply;
  ASSERT_TRUE(hello(1, 1, "t", &reply).ok());
  // It has a clock of its own.
  constexpr std::int64_t year_ns = 365ll * 24 * 3600 * 1'000'000'000;
  auto machine = [] {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
  };
  SetClockReply clock_reply;
  for (int i = 0; i < 2; ++i) {
    grpc::ClientContext clock_context;
    SetClockRequest clock;
    clock.set_unix_time_ns(machine() + 2 * year_ns);
    ASSERT_TRUE(stub_->SetClock(&clock_context, clock, &clock_reply).ok());
  }
  EXPECT_GT(clock_reply.previous_unix_time_ns(), machine() + year_ns);
  grpc::ClientContext mount_context;
  MountRequest mount;
  mount.set_tag("grant-x");
  mount.set_name("x");
  MountReply mount_reply;
  EXPECT_EQ(stub_->Mount(&mount_context, mount, &mount_reply).error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
}

}  // namespace
}  // namespace anchorhold::guest::v1
