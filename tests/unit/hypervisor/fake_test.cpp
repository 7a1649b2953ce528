// The fake keeps the promises of the interface, so that tests that use it mean something.
#include <gtest/gtest.h>

#include "fakes/hypervisor.h"

namespace anchorhold::hypervisor {
namespace {

class Fake : public testing::Test {
 protected:
  MachineSpec spec(const char* id = "m") {
    MachineSpec spec;
    spec.id = MachineId(id);
    spec.kernel = "/k";
    spec.initrd = "/i";
    spec.console.path = "/c";
    return spec;
  }
  std::unique_ptr<Machine> make(MachineSpec made) {
    return std::move(
        hypervisor.make(std::move(made), executor, [this](const MachineExit& exit) { exits.push_back(exit); })
            .value());
  }
  Machine::Done note() {
    return [this](Status status) { answers.push_back(std::move(status)); };
  }

  FakeClock clock;
  ManualExecutor executor{clock};
  FakeHypervisor hypervisor;
  std::vector<MachineExit> exits;
  std::vector<Status> answers;
};

TEST_F(Fake, GoesThroughTheStatesOfALife) {
  auto machine = make(spec());
  EXPECT_EQ(machine->state(), MachineState::made);
  machine->start(note());
  EXPECT_EQ(machine->state(), MachineState::starting);
  executor.run_due();
  EXPECT_EQ(machine->state(), MachineState::running);
  EXPECT_EQ(hypervisor.running(), 1u);
  machine->stop({}, note());
  EXPECT_EQ(machine->state(), MachineState::stopping);
  executor.run_due();
  EXPECT_EQ(machine->state(), MachineState::ended);
  ASSERT_EQ(exits.size(), 1u);
  EXPECT_EQ(exits[0].cause, ExitCause::stopped);
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_TRUE(answers[0] && answers[1]);
}

TEST_F(Fake, FailsWhenTold) {
  hypervisor.fail_next_make({ErrorCode::resource_exhausted, "no room", ""});
  EXPECT_FALSE(hypervisor.make(spec(), executor, nullptr));
  hypervisor.fail_next_start({ErrorCode::unavailable, "no luck", ""});
  auto machine = make(spec());
  machine->start(note());
  executor.run_due();
  ASSERT_EQ(exits.size(), 1u);
  EXPECT_EQ(exits[0].cause, ExitCause::start_failed);
  EXPECT_EQ(answers.at(0).error().message, "no luck");
  EXPECT_EQ(hypervisor.made().size(), 1u);
}

TEST_F(Fake, EnforcesTheTimeLimit) {
  auto limited = spec();
  limited.wall_time = std::chrono::seconds(10);
  auto machine = make(limited);
  machine->start(note());
  executor.advance(std::chrono::seconds(9));
  EXPECT_EQ(machine->state(), MachineState::running);
  executor.advance(std::chrono::seconds(1));
  EXPECT_EQ(machine->exit()->cause, ExitCause::time_limit);
}

TEST_F(Fake, WaitsOutTheGraceOfADeafGuest) {
  hypervisor.ignore_power_button(true);
  auto machine = make(spec());
  machine->start(note());
  executor.run_due();
  machine->stop({std::chrono::seconds(5)}, note());
  executor.advance(std::chrono::seconds(4));
  EXPECT_EQ(machine->state(), MachineState::stopping);
  executor.advance(std::chrono::seconds(1));
  EXPECT_EQ(machine->state(), MachineState::ended);
}

TEST_F(Fake, EndsFromOutsideAndRefusesTwinsAndRestarts) {
  auto machine = make(spec());
  EXPECT_EQ(hypervisor.make(spec(), executor, nullptr).error().code, ErrorCode::already_exists);
  EXPECT_FALSE(hypervisor.end_guest(machine->id(), {}));
  machine->start(note());
  executor.run_due();
  EXPECT_TRUE(hypervisor.end_guest(machine->id(), {ExitCause::process_lost, "killed"}));
  executor.run_due();
  EXPECT_EQ(exits.at(0).cause, ExitCause::process_lost);
  machine->start(note());
  executor.run_due();
  EXPECT_FALSE(answers.back());
  EXPECT_TRUE(make(spec()));
}

TEST_F(Fake, IsSilentAfterItsMachineIsGone) {
  auto machine = make(spec());
  machine->start(note());
  machine.reset();
  executor.run_due();
  EXPECT_TRUE(answers.empty());
  EXPECT_TRUE(exits.empty());
}

}  // namespace
}  // namespace anchorhold::hypervisor
