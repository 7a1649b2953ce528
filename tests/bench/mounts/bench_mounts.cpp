// One guest, two mounts: reader and keeper (rw, with the ledger) on one, QEMU's virtiofsd (cache=auto) on the
// other. Prints medians and ratios; more than 1 means ours is faster. Needs root, as virtiofsd does, and the
// kernel of a built image:
//   ANCHORHOLD_TEST_IMAGE=FOLDER bench_mounts      a folder with vmlinux
#include <algorithm>
#include <cstdlib>
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
#include "mounts/programs.h"

namespace anchorhold::mounts {
namespace {

constexpr const char* theirs = "/usr/lib/qemu/virtiofsd";
constexpr std::chrono::minutes patience{20};

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
  std::vector<UniqueFd> kept;
};

Status start_ours(const std::filesystem::path& folder, Servers& servers) {
  for (const char* name : {"grant", "ledger"}) std::filesystem::create_directory(folder / name);
  UniqueFd root(open((folder / "grant").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  auto listener = ANCHORHOLD_TRY(listen_at(folder / "ours"));
  auto between = ANCHORHOLD_TRY(socket_pair(SOCK_SEQPACKET));
  auto reader_reports = ANCHORHOLD_TRY(socket_pair(SOCK_SEQPACKET));
  auto keeper_reports = ANCHORHOLD_TRY(socket_pair(SOCK_SEQPACKET));
  SpawnSpec keeper;
  keeper.argv = {std::string(ANCHORHOLD_PROGRAM_DIR) + "/anchorhold-keeper",
                 "--name",
                 "bench",
                 "--mode",
                 "rw",
                 "--ledger",
                 (folder / "ledger").string(),
                 "--clients",
                 "1"};
  keeper.descriptors = {{2, 2},
                        {root.get(), keeper_fd::root},
                        {keeper_reports.second.get(), keeper_fd::reports},
                        {between.second.get(), keeper_fd::first_client}};
  servers.children.push_back(ANCHORHOLD_TRY(Child::spawn(keeper)));
  SpawnSpec reader;
  reader.argv = {std::string(ANCHORHOLD_PROGRAM_DIR) + "/anchorhold-fsd", "--name", "bench", "--mode", "rw"};
  reader.descriptors = {{2, 2},
                        {listener.get(), reader_fd::listener},
                        {root.get(), reader_fd::root},
                        {reader_reports.second.get(), reader_fd::reports},
                        {between.first.get(), reader_fd::keeper}};
  servers.children.push_back(ANCHORHOLD_TRY(Child::spawn(reader)));
  servers.kept.push_back(std::move(reader_reports.first));
  servers.kept.push_back(std::move(keeper_reports.first));
  return {};
}

Status start_theirs(const std::filesystem::path& folder, Servers& servers) {
  std::filesystem::create_directory(folder / "shared");
  auto listener = ANCHORHOLD_TRY(listen_at(folder / "theirs"));
  SpawnSpec spec;
  spec.argv = {theirs, "--fd=3",     "-o", "source=" + (folder / "shared").string(),
               "-o",   "cache=auto", "-o", "sandbox=chroot"};
  spec.descriptors = {{listener.get(), 3}};
  servers.children.push_back(ANCHORHOLD_TRY(Child::spawn(spec)));
  return {};
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
          fmt::format("console=ttyS0 quiet panic=-1 reboot=t pci=off tsc=reliable tsc_early_khz={}",
                      vsock::testing::tsc_khz()),
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

Result<Figures> figures_of(const std::filesystem::path& console) {
  std::ifstream in(console);
  Figures figures;
  bool done = false;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string kind, whose, what;
    double microseconds = 0;
    if (line.starts_with("DONE")) done = true;
    if (line.starts_with("FIGURE") && words >> kind >> whose >> what >> microseconds)
      figures[what][whose].push_back(microseconds / 1000);
  }
  if (!done)
    return fail(ErrorCode::internal, "the guest did not come to its end; its console is " + console.string());
  return figures;
}

Status run() {
  const char* image = std::getenv("ANCHORHOLD_TEST_IMAGE");
  auto qemu = vsock::testing::find_program("qemu-system-x86_64");
  auto kernel = std::filesystem::path(image ? image : "") / "vmlinux";
  if (!image || qemu.empty() || !std::filesystem::exists(kernel) || !std::filesystem::exists(theirs) ||
      geteuid() != 0)
    return fail(ErrorCode::failed_precondition,
                "needs root, qemu-system-x86, qemu-system-common, and ANCHORHOLD_TEST_IMAGE naming a folder "
                "with vmlinux");
  auto folder = ANCHORHOLD_TRY(TemporaryDirectory::create("ahb"));
  ANCHORHOLD_CHECK(
      write_file_atomic(folder.path() / "initrd", vsock::testing::initrd_with_init(ANCHORHOLD_GUEST_INIT)));
  Servers servers;
  ANCHORHOLD_CHECK(start_ours(folder.path(), servers));
  ANCHORHOLD_CHECK(start_theirs(folder.path(), servers));
  SpawnSpec spec;
  spec.argv = machine(qemu, kernel, folder.path());
  spec.descriptors = {{2, 2}};
  auto guest = ANCHORHOLD_TRY(Child::spawn(spec));
  if (!guest.wait(patience)) return fail(ErrorCode::deadline_exceeded, "the guest takes too long");
  auto figures = ANCHORHOLD_TRY(figures_of(folder.path() / "console"));
  fmt::print("{:12} {:>10} {:>10} {:>7}\n", "ms", "anchorhold", "virtiofsd", "ratio");
  for (const auto& [what, whose] : figures) {
    double mine = median(whose.at("ours")), other = median(whose.at("theirs"));
    fmt::print("{:12} {:10.1f} {:10.1f} {:7.2f}\n", what, mine, other, other / mine);
  }
  return {};
}

}  // namespace
}  // namespace anchorhold::mounts

int main() {
  if (auto done = anchorhold::mounts::run(); !done) {
    fmt::print(stderr, "bench_mounts: {}\n", done.error().message);
    return 1;
  }
  return 0;
}
