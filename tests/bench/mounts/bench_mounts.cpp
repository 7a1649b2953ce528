// One guest, three mounts: reader and keeper (rw, with the ledger and watched) on one, QEMU's own virtiofsd
// (cache=auto) on another, and a keeper that keeps nothing on the third, for what undo costs; and the same
// work on the host. Each step is done on one after the other, in an order that changes. Prints each as it is
// done, and at the end medians, and the ratios of each round: more than 1 means ours is faster than
// virtiofsd. Needs root, as virtiofsd does, and a built image:
//   ANCHORHOLD_TEST_IMAGE=base bench_mounts [STEP…]      the steps are in guest.cpp
// ANCHORHOLD_TEST_PROGRAMS names the folder that tools/lib/guest-programs makes: without it, and without
// mkfs.erofs, `npm ci` is left out. BENCH_ROUNDS says how often each is done (3). BENCH_PROGRAMS names a
// folder with the reader and the keeper of another build: they serve the third mount then, in all steps, so
// that two builds are compared in one run. BENCH_ACCELERATOR=kvm has hardware run the guest where there is
// one: emulation makes the guest's own part of each step so large that differences of the servers vanish.
#include <algorithm>
#include <cstdlib>
#include <exception>
#include <fcntl.h>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <sstream>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>

#include "base/files.h"
#include "base/process.h"
#include "machine.h"
#include "mounts/share.h"
#include "test_image.h"

namespace anchorhold::mounts {
namespace {

namespace fs = std::filesystem;

constexpr const char* theirs = "/usr/lib/qemu/virtiofsd";
constexpr std::chrono::minutes patience{25};
constexpr int most_repository_files = 20000, old_files = 1000;

std::string variable(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value ? value : otherwise;
}

int rounds() {
  return std::atoi(variable("BENCH_ROUNDS", "3").c_str());
}

bool wants(const std::string& step) {
  const auto steps = variable("BENCH_STEPS", "");
  return steps.empty() || ("," + steps + ",").find("," + step + ",") != std::string::npos;
}

Result<UniqueFd> listen_at(const fs::path& path) {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.string().copy(address.sun_path, sizeof address.sun_path - 1);
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || listen(fd.get(), 1) != 0)
    return fail_errno(errno, path.string());
  return fd;
}

Status run_program(std::vector<std::string> argv) {
  SpawnSpec spec;
  spec.argv = {"/usr/bin/env"};
  spec.argv.insert(spec.argv.end(), argv.begin(), argv.end());
  spec.descriptors = {{2, 2}};
  auto child = ANCHORHOLD_TRY(Child::spawn(spec));
  if (auto status = child.wait(); !status.ok())
    return fail(ErrorCode::internal, argv.front() + ": " + to_string(status));
  return {};
}

// virtiofsd holds a descriptor of each file that the guest knows.
int repository_files() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return std::min<int>(most_repository_files,
                       static_cast<int>(std::min<rlim_t>(limit.rlim_max, 1u << 20)) - 2000);
}

// What the host has in each folder: a repository, old things to be removed, a project with a lock file.
Status make_content(const fs::path& folder) {
  fs::create_directories(folder / "repository");
  if (wants("git_cold") || wants("git_warm")) {
    fs::create_directory(folder / "repository");
    const timespec long_ago[2] = {{1'600'000'000, 0}, {1'600'000'000, 0}};
    for (int i = 0; i < repository_files(); ++i) {
      auto in = folder / "repository" / fmt::format("d{}", i % 400);
      if (i < 400) fs::create_directories(in);
      auto path = in / fmt::format("f{}", i);
      std::ofstream(path) << "text " << i % 100;
      utimensat(AT_FDCWD, path.c_str(), long_ago, 0);
    }
    // The index was made on another file system, as far as inodes and owners go.
    const std::vector<std::string> git{"git",
                                       "-C",
                                       (folder / "repository").string(),
                                       "-c",
                                       "user.name=a",
                                       "-c",
                                       "user.email=a@example.org",
                                       "-c",
                                       "gc.auto=0",
                                       "-c",
                                       "safe.directory=*"};
    const std::vector<std::vector<std::string>> commands{{"init", "-q"},
                                                         {"config", "core.checkStat", "minimal"},
                                                         {"config", "core.trustctime", "false"},
                                                         {"add", "-A"},
                                                         {"commit", "-qm", "all"}};
    for (const auto& command : commands) {
      auto words = git;
      words.insert(words.end(), command.begin(), command.end());
      ANCHORHOLD_CHECK(run_program(std::move(words)));
    }
  }
  for (int round = 0; round < rounds() && wants("remove_old"); ++round)
    for (int i = 0; i < old_files; ++i) {
      auto in = folder / fmt::format("old{}/d{}", round, i % 20);
      if (i < 20) fs::create_directories(in);
      std::ofstream(in / fmt::format("f{}", i)) << std::string(2000, 'x');
    }
  fs::create_directory(folder / "project");
  for (const char* name : {"package.json", "package-lock.json"})
    fs::copy_file(fs::path(ANCHORHOLD_NODE_PROJECT) / name, folder / "project" / name);
  return {};
}

