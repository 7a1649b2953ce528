// A session with a ledger as the host lays it out, and short ways to review and undo it.
#pragma once

#include "mounts/review.h"
#include "random_session.h"

namespace anchorhold::mounts::testing {

class UndoTest : public RandomSessionTest {
 protected:
  // As a session begins it: the keeper's part of the ledger is beside what says which folder it is.
  void begin(Mode mode, std::vector<std::string> arguments = {}) {
    Grant grant;
    grant.host_path = grant_;
    grant.root = at();
    grant.name = "grant";
    grant.mode = mode;
    ASSERT_TRUE(write_ledger_place(session_ / "grant", grant, 0));
    start(mode, std::move(arguments));
  }
  // A round of its own: a folder of any shape, which it gives back, and a session in it.
  Snapshot begin_any_session(std::uint64_t round, Mode mode) {
    begin_round(round);
    use_session_folder();
    make_tree(5 + any(40));
    auto before = snapshot_of(grant_);
    begin(mode);
    return before;
  }
  void act_and_end() {
    for (std::size_t i = 3 + any(60); i > 0; --i) act();
    end_keeper();
  }
  void SetUp() override {
    RandomSessionTest::SetUp();
    use_session_folder();
  }
  void use_session_folder() {
    session_ = directory_->path() / "session";
    std::filesystem::remove_all(session_);
    ledger_ = keepers_folder(session_ / "grant");
    std::filesystem::create_directories(ledger_);
  }
  LedgerPlace place() {
    auto places = ledgers_of_session(session_);
    EXPECT_TRUE(places && places->size() == 1u);
    return places && !places->empty() ? places->front() : LedgerPlace{};
  }
  Result<UndoOutcome> undo(const UndoOptions& options = {}) { return mounts::undo(place(), options); }
  static void expect_all_done(const Result<UndoOutcome>& outcome) {
    ASSERT_TRUE(outcome) << outcome.error().message;
    for (const auto& refusal : outcome->refused) ADD_FAILURE() << refusal.path << ": " << refusal.reason;
  }
  std::vector<std::string> refusals(const Result<UndoOutcome>& outcome) {
    std::vector<std::string> paths;
    EXPECT_TRUE(outcome) << outcome.error().message;
    if (outcome)
      for (const auto& refusal : outcome->refused) paths.push_back(refusal.path);
    return paths;
  }
  std::map<std::string, Change> review(bool diff = false) {
    auto seen = mounts::review(place(), {.diff = diff, .paths = {}});
    EXPECT_TRUE(seen) << seen.error().message;
    std::map<std::string, Change> changes;
    if (seen)
      for (const auto& change : seen->changes) changes.emplace(change.path, change);
    return changes;
  }
  // Changes a file as editors do, not as a program that keeps the time of the last change.
  void host_writes(const std::string& path, std::string_view text) { write_text(grant_ / path, text); }

  std::filesystem::path session_;
};

}  // namespace anchorhold::mounts::testing
