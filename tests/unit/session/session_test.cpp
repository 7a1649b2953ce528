#include "session/session.h"

#include <fstream>
#include <future>
#include <sys/socket.h>

#include "session_fixture.h"

namespace anchorhold::session {
namespace {

using hypervisor::ExitCause;
using Names = std::vector<std::string>;

std::string output_of(Session& session, Guest& guest, const std::string& command) {
  ExecSpec spec;
  spec.shell_command = command;
  auto exec = session.start_exec(guest, spec);
  EXPECT_TRUE(exec) << exec.error().message;
  std::string output;
  for (;;) {
    auto piece = (*exec)->read_any();
    EXPECT_TRUE(piece) << piece.error().message;
    if (!piece || !*piece) break;
    output += (*piece)->bytes;
  }
  session.exec_ended(guest, (*exec)->id(), (*exec)->wait());
  return output;
}

TEST_F(SessionTest, StartsRunsAndEndsWithAnEventForEachStep) {
  auto session = open_session();
  EXPECT_TRUE(event_names().empty());
  auto guest = session->guest();
  ASSERT_TRUE(guest) << guest.error().message;
  std::vector<std::string> stages;
  for (const auto& [stage, time] : (*guest)->stages()) stages.emplace_back(to_string(stage));
  EXPECT_EQ(stages, (Names{"image", "devices", "machine", "boot", "hello", "clock", "mounts"}));
  EXPECT_EQ(output_of(*session, **guest, "echo hello"), "hello\n");
  auto ahead = (*guest)->client().set_clock(std::chrono::system_clock::now());
  ASSERT_TRUE(ahead) << ahead.error().message;
  EXPECT_LT(std::chrono::abs(*ahead), std::chrono::minutes(5));  // it had been set to now
  EXPECT_EQ(session->guest()->get(), guest->get());              // the same while it lives
  guest->reset();
  session->close("done");
  EXPECT_EQ(event_names(), (Names{"anchorhold.vm.start", "anchorhold.vm.ready", "anchorhold.exec.start",
                                  "anchorhold.exec.end", "anchorhold.vm.stop"}));
  EXPECT_EQ(cause_of_last("anchorhold.vm.stop"), "done");
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path() / "run/anchorhold/guests"));
  EXPECT_FALSE(door().open);
}

TEST_F(SessionTest, TheMachineIsWhatTheSpecAsksFor) {
  guest_spec_.cpus = 3;
  guest_spec_.memory = ByteSize::mib(640);
  guest_spec_.wall_time = std::chrono::minutes(7);
  hypervisor::MachineSpec seen;
  when_running = [&](const hypervisor::MachineSpec& machine) {
    seen = machine;
    connect_agent();
  };
  auto session = open_session();
  ASSERT_TRUE(session->guest());
  EXPECT_EQ(seen.vcpus, 3u);
  EXPECT_EQ(seen.wall_time, std::chrono::minutes(7));
  EXPECT_EQ(seen.memory, ByteSize::mib(640));
  EXPECT_TRUE(seen.kernel.string().ends_with("vmlinux"));
  // Nothing is granted: only the devices that wait for what may be.
  ASSERT_EQ(seen.shares.size(), guest_spec_.spare_devices);
  for (const auto& share : seen.shares) EXPECT_TRUE(share.tag.starts_with("spare.")) << share.tag;
  ASSERT_EQ(seen.kernel_words.size(), 1u);
  EXPECT_NE(seen.kernel_words[0].find("anchorhold.root="), std::string::npos) << seen.kernel_words[0];
}

TEST_F(SessionTest, AMissingImageIsTheCauseAndNothingIsStarted) {
  image_ = "other";
  auto session = open_session();
  auto guest = session->guest();
  ASSERT_FALSE(guest);
  EXPECT_NE(guest.error().message.find("other"), std::string::npos);
  EXPECT_FALSE(guest.error().hint.empty());
  EXPECT_TRUE(event_names("anchorhold.vm.start").empty());
}

TEST_F(SessionTest, AChangedImageIsNotStarted) {
  std::ofstream(folder_.path() / "store/stages/rootfs-1/rootfs.img", std::ios::in | std::ios::out).seekp(100)
      << "X";
  auto session = open_session();
  auto guest = session->guest();
  ASSERT_FALSE(guest);
  EXPECT_NE(guest.error().message.find("rootfs.img"), std::string::npos) << guest.error().message;
  EXPECT_EQ(event_names(), (Names{"anchorhold.vm.fail"}));
}