// As a session serves a folder: with the ledger, and watched. The host changes nothing meanwhile, so there is
// nothing to tell the guest.
Result<std::unique_ptr<Share>> start_share(const fs::path& folder, const fs::path& socket) {
  auto rules = ANCHORHOLD_TRY(GrantRules::current());
  auto grant = ANCHORHOLD_TRY(resolve_grant(folder, Mode::rw, {}, rules));
  ShareSpec spec;
  spec.ledger_folder = folder.string() + "-ledger";
  spec.limits.no_bulk_guard = true;
  spec.on_host_change = [](const HostChange& change) {
    fmt::print(stderr, "told a change of {} that nobody made\n", change.path);
    return true;
  };
  auto share = ANCHORHOLD_TRY(Share::start(grant, std::move(spec)));
  ANCHORHOLD_CHECK(share->serve_guest(socket));
  return share;
}

// Serves until its input ends.
Status serve(const fs::path& folder, const fs::path& socket) {
  auto share = ANCHORHOLD_TRY(start_share(folder, socket));
  fmt::print("ready\n");
  std::fflush(stdout);
  char byte;
  while (read(0, &byte, 1) > 0) {
  }
  return {};
}

struct Servers {
  std::vector<std::unique_ptr<Child>> children;
  std::vector<UniqueFd> inputs;
  std::unique_ptr<Share> share;
};

// This program once more, in a folder where the programs beside it are others.
Status start_unkept(const fs::path& folder, Servers& servers) {
  auto beside = folder / "programs";
  fs::create_directory(beside);
  fs::copy_file("/proc/self/exe", beside / "bench_mounts");
  const auto others = variable("BENCH_PROGRAMS", "");
  const auto here = fs::path(ANCHORHOLD_PROGRAM_DIR);
  fs::create_symlink(
      others.empty() ? fs::path(ANCHORHOLD_KEEPER_WITHOUT_UNDO) : fs::path(others) / "anchorhold-keeper",
      beside / "anchorhold-keeper");
  fs::create_symlink((others.empty() ? here : fs::path(others)) / "anchorhold-fsd",
                     beside / "anchorhold-fsd");
  auto input = ANCHORHOLD_TRY(make_pipe());
  auto output = ANCHORHOLD_TRY(make_pipe());
  SpawnSpec spec;
  spec.argv = {(beside / "bench_mounts").string(), "--serve", (folder / "unkept").string(),
               (folder / "unkept-socket").string()};
  spec.descriptors = {{2, 2}, {input.read_end.get(), 0}, {output.write_end.get(), 1}};
  servers.children.push_back(std::make_unique<Child>(ANCHORHOLD_TRY(Child::spawn(spec))));
  servers.inputs.push_back(std::move(input.write_end));
  output.write_end.reset();
  char ready[6];
  if (ANCHORHOLD_TRY(read_full(output.read_end.get(), std::as_writable_bytes(std::span(ready)))) !=
      sizeof ready)
    return fail(ErrorCode::internal, "the share without undo does not start");
  return {};
}

Status start_theirs(const fs::path& folder, Servers& servers) {
  auto listener = ANCHORHOLD_TRY(listen_at(folder / "theirs-socket"));
  SpawnSpec spec;
  spec.argv = {theirs, "--fd=3",     "-o", "source=" + (folder / "theirs").string(),
               "-o",   "cache=auto", "-o", "sandbox=chroot"};
  spec.descriptors = {{listener.get(), 3}};
  servers.children.push_back(std::make_unique<Child>(ANCHORHOLD_TRY(Child::spawn(spec))));
  return {};
}

// The folder of programs as a file system; empty when there is none.
fs::path make_programs(const fs::path& folder) {
  const auto programs = variable("ANCHORHOLD_TEST_PROGRAMS", "");
  auto image = folder / "brought.erofs";
  if (programs.empty() || !fs::exists(fs::path(programs) / "npm-cache") || !wants("npm_ci") ||
      vsock::testing::find_program("mkfs.erofs").empty() ||
      !run_program({"mkfs.erofs", "--quiet", image.string(), programs})) {
    if (wants("npm_ci")) fmt::print("without npm ci: ANCHORHOLD_TEST_PROGRAMS names no folder with npm\n");
    return {};
  }
  return image;
}

