// The backend's small parts: why a guest ended, the bounded log, versions, acceleration, the KVM probe, the
// launcher's view.
#include <atomic>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sstream>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "base/files.h"
#include "base/seal.h"
#include "launcher/view.h"
#include "libvirt/acceleration.h"
#include "libvirt/bounded_log.h"
#include "libvirt/console_pump.h"
#include "libvirt/embed_folder.h"
#include "libvirt/emulator.h"
#include "libvirt/exit_cause.h"
#include "libvirt/kvm_probe.h"
#include "libvirt/tsc.h"
#include "libvirt/worker_pool.h"

namespace anchorhold::hypervisor {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string slurp(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

struct EndCase {
  EndFacts facts;
  ExitCause cause;
  const char* detail;
};

TEST(ExitCause, IsJudgedFromWhatWasSeen) {
  const std::vector<EndCase> cases = {
      {{.shutdown_reason = "guest-shutdown"}, ExitCause::guest_shutdown, ""},
      {{.shutdown_reason = "guest-reset", .console_tail = "Kernel panic"},
       ExitCause::guest_reset,
       "Kernel panic"},
      {{.shutdown_reason = "guest-panic"}, ExitCause::guest_reset, ""},
      {{.stop_requested = true}, ExitCause::stopped, ""},
      {{.stop_requested = true, .shutdown_reason = "guest-shutdown"},
       ExitCause::stopped,
       "powered off when asked"},
      {{.time_limit = true, .wall_time = std::chrono::seconds(90)}, ExitCause::time_limit, "1m 30s"},
      {{.stop_requested = true, .time_limit = true}, ExitCause::time_limit, "limit"},
      {{}, ExitCause::process_lost, "killed from outside or crashed"},
      {{.oom_kills = 1}, ExitCause::process_lost, "ran out of memory"},
      {{.shutdown_reason = "host-signal", .qemu_tail = "terminating on signal 15 from pid 7"},
       ExitCause::process_lost,
       "signal 15 from pid 7"},
  };
  for (const auto& test : cases) {
    MachineExit exit = exit_from(test.facts);
    EXPECT_EQ(exit.cause, test.cause) << to_string(exit.cause) << " for " << test.facts.shutdown_reason;
    EXPECT_THAT(exit.detail, HasSubstr(test.detail));
  }
}

TEST(BoundedLog, KeepsTheEndAndNeverGrowsBeyondItsLimit) {
  auto folder = TemporaryDirectory::create().value();
  auto path = folder.path() / "log";
  auto log = BoundedLog::create(path, ByteSize{4096}).value();
  std::string all;
  for (int i = 0; i < 3000; ++i) {
    std::string line = "line " + std::to_string(i) + "\n";
    all += line;
    ASSERT_TRUE(log.append(std::as_bytes(std::span(line))));
    ASSERT_LE(std::filesystem::file_size(path), 4096u);
  }
  std::string kept = slurp(path);
  EXPECT_GE(kept.size(), 2000u);
  EXPECT_TRUE(all.ends_with(kept));
  std::string huge(100'000, 'x');
  huge += "the end";
  ASSERT_TRUE(log.append(std::as_bytes(std::span(huge))));
  EXPECT_LE(std::filesystem::file_size(path), 4096u);
  EXPECT_TRUE(slurp(path).ends_with("the end"));
}

TEST(BoundedLog, FollowsNoLinkAndNamesWhatFailed) {
  auto folder = TemporaryDirectory::create().value();
  std::filesystem::create_symlink("/dev/null", folder.path() / "link");
  auto log = BoundedLog::create(folder.path() / "link", ByteSize{4096});
  ASSERT_FALSE(log);
  EXPECT_THAT(log.error().message, HasSubstr("link"));
}

TEST(ConsolePump, HasEverythingInTheLogWhenItIsGone) {
  auto folder = TemporaryDirectory::create().value();
  auto socket_path = folder.path() / "socket";
  ConsoleLog log{folder.path() / "console", ByteSize::kib(64)};
  auto pump = ConsolePump::start(socket_path, log).value();
  UniqueFd client(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, socket_path.c_str(), sizeof address.sun_path - 1);
  ASSERT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  std::string text = "boot\n\x1b[2Jevil\x07\nlast line\n";
  ASSERT_TRUE(write_all(client.get(), std::as_bytes(std::span(text))));
  pump.reset();
  EXPECT_EQ(slurp(log.path), text);
  EXPECT_FALSE(std::filesystem::exists(socket_path));
  EXPECT_EQ(last_lines(log.path, 2, 1000), "[2Jevil\nlast line");
  EXPECT_EQ(last_lines(log.path, 9, 1000), "boot\n[2Jevil\nlast line");
}

TEST(ConsolePump, EndsWithoutAGuest) {
  auto folder = TemporaryDirectory::create().value();
  auto pump = ConsolePump::start(folder.path() / "s", {folder.path() / "c", ByteSize::kib(4)});
  ASSERT_TRUE(pump);
  pump->reset();
  EXPECT_EQ(slurp(folder.path() / "c"), "");
}

TEST(QemuVersion, IsReadFromWhatTheProgramSays) {
  auto debian = parse_qemu_version("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg)\nCopyright …\n");
  ASSERT_TRUE(debian);
  EXPECT_EQ(*debian, (QemuVersion{7, 2, 22}));
  EXPECT_TRUE(check_qemu_version(*debian));
  EXPECT_TRUE(check_qemu_version(parse_qemu_version("QEMU emulator version 10.0.0").value()));
  auto old = check_qemu_version(parse_qemu_version("QEMU emulator version 6.2.0").value());
  ASSERT_FALSE(old);
  EXPECT_THAT(old.error().message, HasSubstr("6.2.0 is too old"));
  for (const char* wrong :
       {"", "QEMU", "qemu-img version 7.2.0", "QEMU emulator version x", "QEMU emulator version 7"})
    EXPECT_FALSE(parse_qemu_version(wrong)) << wrong;
}

TEST(Emulator, IsNamedWithItsFixWhenMissing) {
  auto missing = find_emulator("/nonexistent/qemu");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::failed_precondition);
  EXPECT_THAT(missing.error().hint, HasSubstr("apt-get install"));
  EXPECT_FALSE(find_emulator("/tmp"));
  auto other = ask_qemu_version("/bin/true");
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().message, HasSubstr("does not say a version"));
}

TEST(Acceleration, IsDecidedByTheProbe) {
  using Outcome = KvmVerdict::Outcome;
  const KvmVerdict works{Outcome::works, ""}, absent{Outcome::absent, ""}, denied{Outcome::no_permission, ""},
      broken{Outcome::broken, "it hangs"};
  auto hardware = decide(AccelerationChoice::automatic, works, true, "/dev/kvm").value();
  EXPECT_EQ(hardware.acceleration, Acceleration::hardware);
  EXPECT_TRUE(hardware.why_no_hardware.empty());
  EXPECT_EQ(decide(AccelerationChoice::emulation, works, true, "/dev/kvm")->acceleration,
            Acceleration::emulation);
  EXPECT_EQ(decide(AccelerationChoice::automatic, works, false, "/dev/kvm")->acceleration,
            Acceleration::emulation);
  for (const auto& [verdict, words] :
       {std::pair(absent, "has no /dev/kvm"), std::pair(denied, "may not open /dev/kvm"),
        std::pair(broken, "it hangs")}) {
    auto decision = decide(AccelerationChoice::automatic, verdict, true, "/dev/kvm").value();
    EXPECT_EQ(decision.acceleration, Acceleration::emulation);
    EXPECT_THAT(decision.why_no_hardware, HasSubstr(words));
    auto insisted = decide(AccelerationChoice::hardware, verdict, true, "/dev/kvm");
    ASSERT_FALSE(insisted);
    EXPECT_THAT(insisted.error().message, HasSubstr(words));
    EXPECT_FALSE(insisted.error().hint.empty());
  }
}

TEST(KvmProbe, TellsApartWhyThereIsNone) {
  EXPECT_EQ(probe_kvm("/nonexistent/kvm").outcome, KvmVerdict::Outcome::absent);
  auto other = probe_kvm("/dev/null");
  EXPECT_EQ(other.outcome, KvmVerdict::Outcome::broken);
  EXPECT_THAT(other.detail, HasSubstr("version"));
  auto folder = TemporaryDirectory::create().value();
  auto closed = folder.path() / "kvm";
  std::ofstream(closed) << "";
  chmod(closed.c_str(), 0);
  // Root may open it, and finds that it is no KVM.
  EXPECT_EQ(probe_kvm(closed).outcome,
            geteuid() == 0 ? KvmVerdict::Outcome::broken : KvmVerdict::Outcome::no_permission);
}

TEST(KvmProbe, IsNotHeldUpByADeviceThatHangs) {
  auto folder = TemporaryDirectory::create().value();
  auto fifo = folder.path() / "kvm";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  // Opening this one for reading and writing succeeds; asking it anything is an error. Without a writer
  // reading blocks.
  EXPECT_EQ(probe_kvm(fifo, std::chrono::milliseconds(2000)).outcome, KvmVerdict::Outcome::broken);
  auto verdict = probe_kvm("/dev/kvm", std::chrono::milliseconds(0));
  EXPECT_NE(verdict.outcome, KvmVerdict::Outcome::works);
}

TEST(Tsc, IsPlausibleWhereItIsConstant) {
  auto rate = measure_tsc_khz();
  if (!rate) GTEST_SKIP() << "this processor's time stamp counter has no constant rate";
  EXPECT_GT(*rate, 500'000u);
  EXPECT_LT(*rate, 8'000'000u);
}

TEST(EmbedFolder, EscapesItsUri) {
  EXPECT_EQ(embed_uri("/run/user/1000/anchorhold/embed-1"),
            "qemu:///embed?root=/run/user/1000/anchorhold/embed-1");
  EXPECT_EQ(embed_uri("/a b&c"), "qemu:///embed?root=/a%20b%26c");
}

TEST(EmbedFolder, ConfiguresQemuForTheUserWhoRunsIt) {
  for (bool as_root : {false, true}) {
    std::string text = qemu_conf(as_root);
    EXPECT_THAT(text, HasSubstr("stdio_handler = \"file\""));
    EXPECT_THAT(text, HasSubstr("seccomp_sandbox = 1"));
  }
  EXPECT_THAT(qemu_conf(true), HasSubstr("user = \"root\""));
  EXPECT_THAT(qemu_conf(false), Not(HasSubstr("user")));
}

TEST(EmbedFolder, RefusesANameTooLongForSockets) {
  auto folder = TemporaryDirectory::create().value();
  auto made = EmbedFolder::create(folder.path() / std::string(80, 'x'), folder.path() / "cache");
  ASSERT_FALSE(made);
  // As root the missing user of libvirt is found first.
  EXPECT_THAT(made.error().message, testing::AnyOf(HasSubstr("too long a name"), HasSubstr("libvirt-qemu")));
  EXPECT_FALSE(made.error().hint.empty());
}

TEST(WorkerPool, RunsAMachinesTasksInOrderAndFinishesAll) {
  std::vector<int> order;
  {
    WorkerPool pool(4);
    auto strand = std::make_shared<Strand>(pool);
    for (int i = 0; i < 500; ++i) strand->post([&order, i] { order.push_back(i); });
  }
  ASSERT_EQ(order.size(), 500u);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST(View, SurvivesTheWayThroughTheEnvironment) {
  QemuView view{{"/a b", "/c\"d"}, {"/e,f\\g"}};
  auto back = decode_view(encode_view(view));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->read, view.read);
  EXPECT_EQ(back->write, view.write);
  for (const char* wrong : {"", "{}", "[]", R"({"read":[],"write":[1]})", R"({"read":["x"],"write":[]})",
                            R"({"read":{},"write":[]})"})
    EXPECT_FALSE(decode_view(wrong)) << wrong;
}

TEST(View, HidesEverythingElse) {
  if (landlock_abi() <= 0) GTEST_SKIP() << "this kernel has no Landlock";
  auto folder = TemporaryDirectory::create().value();
  auto seen = folder.path() / "seen", hidden = folder.path() / "hidden", own = folder.path() / "own";
  std::ofstream(seen) << "1";
  std::ofstream(hidden) << "1";
  std::filesystem::create_directory(own);
  pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (!restrict_to({{seen}, {own}})) _exit(10);
    if (open(seen.c_str(), O_RDONLY) < 0) _exit(11);
    if (open(seen.c_str(), O_WRONLY) >= 0) _exit(12);
    if (open(hidden.c_str(), O_RDONLY) >= 0) _exit(13);
    if (open("/etc/passwd", O_RDONLY) >= 0) _exit(14);
    if (open((own / "new").c_str(), O_WRONLY | O_CREAT, 0600) < 0) _exit(15);
    if (open((folder.path() / "new").c_str(), O_WRONLY | O_CREAT, 0600) >= 0) _exit(16);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace anchorhold::hypervisor