TEST_F(SessionTest, WithoutAHypervisorTheReasonIsSaidAndAskedForAgain) {
  no_hypervisor_ = Error{ErrorCode::failed_precondition, "QEMU is missing", "install it"};
  auto session = open_session();
  EXPECT_EQ(session->guest().error().message, "QEMU is missing");
  EXPECT_EQ(cause_of_last("anchorhold.vm.fail"), "QEMU is missing");
  no_hypervisor_.reset();
  EXPECT_TRUE(session->guest());
}

TEST_F(SessionTest, AGuestThatDiesInItsBootIsNotWaitedForAndItsLastWordsAreSaid) {
  when_running = [&](const hypervisor::MachineSpec& machine) {
    std::ofstream(machine.console.path) << "booting\r\nKernel panic - not syncing: \x1b[31mno init\n";
    fake()->end_guest(machine.id, {ExitCause::guest_reset, ""});
  };
  auto session = open_session();
  auto guest = session->guest();
  ASSERT_FALSE(guest);
  EXPECT_NE(guest.error().message.find("Kernel panic - not syncing"), std::string::npos)
      << guest.error().message;
  EXPECT_EQ(guest.error().message.find('\x1b'), std::string::npos);
  EXPECT_EQ(event_names(), (Names{"anchorhold.vm.start", "anchorhold.vm.fail"}));
  EXPECT_EQ(fake()->running(), 0u);
}

TEST_F(SessionTest, AGuestThatNeverReportsEndsAtTheLimit) {
  guest_spec_.boot_limit = std::chrono::milliseconds(50);
  when_running = [](const hypervisor::MachineSpec&) {};
  auto session = open_session();
  auto guest = session->guest();
  ASSERT_FALSE(guest);
  EXPECT_EQ(guest.error().code, ErrorCode::deadline_exceeded);
  EXPECT_EQ(fake()->running(), 0u);
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path() / "run/anchorhold/guests"));
}

TEST_F(SessionTest, AStrangerAtTheDoorFailsTheHello) {
  when_running = [&](const hypervisor::MachineSpec&) {
    auto [ours, theirs] = *socket_pair(SOCK_STREAM);
    theirs.reset();
    std::lock_guard lock(door().mutex);
    door().accept(std::move(ours));
  };
  auto session = open_session();
  EXPECT_FALSE(session->guest());
  EXPECT_EQ(fake()->running(), 0u);
}

TEST_F(SessionTest, AStartIsStopped) {
  std::stop_source stop;
  when_running = [&](const hypervisor::MachineSpec&) { stop.request_stop(); };
  auto session = open_session();
  auto guest = session->guest(stop.get_token());
  ASSERT_FALSE(guest);
  EXPECT_EQ(guest.error().code, ErrorCode::cancelled);
  session->close();
  EXPECT_EQ(session->guest().error().code, ErrorCode::cancelled);
  EXPECT_EQ(event_names("anchorhold.vm"), (Names{"anchorhold.vm.start", "anchorhold.vm.stop"}));
}

TEST_F(SessionTest, AFailedStartOfTheMachineLeavesNothing) {
  auto session = open_session();
  ASSERT_TRUE(session->guest());  // makes the hypervisor
  fake()->end_guest(fake()->made().back().id, {ExitCause::process_lost, "killed by signal 9"});
  fake()->fail_next_start({ErrorCode::internal, "no memory", "close something"});
  std::shared_ptr<Guest> old = session->running_guest();
  EXPECT_NE(old->cause().find("killed by signal 9"), std::string::npos);
  auto guest = session->guest();
  ASSERT_FALSE(guest);
  EXPECT_NE(guest.error().message.find("no memory"), std::string::npos);
  EXPECT_EQ(guest.error().hint, "close something");
}

TEST_F(SessionTest, ALostGuestIsReplacedByAFreshOne) {
  auto session = open_session();
  auto first = *session->guest();
  fake()->end_guest(first->id(), {ExitCause::process_lost, "killed by signal 9"});
  EXPECT_NE(first->cause().find("killed by signal 9"), std::string::npos) << first->cause();
  EXPECT_TRUE(first->lost());
  auto second = session->guest();
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_NE((*second)->id(), first->id());
  EXPECT_EQ(output_of(*session, **second, "echo again"), "again\n");
  // Who still holds the old one gets errors, not a crash.
  EXPECT_FALSE(first->client().start_background({}));
  EXPECT_NE(cause_of_last("anchorhold.vm.fail").find("killed by signal 9"), std::string::npos);
}

