// After an undo the tree is what it was: by content, modes, times, xattrs and links, whatever the session
// did.
#include "random_session.h"
#include "restore.h"

namespace anchorhold::mounts::testing {
namespace {

namespace fs = std::filesystem;

class UndoTest : public RandomSessionTest, public ::testing::WithParamInterface<Mode> {
 protected:
  Result<RestoreResult> undo(RestoreSpec spec = {}) {
    UniqueFd root(open(grant_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    spec.root = root.get();
    spec.ledger = ledger_;
    return restore(spec);
  }
  void expect_all_done(const Result<RestoreResult>& result) {
    ASSERT_TRUE(result) << result.error().message;
    for (const auto& refusal : result->refused) ADD_FAILURE() << refusal.path << ": " << refusal.reason;
  }
};

TEST_P(UndoTest, AnySessionIsUndoneRedoneAndUndoneAgain) {
  for (std::uint64_t round = 0; round < 12 && !HasFailure(); ++round) {
    SCOPED_TRACE(fmt::format("ANCHORHOLD_TEST_SEED={} round {}", seed(), round));
    begin_round(round);
    make_tree(5 + any(40));
    auto before = snapshot_of(grant_);
    start(GetParam());
    for (std::size_t i = 3 + any(60); i > 0; --i) act();
    end_keeper();
    auto after = snapshot_of(grant_);
    expect_all_done(undo());
    EXPECT_EQ(difference(before, snapshot_of(grant_)), "") << "after the undo";
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

INSTANTIATE_TEST_SUITE_P(Modes, UndoTest, ::testing::Values(Mode::rw, Mode::rw_no_delete),
                         [](const auto& mode) { return mode.param == Mode::rw ? "rw" : "rw_no_delete"; });

}  // namespace
}  // namespace anchorhold::mounts::testing
