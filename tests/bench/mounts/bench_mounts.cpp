// One guest, two mounts: reader and keeper (rw, with the ledger) on one, QEMU's virtiofsd (cache=auto) on the
// other. Prints medians and ratios; more than 1 means ours is faster. Needs root, as virtiofsd does, and the
// kernel of a built image:
//   ANCHORHOLD_TEST_IMAGE=base bench_mounts [STEP…]      the steps are in guest.cpp
// BENCH_ROUNDS in the environment says how often each is done (3).
#include <algorithm>
#include <cstdlib>
#include <exception>
#include <fcntl.h>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <sstream>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/files.h"
#include "base/process.h"
#include "machine.h"
#include "mounts/share.h"
#include "test_image.h"

namespace anchorhold::mounts {
namespace {

constexpr const char* theirs = "/usr/lib/qemu/virtiofsd";
constexpr std::chrono::minutes patience{20};
// As many files as virtiofsd, which holds a descriptor of each that the guest knows, can serve where 20,000
// are allowed.
constexpr int repository_files = 12000;

Result<UniqueFd> listen_at(const std::filesystem::path& path) {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.string().copy(address.sun_path, sizeof address.sun_path - 1);
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || listen(fd.get(), 1) != 0)
    return fail_errno(errno, path.string());
  return fd;
}

struct Servers {
  std::vector<Child> children;
  std::unique_ptr<Share> share;
};

void make_repository(const std::filesystem::path& folder) {
  for (int i = 0; i < repository_files; ++i) {
    auto in = folder / "repository" / fmt::format("d{}", i % 400);
    if (i < 400) std::filesystem::create_directories(in);
    std::ofstream(in / fmt::format("f{}", i)) << "text";
  }
}

// As a session serves a folder: with the ledger, and watched. The host changes nothing meanwhile, so there is
// nothing to tell the guest.
Status start_ours(const std::filesystem::path& folder, Servers& servers) {
  std::filesystem::create_directory(folder / "grant");
  make_repository(folder / "grant");
  auto rules = ANCHORHOLD_TRY(GrantRules::current());
  auto grant = ANCHORHOLD_TRY(resolve_grant(folder / "grant", Mode::rw, {}, rules));
  ShareSpec spec;
  spec.ledger_folder = folder / "ledger";
  spec.on_host_change = [](const HostChange& change) {
    fmt::print(stderr, "told a change of {} that nobody made\n", change.path);
    return true;
  };
  servers.share = ANCHORHOLD_TRY(Share::start(grant, std::move(spec)));
  return servers.share->serve_guest(folder / "ours");
}

// The same work where there is no guest.
Result<std::string> native_output(const std::filesystem::path& folder) {
  std::filesystem::create_directory(folder / "native");
  make_repository(folder / "native");
  auto pipe = ANCHORHOLD_TRY(make_pipe());
  SpawnSpec spec;
  spec.argv = {ANCHORHOLD_GUEST_INIT, (folder / "native").string()};
  spec.descriptors = {{2, 2}, {pipe.write_end.get(), 1}};
  auto child = ANCHORHOLD_TRY(Child::spawn(spec));
  pipe.write_end.reset();
  std::string output(1 << 16, '\0');
  output.resize(ANCHORHOLD_TRY(read_full(pipe.read_end.get(), std::as_writable_bytes(std::span(output)))));
  child.wait();
  return output;
}

Status start_theirs(const std::filesystem::path& folder, Servers& servers) {
  std::filesystem::create_directory(folder / "shared");
  make_repository(folder / "shared");
  auto listener = ANCHORHOLD_TRY(listen_at(folder / "theirs"));
  SpawnSpec spec;
  spec.argv = {theirs, "--fd=3",     "-o", "source=" + (folder / "shared").string(),
               "-o",   "cache=auto", "-o", "sandbox=chroot"};
  spec.descriptors = {{listener.get(), 3}};
  servers.children.push_back(ANCHORHOLD_TRY(Child::spawn(spec)));
  return {};
}

// As words of the kernel's command line, which hands them on.
std::string guest_environment() {
  std::string words;
  for (const char* name : {"BENCH_STEPS", "BENCH_ROUNDS"})
    if (const char* value = std::getenv(name)) words += fmt::format(" {}={}", name, value);
  return words;
}

std::vector<std::string> machine(const std::filesystem::path& qemu, const std::filesystem::path& kernel,
                                 const std::filesystem::path& folder) {
  auto console = "file:" + (folder / "console").string();
  return {qemu.string(),
          "-M",
          "microvm,rtc=on,memory-backend=m",
          "-global",
          "virtio-mmio.force-legacy=false",
          "-cpu",
          "max",
          "-accel",
          "tcg,thread=multi",
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
          console,
          "-kernel",
          kernel.string(),
          "-initrd",
          (folder / "initrd").string(),
          "-append",
          vsock::testing::kernel_words() + guest_environment(),
          "-chardev",
          "socket,id=a,path=" + (folder / "ours").string(),
          "-device",
          "vhost-user-fs-device,chardev=a,tag=ours,queue-size=128",
          "-chardev",
          "socket,id=b,path=" + (folder / "theirs").string(),
          "-device",
          "vhost-user-fs-device,chardev=b,tag=theirs,queue-size=128"};
}

using Figures = std::map<std::string, std::map<std::string, std::vector<double>>>;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

bool add_figures(std::istream& in, Figures& figures) {
  bool done = false;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string kind, whose, what;
    double microseconds = 0;
    if (line.starts_with("DONE")) done = true;
    if (line.starts_with("FIGURE") && words >> kind >> whose >> what >> microseconds)
      figures[what][whose].push_back(microseconds / 1000);
  }
  return done;
}

