// gRPC over plain descriptors: who serves and who calls are free of who dialled, sizes are capped, and a dead
// stream is a dead channel.
#include "vsock/channel.h"

#include <future>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

namespace anchorhold::vsock {
namespace {

constexpr std::chrono::seconds patience(30);

grpc::ByteBuffer message_of(std::size_t size) {
  grpc::Slice slice(std::string(size, 'm'));
  return grpc::ByteBuffer(&slice, 1);
}

// Answers every call with the bytes it was given.
class Echo : public grpc::CallbackGenericService {
  class Reactor : public grpc::ServerGenericBidiReactor {
   public:
    Reactor() { StartRead(&message_); }
    void OnReadDone(bool ok) override {
      if (!ok) return Finish(grpc::Status::OK);
      StartWrite(&message_);
    }
    void OnWriteDone(bool ok) override {
      if (!ok) return Finish(grpc::Status::CANCELLED);
      StartRead(&message_);
    }
    void OnDone() override { delete this; }

   private:
    grpc::ByteBuffer message_;
  };
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
    return new Reactor;
  }
};

class Channel : public ::testing::Test {
 protected:
  void SetUp() override { start({}); }
  void start(const ChannelLimits& limits) {
    grpc::ServerBuilder builder;
    prepare_server(builder, limits);
    builder.RegisterCallbackGenericService(&echo_);
    server_ = builder.BuildAndStart();
    ASSERT_TRUE(server_);
  }
  void TearDown() override {
    if (server_) server_->Shutdown(std::chrono::system_clock::now());
  }
  std::shared_ptr<grpc::Channel> connect(const ChannelLimits& limits = {}) {
    auto pair = socket_pair(SOCK_STREAM);
    EXPECT_TRUE(pair);
    spare_ = *duplicate(pair->first.get());
    EXPECT_TRUE(serve_stream(*server_, std::move(pair->first)));
    auto channel = channel_from_stream(std::move(pair->second), limits);
    EXPECT_TRUE(channel);
    return *channel;
  }
  static grpc::Status call(const std::shared_ptr<grpc::Channel>& channel, std::size_t size,
                           std::size_t* answered = nullptr) {
    grpc::GenericStub stub(channel);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + patience);
    auto request = message_of(size);
    auto response = std::make_shared<grpc::ByteBuffer>();
    std::promise<grpc::Status> done;
    stub.UnaryCall(&context, "/test.Echo/Call", grpc::StubOptions(), &request, response.get(),
                   [&](grpc::Status status) { done.set_value(std::move(status)); });
    auto status = done.get_future().get();
    if (answered) *answered = response->Length();
    return status;
  }

  Echo echo_;
  std::unique_ptr<grpc::Server> server_;
  UniqueFd spare_;  // the stream's server side, to break it
};

TEST_F(Channel, CallsGoThrough) {
  auto channel = connect();
  std::size_t answered = 0;
  auto status = call(channel, 100'000, &answered);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(answered, 100'000u);
}

TEST_F(Channel, TwoStreamsAreTwoConnections) {
  auto first = connect();
  UniqueFd first_server_side = std::move(spare_);
  auto second = connect();
  ASSERT_TRUE(call(first, 10).ok());
  ASSERT_TRUE(call(second, 10).ok());
  ::shutdown(first_server_side.get(), SHUT_RDWR);
  EXPECT_FALSE(call(first, 10).ok());
  EXPECT_TRUE(call(second, 10).ok());
}

TEST_F(Channel, MessagesThatAreTooLargeAreRefusedByTheSender) {
  auto channel = connect();
  auto status = call(channel, max_grpc_message_bytes + 1000);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(call(channel, 1000).ok());
}

TEST_F(Channel, MessagesThatAreTooLargeAreRefusedByTheReceiver) {
  ChannelLimits careless;
  careless.max_message_bytes = 64u << 20;
  auto channel = connect(careless);
  // The server's own limit is the default one.
  auto status = call(channel, 8u << 20);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(call(channel, 1000).ok());
}

TEST_F(Channel, StreamThatEndsIsADeadChannel) {
  auto channel = connect();
  ASSERT_TRUE(call(channel, 10).ok());
  ::shutdown(spare_.get(), SHUT_RDWR);
  EXPECT_EQ(call(channel, 10).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(call(channel, 10).error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(Channel, WhatIsNoStreamIsRefused) {
  auto pair = socket_pair(SOCK_SEQPACKET);
  ASSERT_TRUE(pair);
  EXPECT_FALSE(channel_from_stream(std::move(pair->first)));
  EXPECT_FALSE(serve_stream(*server_, std::move(pair->second)));
  EXPECT_FALSE(channel_from_stream(UniqueFd()));
}

}  // namespace
}  // namespace anchorhold::vsock
