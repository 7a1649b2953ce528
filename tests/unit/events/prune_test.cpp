// Retention: what is removed, and what verification says of a log that begins later than it did.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "log_fixture.h"

namespace anchorhold::events {
namespace {

constexpr Retention for_ever{std::chrono::hours(0), 0};

class PruneTest : public LogTest {
 protected:
  // Records of one a day, numbered as they come.
  void write_days(int count, Retention retention = for_ever) {
    auto log = open_log({}, retention, &clock_);
    for (int i = 0; i < count; ++i) {
      clock_.advance(std::chrono::hours(24));
      ASSERT_TRUE(log->record(Event(exec_start).set("number", i).set("text", std::string(2000, 'x'))));
    }
  }
  void expect_only(Finding::Kind kind, std::int64_t sequence, const Verification& verification) {
    ASSERT_FALSE(verification.findings.empty());
    EXPECT_EQ(to_string(verification.findings[0].kind), to_string(kind)) << verification.findings[0].message;
    EXPECT_EQ(verification.findings[0].sequence, sequence) << verification.findings[0].message;
  }
  static constexpr Retention thirty_days{std::chrono::hours(24 * 30), 0};

  FakeClock clock_;
};

TEST_F(PruneTest, NothingGoesBeforeItIsDue) {
  write_days(32);
  open_log({}, thirty_days, &clock_);  // the oldest is 31 days old: a tenth is let pass
  EXPECT_EQ(records().size(), 32u);
  EXPECT_EQ(verified().pruned.sequence, 0);
}

TEST_F(PruneTest, ByAgeTheOldGoAndTheRestIsWhole) {
  write_days(100);
  const Head before = verified().head;
  open_log({}, thirty_days, &clock_);
  auto left = records();
  ASSERT_EQ(left.size(), 32u);  // of the last thirty days, and what says so
  EXPECT_EQ(left.front().sequence, 70);
  EXPECT_EQ(left.back().name, log_prune.text);
  EXPECT_EQ(left.back().attributes.at("log.pruned_through"), Value(std::int64_t{69}));
  auto verification = verified(before);
  EXPECT_TRUE(verification.findings.empty()) << verification.findings[0].message;
  EXPECT_EQ(verification.pruned.sequence, 69);
  EXPECT_EQ(verification.records, 32u);
  EXPECT_EQ(verification.head.sequence, 101);
  // Again and again: the newest pruning is the one that counts.
  write_days(100);
  open_log({}, thirty_days, &clock_);
  EXPECT_TRUE(verified().findings.empty());
  EXPECT_GT(verified().pruned.sequence, 101);
  write_days(3, thirty_days);
  EXPECT_TRUE(verified(verified().head).findings.empty());
}

TEST_F(PruneTest, BySizeAQuarterGoesAndTheFileGrowsNoMore) {
  const Retention small{std::chrono::hours(0), 1u << 20};
  for (int round = 0; round < 6; ++round) write_days(200, small);
  open_log({}, small, &clock_);
  EXPECT_LT(std::filesystem::file_size(folder() / "events.db"), 3u << 20);
  auto verification = verified();
  EXPECT_TRUE(verification.findings.empty());
  EXPECT_GT(verification.pruned.sequence, 400);
  EXPECT_LT(verification.pruned.sequence, 1200);
  EXPECT_EQ(records().back().attributes.contains("log.pruned_hash"), true);
}

TEST_F(PruneTest, WhatSomebodyElseRemovesIsFoundAsBefore) {
  write_days(100);
  const Head old = verified().head;
  open_log({}, thirty_days, &clock_);
  const auto pruned = verified().pruned;
  struct Case {
    const char* sql;
    Finding::Kind kind;
    std::int64_t sequence;
  };
  // Each undone by the next log's copy.
  std::filesystem::copy(folder(), folder().string() + "-whole", std::filesystem::copy_options::recursive);
  for (const auto& c : std::vector<Case>{
           {"DELETE FROM event WHERE sequence = 70", Finding::Kind::missing, 70},
           {"DELETE FROM event WHERE sequence < 80", Finding::Kind::missing, 70},
           {"DELETE FROM event WHERE name = 'anchorhold.log.prune'", Finding::Kind::missing, 1},
           {"UPDATE event SET attributes = replace(attributes, '\"log.pruned_through\":69', "
            "'\"log.pruned_through\":70') WHERE sequence = 101",
            Finding::Kind::altered, 70},
           {"UPDATE event SET sequence = 12 WHERE sequence = 70", Finding::Kind::altered, 12},
       }) {
    tamper(c.sql);
    SCOPED_TRACE(c.sql);
    expect_only(c.kind, c.sequence, verified());
    std::filesystem::remove_all(folder());
    std::filesystem::copy(folder().string() + "-whole", folder(), std::filesystem::copy_options::recursive);
  }
  EXPECT_TRUE(verified(old).findings.empty());
  EXPECT_TRUE(verified(pruned).findings.empty());
  Head other = pruned;
  other.hash[0] = other.hash[0] == 'a' ? 'b' : 'a';
  expect_only(Finding::Kind::altered, 69, verified(other));
  expect_only(Finding::Kind::missing, 3, verified(Head{3, std::string(64, 'a')}));
}

TEST_F(PruneTest, ALogThatIsEvidenceStaysAsItIs) {
  write_days(100);
  std::filesystem::remove(folder() / "events.anchor");
  open_log({}, thirty_days, &clock_);
  EXPECT_EQ(records().size(), 100u);
}

TEST_F(PruneTest, TheLogRefusesRemovalAfterwardsAsBefore) {
  write_days(100);
  open_log({}, thirty_days, &clock_);
  sqlite3* handle = nullptr;
  ASSERT_EQ(sqlite3_open((folder() / "events.db").c_str(), &handle), SQLITE_OK);
  EXPECT_NE(sqlite3_exec(handle, "DELETE FROM event WHERE sequence = 80", nullptr, nullptr, nullptr),
            SQLITE_OK);
  sqlite3_close(handle);
}

TEST_F(PruneTest, AProcessThatWritesMeanwhileGoesOn) {
  write_days(100);
  auto other = open_log({}, for_ever, &clock_);
  ASSERT_TRUE(other->record(Event(exec_start)));
  open_log({}, thirty_days, &clock_);
  ASSERT_TRUE(other->record(Event(exec_start)));
  ASSERT_TRUE(other->record(Event(exec_end)));
  EXPECT_TRUE(verified().findings.empty());
  EXPECT_GT(verified().pruned.sequence, 0);
}

}  // namespace
}  // namespace anchorhold::events
