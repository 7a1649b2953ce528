// guest.proto served: decodes, checks sizes, and posts everything to the agent's one thread. gRPC's own
// threads never wait and never touch the agent's state.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>

#include "exec_table.h"
#include "proto/guest.grpc.pb.h"
#include "system.h"
#include "vsock/channel.h"
#include "workers.h"

namespace anchorhold::guest {

inline constexpr std::uint32_t lowest_protocol = 1;
inline constexpr std::uint32_t highest_protocol = 2;

using vsock::to_grpc;

// The highest version both speak, or failed_precondition that names both sides' versions.
Result<std::uint32_t> negotiate(const wire::HelloRequest& request);

// What the calls work on. Outlives the server. Belongs to the loop's thread.
struct AgentState {
  vsock::EventLoop& loop;
  const Machinery& machinery;
  ExecTable& execs;
  System& system;
  Workers& system_workers;                          // for what may block: mounts, write-back
  std::map<std::string, std::string>& environment;  // of every command
  std::function<void()> on_shutdown{};              // after the answer is out
  std::uint64_t ready_monotonic_ns = 0;
  bool greeted = false;
  std::string session_token{};
};

class GuestService final : public wire::Guest::CallbackService {
 public:
  explicit GuestService(AgentState& state) : state_(state) {}

  grpc::ServerUnaryReactor* Hello(grpc::CallbackServerContext*, const wire::HelloRequest*,
                                  wire::HelloReply*) override;
  grpc::ServerWriteReactor<wire::ExecEvent>* Exec(grpc::CallbackServerContext*,
                                                  const wire::ExecRequest*) override;
  grpc::ServerWriteReactor<wire::OutputChunk>* ReadOutput(grpc::CallbackServerContext*,
                                                          const wire::ReadOutputRequest*) override;
  grpc::ServerReadReactor<wire::InputChunk>* WriteInput(grpc::CallbackServerContext*,
                                                        wire::WriteInputReply*) override;
  grpc::ServerUnaryReactor* SignalExec(grpc::CallbackServerContext*, const wire::SignalExecRequest*,
                                       wire::SignalExecReply*) override;
  grpc::ServerUnaryReactor* ResizeTerminal(grpc::CallbackServerContext*, const wire::ResizeTerminalRequest*,
                                           wire::ResizeTerminalReply*) override;
  grpc::ServerUnaryReactor* KillExec(grpc::CallbackServerContext*, const wire::KillExecRequest*,
                                     wire::KillExecReply*) override;
  grpc::ServerUnaryReactor* WaitExec(grpc::CallbackServerContext*, const wire::WaitExecRequest*,
                                     wire::WaitExecReply*) override;
  grpc::ServerUnaryReactor* ListExecs(grpc::CallbackServerContext*, const wire::ListExecsRequest*,
                                      wire::ListExecsReply*) override;
  grpc::ServerUnaryReactor* SetClock(grpc::CallbackServerContext*, const wire::SetClockRequest*,
                                     wire::SetClockReply*) override;
  grpc::ServerUnaryReactor* GetStatistics(grpc::CallbackServerContext*, const wire::GetStatisticsRequest*,
                                          wire::GetStatisticsReply*) override;
  grpc::ServerUnaryReactor* Mount(grpc::CallbackServerContext*, const wire::MountRequest*,
                                  wire::MountReply*) override;
  grpc::ServerUnaryReactor* Unmount(grpc::CallbackServerContext*, const wire::UnmountRequest*,
                                    wire::UnmountReply*) override;
  grpc::ServerUnaryReactor* Announce(grpc::CallbackServerContext*, const wire::AnnounceRequest*,
                                     wire::AnnounceReply*) override;
  grpc::ServerUnaryReactor* ConfigureNetwork(grpc::CallbackServerContext*,
                                             const wire::ConfigureNetworkRequest*,
                                             wire::ConfigureNetworkReply*) override;
  grpc::ServerUnaryReactor* Shutdown(grpc::CallbackServerContext*, const wire::ShutdownRequest*,
                                     wire::ShutdownReply*) override;

 private:
  AgentState& state_;
};

// Of calls before Hello.
Status greeted(const AgentState& state);

}  // namespace anchorhold::guest
