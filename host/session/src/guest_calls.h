// The calls of one command as reactors of gRPC's callback interface: no thread of ours waits for the guest,
// and a message is asked for only when the last one was taken, which is what holds the other side back.
//
// A call must be destroyed on a thread of its owner, after gone(): the last reference to a channel must not
// be dropped on one of gRPC's threads, which would then wait for itself.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "guest_channel.h"

namespace anchorhold::session {

// What the calls of one command share with the threads that wait for them.
struct CallSync {
  std::mutex mutex;
  std::condition_variable_any changed;
};

class OutputCall : public grpc::ClientReadReactor<wire::OutputChunk> {
 public:
  static std::unique_ptr<OutputCall> start(const GuestChannel& channel, std::shared_ptr<CallSync> sync,
                                           const std::string& exec_id, OutputStream stream);
  // With the mutex held.
  bool has_chunk() const { return !chunks_.empty(); }
  bool done() const { return done_; }
  bool gone() const { return gone_; }
  const grpc::Status& status() const { return status_; }
  // Only when it has one. Without the mutex held.
  std::string take();
  // Ends the call; nothing more is taken.
  void abandon();

  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  const GuestChannel* channel_ = nullptr;
  std::shared_ptr<CallSync> sync_;
  grpc::ClientContext context_;
  wire::ReadOutputRequest request_;
  // Read ahead of their taker, so that a fast command does not wait for two threads to meet at every chunk.
  static constexpr std::size_t most_chunks = 4;
  wire::OutputChunk chunk_;
  std::deque<std::string> chunks_;
  bool reading_ = true;
  bool held_ = true;  // a read may still be started
  bool abandoned_ = false;
  bool done_ = false;
  bool gone_ = false;  // gRPC will not touch this any more
  grpc::Status status_;
};

class InputCall : public grpc::ClientWriteReactor<wire::InputChunk> {
 public:
  static std::unique_ptr<InputCall> start(const GuestChannel& channel, std::shared_ptr<CallSync> sync,
                                          const std::string& exec_id);
  // One thread at a time; waits until the transport took the bytes.
  Status write(std::string_view bytes, std::stop_token stop);
  void close();
  void abandon();
  // With the mutex held.
  bool gone() const { return gone_; }

  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  Status ended();
  const GuestChannel* channel_ = nullptr;
  std::shared_ptr<CallSync> sync_;
  grpc::ClientContext context_;
  wire::InputChunk chunk_;
  wire::WriteInputReply reply_;
  bool first_ = true;
  std::string exec_id_;
  bool writing_ = false;
  bool held_ = true;
  bool failed_ = false;
  bool abandoned_ = false;
  bool done_ = false;
  bool gone_ = false;  // gRPC will not touch this any more
  grpc::Status status_;
};

class ExecCall : public grpc::ClientReadReactor<wire::ExecEvent> {
 public:
  static std::unique_ptr<ExecCall> start(const GuestChannel& channel, std::shared_ptr<CallSync> sync,
                                         wire::ExecRequest request);
  // One that is over before it began.
  static std::unique_ptr<ExecCall> refused(std::shared_ptr<CallSync> sync, ExecStatus status);
  // Called once, before gone(); at once when it is over already.
  void when_done(std::function<void()> callback);
  // With the mutex held.
  bool started() const { return started_; }
  bool done() const { return done_; }
  bool gone() const { return gone_; }
  const std::optional<ExecStatus>& result() const { return result_; }
  const grpc::Status& status() const { return status_; }
  void cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  const GuestChannel* channel_ = nullptr;
  std::shared_ptr<CallSync> sync_;
  grpc::ClientContext context_;
  wire::ExecRequest request_;
  wire::ExecEvent event_;
  bool started_ = false;
  bool done_ = false;
  bool gone_ = false;  // gRPC will not touch this any more
  std::optional<ExecStatus> result_;
  grpc::Status status_;
  std::function<void()> done_callback_;
};

}  // namespace anchorhold::session