Status run() {
  const auto& image = testing::test_image();
  auto qemu = vsock::testing::find_program("qemu-system-x86_64");
  if (!image || qemu.empty() || !std::filesystem::exists(theirs) || geteuid() != 0)
    return fail(ErrorCode::failed_precondition,
                "needs root, qemu-system-x86, qemu-system-common, and ANCHORHOLD_TEST_IMAGE naming an image");
  auto folder = ANCHORHOLD_TRY(TemporaryDirectory::create("ahb"));
  ANCHORHOLD_CHECK(
      write_file_atomic(folder.path() / "initrd", vsock::testing::initrd_with_init(ANCHORHOLD_GUEST_INIT)));
  Servers servers;
  ANCHORHOLD_CHECK(start_ours(folder.path(), servers));
  ANCHORHOLD_CHECK(start_theirs(folder.path(), servers));
  SpawnSpec spec;
  spec.argv = machine(qemu, image->kernel, folder.path());
  spec.descriptors = {{2, 2}};
  auto guest = ANCHORHOLD_TRY(Child::spawn(spec));
  if (!guest.wait(patience)) return fail(ErrorCode::deadline_exceeded, "the guest takes too long");
  Figures figures;
  std::ifstream console(folder.path() / "console");
  if (!add_figures(console, figures))
    return fail(ErrorCode::internal, "the guest did not come to its end:\n" +
                                         read_file(folder.path() / "console", 1 << 20).value_or(""));
  std::istringstream native(ANCHORHOLD_TRY(native_output(folder.path())));
  add_figures(native, figures);
  fmt::print("{:12} {:>10} {:>10} {:>7} {:>10}\n", "ms", "anchorhold", "virtiofsd", "ratio", "no guest");
  for (const auto& [what, whose] : figures) {
    double mine = median(whose.at("ours")), other = median(whose.at("theirs"));
    fmt::print("{:12} {:10.1f} {:10.1f} {:7.2f} {:10.1f}\n", what, mine, other, other / mine,
               median(whose.at("native")));
  }
  return {};
}

}  // namespace
}  // namespace anchorhold::mounts

int main(int argc, char** argv) try {
  std::string steps;
  for (int i = 1; i < argc; ++i) steps += (i > 1 ? "," : "") + std::string(argv[i]);
  if (!steps.empty()) setenv("BENCH_STEPS", steps.c_str(), 1);
  if (auto done = anchorhold::mounts::run(); !done) {
    fmt::print(stderr, "bench_mounts: {}\n", done.error().message);
    return 1;
  }
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "bench_mounts: {}\n", error.what());
  return 1;
}
