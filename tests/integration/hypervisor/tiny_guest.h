// Guests for the tests of the hypervisor: a real kernel and an initial RAM disk that holds one small static
// program.
#pragma once

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <gtest/gtest.h>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/executor.h"
#include "base/files.h"
#include "hypervisor/libvirt.h"

namespace anchorhold::hypervisor {

// The kernel of the image that ANCHORHOLD_TEST_IMAGE names (a folder, or an image of the person's store); an
// empty path when the variable is not set.
std::filesystem::path test_kernel();
// A newc archive with /init and /dev/console.
void write_initrd(const std::filesystem::path& program, const std::filesystem::path& initrd);

// Folders, a hypervisor and its executor, for one test.
class TestHost {
 public:
  explicit TestHost(AccelerationChoice acceleration = AccelerationChoice::emulation);
  // Fails the test when there is none.
  Hypervisor& hypervisor();
  void close() { hypervisor_.reset(); }
  LibvirtOptions options() const;
  std::filesystem::path folder() const { return folder_.path(); }
  // Where QEMU works: one folder for all tests of a process, as there is one embedded driver.
  static std::filesystem::path runtime();
  Executor& executor() { return executor_; }
  // `what` goes to the guest's program (tiny=…).
  MachineSpec spec(const std::string& id, const std::string& what) const;

 private:
  TemporaryDirectory folder_;
  AccelerationChoice acceleration_;
  SerialExecutor executor_{"test-owner"};
  std::unique_ptr<Hypervisor> hypervisor_;
};

// A machine, driven from the test's thread with waits instead of callbacks.
class Guest {
 public:
  Guest(TestHost& host, MachineSpec spec);
  ~Guest();
  Status start();
  Status stop(std::chrono::milliseconds grace = std::chrono::milliseconds(0));
  void start_without_waiting();
  MachineExit wait_for_exit();
  bool wait_for_console(const std::string& text);
  Result<MemoryStatistics> memory();
  Status set_memory_target(ByteSize target);
  std::string console() const;
  Machine& machine() { return *machine_; }

 private:
  Status wait_for(std::function<void(Machine::Done)> act);
  TestHost& host_;
  const std::filesystem::path console_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<MachineExit> exit_;
  std::unique_ptr<Machine> machine_;
};

// For EXPECT_TRUE: says the error's message and hint.
template <typename T>
testing::AssertionResult ok(const Result<T>& result) {
  if (result) return testing::AssertionSuccess();
  return testing::AssertionFailure() << result.error().message << "\n" << result.error().hint;
}
// QEMU processes that work in this folder.
std::vector<int> qemu_processes(const std::filesystem::path& folder);
// Polls until it holds, for at most a generous time.
bool eventually(const std::function<bool()>& condition,
                std::chrono::seconds limit = std::chrono::seconds(60));

}  // namespace anchorhold::hypervisor