TEST_F(SessionTest, ABrokenDeviceEndsTheMachineAndIsTheCause) {
  auto session = open_session();
  auto guest = *session->guest();
  std::promise<std::string> told;
  guest->on_lost([&](const std::string& cause) { told.set_value(cause); });
  {
    std::lock_guard lock(door().mutex);
    door().callbacks.ended(Error{ErrorCode::internal, "killed by signal 11", {}});
  }
  EXPECT_NE(told.get_future().get().find("killed by signal 11"), std::string::npos);
  EXPECT_NE(guest->cause().find("the vsock device"), std::string::npos) << guest->cause();
  session->close();
  EXPECT_NE(cause_of_last("anchorhold.vm.fail").find("signal 11"), std::string::npos);
}

TEST_F(SessionTest, ADeniedPortIsAnEvent) {
  auto session = open_session();
  auto guest = *session->guest();
  {
    std::lock_guard lock(door().mutex);
    door().callbacks.refused(22, 3);
  }
  guest.reset();
  session->close();
  auto names = event_names("anchorhold.vsock");
  EXPECT_EQ(names, (Names{"anchorhold.vsock.refuse"}));
}

TEST_F(SessionTest, RulesOfAnOpenPortThatAreBrokenAreAnEvent) {
  auto session = open_session();
  auto guest = *session->guest();
  {
    std::lock_guard lock(door().mutex);
    door().callbacks.violated(1024, "a message of 4 GiB");
  }
  guest.reset();
  session->close();
  EXPECT_EQ(event_names("anchorhold.vsock"), (Names{"anchorhold.vsock.violation"}));
  EXPECT_EQ(cause_of_last("anchorhold.vsock.violation"), "a message of 4 GiB");
}

TEST_F(SessionTest, WarmUpStartsAheadOfNeed) {
  std::promise<void> ran;
  when_running = [&](const hypervisor::MachineSpec&) {
    connect_agent();
    ran.set_value();
  };
  auto session = open_session();
  session->warm_up();
  ran.get_future().wait();
  session->warm_up();
  auto guest = session->guest();
  ASSERT_TRUE(guest) << guest.error().message;
  EXPECT_EQ(fake()->made().size(), 1u);
}

TEST_F(SessionTest, ClosingInTheMiddleOfAStartLeavesNothing) {
  std::promise<void> ran;
  when_running = [&](const hypervisor::MachineSpec&) { ran.set_value(); };
  auto session = open_session();
  session->warm_up();
  ran.get_future().wait();
  session->close();
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path() / "run/anchorhold/guests"));
}

TEST_F(SessionTest, GrantsAreRecordedWithoutTheirPaths) {
  auto shared = folder_.path() / "shared";
  std::filesystem::create_directory(shared);
  mounts::GrantRules rules;
  rules.home = "/nonexistent";
  auto grant = mounts::resolve_grant(shared, mounts::Mode::rw, {}, rules);
  ASSERT_TRUE(grant) << grant.error().message;
  std::vector<mounts::Grant> grants;
  grants.push_back(std::move(*grant));
  auto session = open_session(std::move(grants));
  EXPECT_EQ(session->default_directory(), "/mnt/shared");
  EXPECT_EQ(event_names(), (Names{"anchorhold.mount.grant"}));
  // The host's own access works without a guest, through the keeper.
  ASSERT_TRUE(session->files().write("/mnt/shared/new.txt", "text"));
  EXPECT_EQ(*read_file(shared / "new.txt", 100), "text");
  EXPECT_EQ(session->files().write("/mnt/other/new.txt", "text").error().code, ErrorCode::invalid_argument);
}

TEST(Defaults, MemoryFitsTheComputer) {
  EXPECT_EQ(default_memory("MemTotal: 64 kB\nMemAvailable:   16777216 kB\n"), ByteSize::gib(2));
  EXPECT_EQ(default_memory("MemAvailable:    2097152 kB\n"), ByteSize::gib(1));
  EXPECT_EQ(default_memory("MemAvailable:    2100000 kB\n"), ByteSize::gib(1));
  EXPECT_EQ(default_memory("MemAvailable:    100 kB\n"), ByteSize::mib(512));
  EXPECT_EQ(default_memory(""), ByteSize::gib(2));
  EXPECT_EQ(default_memory("MemAvailable: x"), ByteSize::gib(2));
}

}  // namespace
}  // namespace anchorhold::session
