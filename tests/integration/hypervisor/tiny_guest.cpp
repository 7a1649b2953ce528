#include "hypervisor/tiny_guest.h"

#include <cstdlib>
#include <dirent.h>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>
#include <thread>

#include "base/paths.h"
#include "reaper/reaping.h"
#include "test_image.h"

namespace anchorhold::hypervisor {
namespace {

constexpr std::chrono::seconds patience(90);

// One entry of a newc archive: Linux, Documentation/driver-api/early-userspace/buffer-format.rst.
void add_entry(std::ostream& out, const std::string& name, unsigned mode, unsigned major, unsigned minor,
               const std::string& bytes) {
  static unsigned inode = 0;
  out << fmt::format("070701{:08x}{:08x}{:08x}{:08x}{:08x}{:08x}{:08x}{:08x}{:08x}{:08x}{:08x}{:08x}{:08x}",
                     ++inode, mode, 0, 0, 1, 0, bytes.size(), 0, 0, major, minor, name.size() + 1, 0)
      << name << '\0';
  for (std::size_t size = 110 + name.size() + 1; size % 4 != 0; ++size) out << '\0';
  out << bytes;
  for (std::size_t size = bytes.size(); size % 4 != 0; ++size) out << '\0';
}

std::string slurp(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

std::filesystem::path test_kernel() {
  const auto& image = testing::test_image();
  return image ? image->kernel : std::filesystem::path();
}

void write_initrd(const std::filesystem::path& program, const std::filesystem::path& initrd) {
  std::ofstream out(initrd, std::ios::binary);
  add_entry(out, "dev", 0040755, 0, 0, "");
  add_entry(out, "dev/console", 0020600, 5, 1, "");
  add_entry(out, "init", 0100755, 0, 0, slurp(program));
  add_entry(out, "TRAILER!!!", 0, 0, 0, "");
}

TestHost::TestHost(AccelerationChoice acceleration)
    : folder_(std::move(TemporaryDirectory::create("ah").value())), acceleration_(acceleration) {
  write_initrd(std::filesystem::path(ANCHORHOLD_PROGRAM_DIR) / "../tests/tiny_init", folder() / "initrd");
}

std::filesystem::path TestHost::runtime() {
  static TemporaryDirectory folder = TemporaryDirectory::create("ahr").value();
  return folder.path();
}

LibvirtOptions TestHost::options() const {
  LibvirtOptions options;
  options.acceleration = acceleration_;
  options.runtime_directory = runtime();
  // What libvirt learns about QEMU takes seconds: once for all tests of a build.
  options.cache_directory = std::filesystem::path(ANCHORHOLD_PROGRAM_DIR) / "../tests/cache";
  return options;
}

Hypervisor& TestHost::hypervisor() {
  if (!hypervisor_) {
    auto made = make_libvirt_hypervisor(options());
    if (!made) {
      ADD_FAILURE() << made.error().message << "\n" << made.error().hint;
      std::abort();
    }
    hypervisor_ = std::move(*made);
  }
  return *hypervisor_;
}

MachineSpec TestHost::spec(const std::string& id, const std::string& what) const {
  MachineSpec spec;
  spec.id = MachineId(id);
  spec.kernel = test_kernel();
  spec.initrd = folder() / "initrd";
  spec.kernel_words = {"tiny=" + what};
  spec.vcpus = 1;
  spec.memory = ByteSize::mib(256);
  spec.console.path = folder() / (id + ".console");
  return spec;
}

Guest::Guest(TestHost& host, MachineSpec spec) : host_(host), console_(spec.console.path) {
  auto made = host.hypervisor().make(std::move(spec), host.executor(), [this](const MachineExit& exit) {
    std::lock_guard lock(mutex_);
    exit_ = exit;
    changed_.notify_all();
  });
  if (!made) {
    ADD_FAILURE() << made.error().message;
    std::abort();
  }
  machine_ = std::move(*made);
}

Guest::~Guest() {
  // On the owner's thread, so that no callback of this object runs afterwards.
  (void)wait_for([this](Machine::Done done) {
    machine_.reset();
    done({});
  });
}

Status Guest::wait_for(std::function<void(Machine::Done)> act) {
  // The callback may come after the patience is over: it must find something.
  struct Answer {
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<Status> status;
  };
  auto answer = std::make_shared<Answer>();
  host_.executor().post([act = std::move(act), answer] {
    act([answer](Status status) {
      std::lock_guard lock(answer->mutex);
      answer->status = std::move(status);
      answer->changed.notify_all();
    });
  });
  std::unique_lock lock(answer->mutex);
  if (!answer->changed.wait_for(lock, patience, [&] { return answer->status.has_value(); }))
    return fail(ErrorCode::deadline_exceeded, "the machine did not answer");
  return *answer->status;
}

Status Guest::start() {
  return wait_for([this](Machine::Done done) { machine_->start(std::move(done)); });
}

void Guest::start_without_waiting() {
  host_.executor().post([this] { machine_->start([](Status) {}); });
}

Status Guest::stop(std::chrono::milliseconds grace) {
  return wait_for([this, grace](Machine::Done done) { machine_->stop({grace}, std::move(done)); });
}

Status Guest::set_memory_target(ByteSize target) {
  return wait_for(
      [this, target](Machine::Done done) { machine_->set_memory_target(target, std::move(done)); });
}

Result<MemoryStatistics> Guest::memory() {
  auto result = std::make_shared<Result<MemoryStatistics>>(MemoryStatistics{});
  Status status = wait_for([this, result](Machine::Done done) {
    machine_->memory([result, done](Result<MemoryStatistics> statistics) {
      *result = std::move(statistics);
      done({});
    });
  });
  if (!status) return fail(status.error());
  return *result;
}

MachineExit Guest::wait_for_exit() {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, patience, [this] { return exit_.has_value(); })) {
    ADD_FAILURE() << "the machine did not end; its console:\n" << console();
    return {ExitCause::start_failed, "no exit was reported"};
  }
  return *exit_;
}

std::string Guest::console() const {
  return slurp(console_);
}

bool Guest::wait_for_console(const std::string& text) {
  return eventually([&] { return console().find(text) != std::string::npos; }, patience);
}

std::vector<int> qemu_processes(const std::filesystem::path& folder) {
  std::vector<int> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    int process = std::atoi(entry.path().filename().c_str());
    if (process <= 0) continue;
    std::string command_line = slurp(entry.path() / "cmdline");
    if (works_in(command_line, folder) && command_line.find("qemu-system-") != std::string::npos)
      found.push_back(process);
  }
  return found;
}

bool eventually(const std::function<bool()>& condition, std::chrono::seconds limit) {
  auto deadline = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

}  // namespace anchorhold::hypervisor