std::vector<std::string> machine(const fs::path& qemu, const testing::TestImage& image,
                                 const fs::path& folder, const fs::path& programs) {
  // As words of the kernel's command line, which hands them on.
  std::string environment = " BENCH_SHARES=ours,theirs,unkept";
  if (variable("BENCH_PROGRAMS", "").empty()) environment += " BENCH_CHANGED=unkept";
  for (const char* name : {"BENCH_STEPS", "BENCH_ROUNDS"})
    if (const char* value = std::getenv(name)) environment += fmt::format(" {}={}", name, value);
  const auto queue = variable("BENCH_QUEUE", "128");
  std::vector<std::string> argv{qemu.string(),
                                "-M",
                                "microvm,rtc=on,memory-backend=m",
                                "-global",
                                "virtio-mmio.force-legacy=false",
                                "-cpu",
                                "max",
                                "-accel",
                                variable("BENCH_ACCELERATOR", "tcg,thread=multi"),
                                "-smp",
                                "2",
                                "-m",
                                "1024",
                                "-object",
                                "memory-backend-memfd,id=m,size=1024M,share=on",
                                "-nodefaults",
                                "-no-user-config",
                                "-display",
                                "none",
                                "-no-reboot",
                                "-serial",
                                "file:" + (folder / "console").string(),
                                "-kernel",
                                image.kernel.string(),
                                "-initrd",
                                (folder / "initrd").string(),
                                "-append",
                                vsock::testing::kernel_words() + environment};
  for (const char* share : {"ours", "theirs", "unkept"})
    argv.insert(
        argv.end(),
        {"-chardev", fmt::format("socket,id={},path={}", share, (folder / share).string() + "-socket"),
         "-device", fmt::format("vhost-user-fs-device,chardev={0},tag={0},queue-size={1}", share, queue)});
  if (!programs.empty())
    argv.insert(argv.end(), {"-drive", "if=none,id=p,format=raw,readonly=on,file=" + programs.string(),
                             "-device", "virtio-blk-device,drive=p"});
  argv.insert(argv.end(), {"-drive", "if=none,id=r,format=raw,readonly=on,file=" + image.rootfs.string(),
                           "-device", "virtio-blk-device,drive=r"});
  return argv;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

class Figures {
 public:
  void add(const std::string& line) {
    std::istringstream words(line);
    std::string kind, whose, what;
    int round = 0;
    double microseconds = 0;
    if (line.starts_with("DONE")) done_ = true;
    if (!line.starts_with("FIGURE") || !(words >> kind >> round >> whose >> what >> microseconds)) return;
    if (!all_.contains(what)) order_.push_back(what);
    all_[what][round][whose] = microseconds / 1000;
    fmt::print("{:12} round {} {:8} {:10.1f} ms\n", what, round + 1, whose, microseconds / 1000);
    std::fflush(stdout);
  }
  bool done() const { return done_; }

  void print() const {
    fmt::print("\n{:12} {:>10} {:>10} {:>6}  {:20} {:>10} {:>14} {:>10}\n", "ms", "anchorhold", "virtiofsd",
               "ratio", "of each round", "no undo", "undo costs", "no guest");
    for (const auto& what : order_) {
      auto ratios = of_each_round(what, "theirs", "ours"), undo = of_each_round(what, "ours", "unkept");
      std::string each, costs;
      for (double ratio : ratios) each += fmt::format("{:.2f} ", ratio);
      for (double ratio : undo) costs += fmt::format("{:+.0f}% ", (ratio - 1) * 100);
      fmt::print("{:12} {:10.1f} {:10.1f} {:6.2f}  {:20} {:10.1f} {:>14} {:10.1f}\n", what,
                 middle(what, "ours"), middle(what, "theirs"), median(ratios), each, middle(what, "unkept"),
                 costs, middle(what, "native"));
    }
    std::fflush(stdout);  // what is left to do is to remove the folders
  }

 private:
  std::vector<double> of_each_round(const std::string& what, const char* above, const char* below) const {
    std::vector<double> ratios;
    for (const auto& [round, whose] : all_.at(what))
      if (whose.contains(above) && whose.contains(below)) ratios.push_back(whose.at(above) / whose.at(below));
    return ratios;
  }
  double middle(const std::string& what, const char* name) const {
    std::vector<double> values;
    for (const auto& [round, whose] : all_.at(what))
      if (whose.contains(name)) values.push_back(whose.at(name));
    return median(std::move(values));
  }

  std::vector<std::string> order_;
  std::map<std::string, std::map<int, std::map<std::string, double>>> all_;  // step, round, whose
  bool done_ = false;
};

// Takes whole lines as they come, until the guest has ended.
Status follow(const fs::path& console, Child& guest, Figures& figures) {
  auto until = std::chrono::steady_clock::now() + patience;
  std::size_t taken = 0;
  for (bool ended = false; !ended;) {
    ended = guest.wait(std::chrono::milliseconds(200)).has_value();
    if (!ended && std::chrono::steady_clock::now() > until)
      return fail(ErrorCode::deadline_exceeded, "the guest takes too long");
    auto text = read_file(console, 4 << 20).value_or("");
    for (std::size_t end; (end = text.find('\n', taken)) != text.npos; taken = end + 1)
      figures.add(text.substr(taken, end - taken));
    if (ended && !figures.done())
      return fail(ErrorCode::internal, "the guest did not come to its end:\n" + text);
  }
  return {};
}

// The same work where there is no guest.
Status measure_native(const fs::path& folder, Figures& figures) {
  auto pipe = ANCHORHOLD_TRY(make_pipe());
  SpawnSpec spec;
  spec.argv = {ANCHORHOLD_GUEST_INIT, (folder / "native").string()};
  const auto programs = variable("ANCHORHOLD_TEST_PROGRAMS", "");
  std::vector<std::string> environment{"PATH=/usr/bin:/bin", "HOME=" + folder.string(),
                                       "BENCH_STEPS=" + variable("BENCH_STEPS", ""),
                                       "BENCH_ROUNDS=" + std::to_string(rounds())};
  if (!programs.empty() && !vsock::testing::find_program("npm").empty()) {
    fs::copy(fs::path(programs) / "npm-cache", folder / "npm-cache", fs::copy_options::recursive);
    environment.push_back("BENCH_NPM_CACHE=" + (folder / "npm-cache").string());
  }
  spec.environment = environment;
  spec.descriptors = {{2, 2}, {pipe.write_end.get(), 1}};
  auto child = ANCHORHOLD_TRY(Child::spawn(spec));
  pipe.write_end.reset();
  std::string output(1 << 16, '\0');
  output.resize(ANCHORHOLD_TRY(read_full(pipe.read_end.get(), std::as_writable_bytes(std::span(output)))));
  child.wait();
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) figures.add(line);
  return {};
}

