// Any session is undone, redone and undone again to the tree that was there, whoever is killed meanwhile.
#include <atomic>
#include <thread>

#include "undo_fixture.h"

namespace anchorhold::mounts::testing {
namespace {

namespace fs = std::filesystem;

class AnySession : public UndoTest, public ::testing::WithParamInterface<Mode> {};

TEST_P(AnySession, IsUndoneRedoneAndUndoneAgain) {
  for (std::uint64_t round = 0; round < 10 && !HasFailure(); ++round) {
    SCOPED_TRACE(fmt::format("ANCHORHOLD_TEST_SEED={} round {}", seed(), round));
    auto before = begin_any_session(round, GetParam());
    act_and_end();
    auto after = snapshot_of(grant_);
    ASSERT_TRUE(mounts::review(place(), {.diff = true, .paths = {}}));
    EXPECT_EQ(difference(after, snapshot_of(grant_)), "") << "after the review";
    expect_all_done(undo());
    EXPECT_EQ(difference(before, snapshot_of(grant_)), "") << "after the undo";
    EXPECT_TRUE(review().empty()) << review().begin()->first;
    if (HasFailure()) break;
    auto again = undo();
    expect_all_done(again);
    EXPECT_TRUE(again->steps.empty()) << again->steps.front().path;
    if (after == before) continue;
    expect_all_done(undo({.redo = true}));
    EXPECT_EQ(difference(after, snapshot_of(grant_)), "") << "after the redo";
    if (HasFailure()) break;
    expect_all_done(undo());
    EXPECT_EQ(difference(before, snapshot_of(grant_)), "") << "after the second undo";
  }
}

// Whatever the keeper was doing when it was killed.
TEST_P(AnySession, IsUndoneAfterItsKeeperWasKilled) {
  for (std::uint64_t round = 0; round < 10 && !HasFailure(); ++round) {
    SCOPED_TRACE(fmt::format("ANCHORHOLD_TEST_SEED={} round {}", seed(), round));
    auto before = begin_any_session(1000 + round, GetParam());
    std::atomic<std::size_t> acted{0};
    std::size_t deadly = any(60);
    std::thread killer([&] {
      while (acted < deadly) std::this_thread::yield();
      keeper_->child->kill(SIGKILL);
    });
    while (acted < 60) {
      act();
      ++acted;
    }
    killer.join();
    client_ = std::make_unique<KeeperClient>(UniqueFd());
    keeper_.reset();
    expect_all_done(undo());
    EXPECT_EQ(difference(before, snapshot_of(grant_)), "");
  }
}

// Nobody noted what the folder had become, and its time says nothing of when it was set.
TEST_P(AnySession, TimesToComeAreUndoneAfterItsKeeperWasKilled) {
  fs::create_directory(grant_ / "folder");
  write_text(grant_ / "file", "text");
  for (const char* name : {"folder", "file"}) age(grant_ / name);
  age(grant_);
  auto before = snapshot_of(grant_);
  begin(GetParam());
  for (const char* name : {"folder", "file", ""}) {
    auto request = make_request(Verb::set_attributes);
    request.valid = valid_flag::modify_time;
    request.modify_time = {4'000'000'000, 5, 0};
    ASSERT_EQ(ask(request, {at(name).get()}).error, 0) << name;
  }
  keeper_->child->kill(SIGKILL);
  keeper_->child->wait();
  expect_all_done(undo());
  EXPECT_EQ(difference(before, snapshot_of(grant_)), "");
}

// An undo that is killed may be run again, and ends at the same tree.
TEST_P(AnySession, IsUndoneByAnUndoThatWasKilled) {
  for (std::uint64_t round = 0; round < 10 && !HasFailure(); ++round) {
    SCOPED_TRACE(fmt::format("ANCHORHOLD_TEST_SEED={} round {}", seed(), round));
    auto before = begin_any_session(2000 + round, GetParam());
    act_and_end();
    for (int deaths = 0; deaths < 4; ++deaths) {
      UniqueFd root = at();
      auto said = make_pipe();
      ASSERT_TRUE(said);
      SpawnSpec spawn;
      spawn.argv = {std::string(ANCHORHOLD_PROGRAM_DIR) + "/anchorhold-ledger", "undo", "--ledger",
                    ledger_.string()};
      spawn.descriptors = {{2, 2}, {root.get(), ledger_fd::root}, {said->write_end.get(), ledger_fd::output}};
      auto child = Child::spawn(spawn);
      ASSERT_TRUE(child);
      // Somewhere between its first moment and its end.
      (void)child->wait(std::chrono::milliseconds(any(60)));
      child->kill(SIGKILL);
      child->wait();
    }
    expect_all_done(undo());
    EXPECT_EQ(difference(before, snapshot_of(grant_)), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, AnySession, ::testing::Values(Mode::rw, Mode::rw_no_delete),
                         [](const auto& mode) { return mode.param == Mode::rw ? "rw" : "rw_no_delete"; });

}  // namespace
}  // namespace anchorhold::mounts::testing
