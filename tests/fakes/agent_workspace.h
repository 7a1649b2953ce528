// A workspace without a guest. It understands a small language of commands separated by ';':
//   print TEXT     TEXT and a newline on standard output     warn TEXT    the same on standard error
//   flood BYTES    that many bytes of numbered lines          bytes HEX    these bytes
//   wait           runs until it is killed               late         killed at its time limit
//   exit N         ends                                        lose         the guest dies under it
//   oom            killed by the memory limit                  signal N     ended by a signal
// Every command that starts is noted in `started`, and in the journal file when there is one. Safe from any
// thread.
#pragma once

#include <condition_variable>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "agent/workspace.h"

namespace anchorhold::fakes {

class FakeWorkspace : public agent::Workspace {
 public:
  // Commands are appended here, a line each, before they have any effect; survives the process.
  explicit FakeWorkspace(std::filesystem::path journal = {}) : journal_(std::move(journal)) {}

  // From now on there is no guest, for this reason; empty: there is one again.
  void set_unavailable(std::string cause);
  std::vector<agent::ShellCommand> started() const;
  int warm_ups() const;
  std::vector<agent::JobId> killed_jobs() const;
  // Returns when a command waits to be killed.
  void await_waiting();

  void warm_up() override;
  Result<agent::ShellEnd> run(const agent::ShellCommand& command, const agent::OutputSink& sink,
                              std::stop_token stop) override;
  Result<agent::JobStart> start_job(const agent::ShellCommand& command, std::stop_token stop) override;
  Result<agent::JobState> poll_job(const agent::JobId& id, std::uint64_t offset, std::size_t max_bytes,
                                   std::chrono::milliseconds wait, std::stop_token stop) override;
  Status kill_job(const agent::JobId& id) override;

 private:
  struct Job {
    std::string output;
    bool running = false;
    agent::ShellEnd end;
  };
  bool begin(const agent::ShellCommand& command, agent::ShellEnd& end);
  agent::ShellEnd interpret(const agent::ShellCommand& command, const agent::OutputSink& sink,
                            std::stop_token stop);
  agent::ShellEnd wait_for_kill(std::stop_token stop);

  std::filesystem::path journal_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::string unavailable_;
  std::vector<agent::ShellCommand> started_;
  std::map<agent::JobId, Job> jobs_;
  std::vector<agent::JobId> killed_;
  int warm_ups_ = 0;
  int waiting_ = 0;
};

}  // namespace anchorhold::fakes