Status run() {
  const auto& image = testing::test_image();
  auto qemu = vsock::testing::find_program("qemu-system-x86_64");
  if (!image || qemu.empty() || !fs::exists(theirs) || geteuid() != 0)
    return fail(ErrorCode::failed_precondition,
                "needs root, qemu-system-x86, qemu-system-common, and ANCHORHOLD_TEST_IMAGE naming an image");
  auto directory = ANCHORHOLD_TRY(TemporaryDirectory::create("ahb"));
  const auto& folder = directory.path();
  ANCHORHOLD_CHECK(
      write_file_atomic(folder / "initrd", vsock::testing::initrd_with_init(ANCHORHOLD_GUEST_INIT)));
  fmt::print("a repository of {} files\n", repository_files());
  ANCHORHOLD_CHECK(make_content(folder / "ours"));
  for (const char* name : {"theirs", "unkept", "native"})
    ANCHORHOLD_CHECK(run_program({"cp", "-a", (folder / "ours").string(), (folder / name).string()}));
  auto programs = make_programs(folder);
  Figures figures;
  {
    Servers servers;
    servers.share = ANCHORHOLD_TRY(start_share(folder / "ours", folder / "ours-socket"));
    ANCHORHOLD_CHECK(start_theirs(folder, servers));
    ANCHORHOLD_CHECK(start_unkept(folder, servers));
    SpawnSpec spec;
    spec.argv = machine(qemu, *image, folder, programs);
    spec.descriptors = {{2, 2}};
    auto guest = ANCHORHOLD_TRY(Child::spawn(spec));
    ANCHORHOLD_CHECK(follow(folder / "console", guest, figures));
  }
  ANCHORHOLD_CHECK(measure_native(folder, figures));
  figures.print();
  return {};
}

}  // namespace
}  // namespace anchorhold::mounts

int main(int argc, char** argv) try {
  using namespace anchorhold;
  if (argc == 4 && std::string_view(argv[1]) == "--serve") {
    auto done = mounts::serve(argv[2], argv[3]);
    if (!done) fmt::print(stderr, "bench_mounts: {}\n", done.error().message);
    return done ? 0 : 1;
  }
  std::string steps;
  for (int i = 1; i < argc; ++i) steps += (i > 1 ? "," : "") + std::string(argv[i]);
  if (!steps.empty()) setenv("BENCH_STEPS", steps.c_str(), 1);
  if (auto done = mounts::run(); !done) {
    fmt::print(stderr, "bench_mounts: {}\n", done.error().message);
    return 1;
  }
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "bench_mounts: {}\n", error.what());
  return 1;
}
