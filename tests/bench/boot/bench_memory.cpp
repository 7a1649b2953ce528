// bench_memory [MEMORY]: what `anchorhold run` with one folder to write keeps in memory while its command
// waits: each of its processes, and the guest; and bare QEMU with the same kernel, memory (1G) and a static
// init, in one run. ANCHORHOLD_TEST_IMAGE names the image. As root the shared pages of programs are divided
// among those who share them (PSS); others see resident pages only, since sealed processes are not theirs to
// look into.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <signal.h>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "bare.h"
#include "base/files.h"
#include "base/units.h"
#include "test_image.h"

namespace {

using namespace anchorhold;
namespace fs = std::filesystem;

// Kibibytes by their names in a file such as /proc/PID/status (proc(5)).
std::map<std::string, std::uint64_t> fields(const fs::path& path) {
  std::map<std::string, std::uint64_t> found;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    std::uint64_t value = 0;
    if (words >> name >> value && name.ends_with(':')) found[name.substr(0, name.size() - 1)] = value;
  }
  return found;
}

struct Footprint {
  std::uint64_t own = 0;     // resident and not the guest's memory
  std::uint64_t shared = 0;  // memory that is shared: of QEMU, the guest's
};

Footprint footprint(pid_t pid) {
  const fs::path proc = fmt::format("/proc/{}", pid);
  auto status = fields(proc / "status");
  auto rollup = fields(proc / "smaps_rollup");
  Footprint print{status["RssAnon"] + status["RssFile"], status["RssShmem"]};
  if (rollup.contains("Pss_Anon")) print.own = rollup["Pss_Anon"] + rollup["Pss_File"];
  return print;
}

std::string name_of(pid_t pid) {
  std::string name;
  std::getline(std::ifstream(fmt::format("/proc/{}/comm", pid)), name);
  return name;
}

std::vector<pid_t> descendants(pid_t of) {
  std::multimap<pid_t, pid_t> children;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    pid_t pid = std::atoi(entry.path().filename().c_str());
    if (pid > 0) children.emplace(static_cast<pid_t>(fields(entry.path() / "status")["PPid"]), pid);
  }
  std::vector<pid_t> all{of};
  for (std::size_t i = 0; i < all.size(); ++i) {
    auto [begin, end] = children.equal_range(all[i]);
    for (auto it = begin; it != end; ++it) all.push_back(it->second);
  }
  return all;
}

// The QEMU that works for this host may have another parent (libvirt starts it as a daemon).
std::vector<pid_t> processes_naming(const std::string& text) {
  std::vector<pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    pid_t pid = std::atoi(entry.path().filename().c_str());
    if (pid <= 0) continue;
    auto words = read_file(entry.path() / "cmdline", 1 << 16);
    if (words && words->find(text) != std::string::npos) found.push_back(pid);
  }
  return found;
}

std::string mib(std::uint64_t kib) {
  return fmt::format("{:8.1f} MiB", static_cast<double>(kib) / 1024);
}

class Run {
 public:
  explicit Run(const std::string& memory) : folder_(TemporaryDirectory::create("ahm").value()) {
    for (const char* name : {"run", "state", "data"}) fs::create_directory(folder_.path() / name);
    fs::permissions(folder_.path() / "run", fs::perms::owner_all);
    setenv("XDG_RUNTIME_DIR", (folder_.path() / "run").c_str(), 1);
    setenv("XDG_STATE_HOME", (folder_.path() / "state").c_str(), 1);
    auto output = make_pipe().value();
    SpawnSpec spec;
    spec.argv = {ANCHORHOLD_PROGRAM_DIR "/anchorhold",
                 "run",
                 "--emulate",
                 "--image",
                 anchorhold::testing::test_image()->name,
                 "--cpus",
                 "1",
                 "--memory",
                 memory,
                 "--rw",
                 (folder_.path() / "data").string(),
                 "--",
                 "sh",
                 "-c",
                 "grep -E '^(MemTotal|MemAvailable|Shmem):' /proc/meminfo; echo ready; sleep 100000"};
    spec.descriptors = {{output.write_end.get(), 1}, {2, 2}};
    child_.emplace(Child::spawn(spec).value());
    output.write_end.reset();
    char byte = 0;
    while (!said_.ends_with("ready\n")) {
      if (read(output.read_end.get(), &byte, 1) != 1) throw std::runtime_error("the guest did not start");
      said_ += byte;
    }
    std::ofstream(folder_.path() / "said") << said_;
    guest_ = fields(folder_.path() / "said");
  }
  ~Run() {
    child_->kill(SIGTERM);
    if (!child_->wait(std::chrono::seconds(10))) child_->kill(SIGTERM);
    child_->wait(std::chrono::seconds(60));
  }

  std::vector<pid_t> processes() const {
    auto all = descendants(child_->pid());
    for (pid_t pid : processes_naming(folder_.path().string())) all.push_back(pid);
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
  }
  std::map<std::string, std::uint64_t> guest() const { return guest_; }

 private:
  TemporaryDirectory folder_;
  std::optional<Child> child_;
  std::string said_;
  std::map<std::string, std::uint64_t> guest_;
};

}  // namespace

int main(int argc, char** argv) try {
  if (!anchorhold::testing::test_image()) throw std::runtime_error(anchorhold::testing::no_test_image);
  const auto memory = parse_size(argc > 1 ? argv[1] : "1G");
  if (!memory) throw std::runtime_error(memory.error().message);
  hypervisor::TestHost host;
  auto bare = bench::start_bare(host, *memory);
  const auto peer = footprint(bare.child.pid());

  Run run(fmt::format("{}M", memory->bytes >> 20));
  fmt::print("{:<18} {:>12}   {:>12}\n", "process", "its own", "shared");
  std::uint64_t ours = 0;
  std::optional<Footprint> emulator;
  for (pid_t pid : run.processes()) {
    auto name = name_of(pid);
    auto print = footprint(pid);
    fmt::print("{:<18} {}   {}\n", name, mib(print.own), mib(print.shared));
    if (name.starts_with("qemu-system"))
      emulator = print;
    else
      ours += print.own;
  }
  if (!emulator) throw std::runtime_error("no QEMU was found");
  fmt::print("{:<18} {}\n", "all but QEMU", mib(ours));
  fmt::print("{:<18} {}   {}\n", "bare QEMU", mib(peer.own), mib(peer.shared));
  auto guest = run.guest();
  fmt::print("in the guest: {} of {} used, {} of it files in memory\n",
             mib(guest["MemTotal"] - guest["MemAvailable"]), mib(guest["MemTotal"]), mib(guest["Shmem"]));
  auto ratio = [](std::uint64_t a, std::uint64_t b) {
    return static_cast<double>(a) / static_cast<double>(b);
  };
  fmt::print("ratios to bare QEMU: emulator {:.2f}, guest's memory {:.2f}, all of ours beside QEMU {:.2f}\n",
             ratio(emulator->own, peer.own), ratio(emulator->shared, peer.shared), ratio(ours, peer.own));
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "bench_memory: {}\n", error.what());
  return 1;
}
