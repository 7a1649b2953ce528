#include <fcntl.h>
#include <fstream>
#include <unistd.h>

#include "log_fixture.h"

namespace anchorhold::events {
namespace {

class VerifyTest : public LogTest {
 protected:
  void SetUp() override {
    auto log = open_log();
    for (int i = 0; i < 10; ++i)
      ASSERT_TRUE(log->record(Event(exec_start).set("number", i).set(SessionId("s"))));
  }

  void expect_only(Finding::Kind kind, std::int64_t sequence, const Verification& verification) {
    ASSERT_FALSE(verification.findings.empty());
    EXPECT_EQ(to_string(verification.findings[0].kind), to_string(kind)) << verification.findings[0].message;
    EXPECT_EQ(verification.findings[0].sequence, sequence) << verification.findings[0].message;
  }
};

TEST_F(VerifyTest, AWholeLogHasNoFindings) {
  auto verification = verified();
  EXPECT_TRUE(verification.findings.empty());
  EXPECT_EQ(verification.records, 10u);
  EXPECT_EQ(verification.head.sequence, 10);
  EXPECT_TRUE(verified(verification.head).findings.empty());
}

TEST_F(VerifyTest, ALogThatIsNotThereIsWholeAndEmpty) {
  auto verification = verify(folder() / "none");
  ASSERT_TRUE(verification);
  EXPECT_EQ(verification->records, 0u);
  EXPECT_TRUE(verification->findings.empty());
}

class ColumnTest : public VerifyTest, public testing::WithParamInterface<const char*> {};

TEST_P(ColumnTest, EveryAlteredColumnIsFound) {
  tamper(std::string("UPDATE event SET ") + GetParam() + " WHERE sequence = 5");
  expect_only(Finding::Kind::altered, 5, verified());
}

INSTANTIATE_TEST_SUITE_P(Columns, ColumnTest,
                         testing::Values("id = 'x'", "wall_ns = wall_ns + 1",
                                         "monotonic_ns = monotonic_ns - 1", "boot = 'x'",
                                         "name = 'anchorhold.vm.start'", "severity = 10", "attributes = '{}'",
                                         "attributes = attributes || ' '", "previous = zeroblob(32)",
                                         "hash = zeroblob(32)"));

TEST_F(VerifyTest, ARecordThatIsGoneIsFound) {
  tamper("DELETE FROM event WHERE sequence IN (4, 5)");
  auto verification = verified();
  expect_only(Finding::Kind::missing, 4, verification);
  EXPECT_EQ(verification.findings.size(), 1u);
}

TEST_F(VerifyTest, TheFirstRecordBeingGoneIsFound) {
  tamper("DELETE FROM event WHERE sequence = 1");
  expect_only(Finding::Kind::missing, 1, verified());
}

TEST_F(VerifyTest, AGapThatWasClosedIsFound) {
  tamper("DELETE FROM event WHERE sequence = 5; UPDATE event SET sequence = sequence - 1 WHERE sequence > 5");
  expect_only(Finding::Kind::reordered, 5, verified());
}

TEST_F(VerifyTest, TwoRecordsThatChangedPlacesAreFound) {
  tamper(
      "UPDATE event SET sequence = 100 WHERE sequence = 3; UPDATE event SET sequence = 3 WHERE sequence = 7;"
      "UPDATE event SET sequence = 7 WHERE sequence = 100");
  auto verification = verified();
  expect_only(Finding::Kind::reordered, 3, verification);
  EXPECT_NE(verification.findings[0].message.find("record 7"), std::string::npos);
}

TEST_F(VerifyTest, ACutEndIsFoundThroughTheAnchor) {
  tamper("DELETE FROM event WHERE sequence > 8");
  expect_only(Finding::Kind::truncated, 9, verified());
}

TEST_F(VerifyTest, ACutEndStaysFoundWhenTheLogGrowsAgain) {
  tamper("DELETE FROM event WHERE sequence > 8");
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(open_log()->record(Event(vm_start)));
  expect_only(Finding::Kind::altered, 10, verified());
}

TEST_F(VerifyTest, ALogWithoutItsAnchorCannotVouchForItsEnd) {
  std::filesystem::remove(folder() / "events.anchor");
  ASSERT_TRUE(open_log()->record(Event(vm_start)));
  expect_only(Finding::Kind::truncated, 0, verified());
}

TEST_F(VerifyTest, AnAnchorWithoutItsLogIsFound) {
  for (const char* name : {"events.db", "events.db-wal", "events.db-shm"})
    std::filesystem::remove(folder() / name);
  expect_only(Finding::Kind::truncated, 1, verified());
}

TEST_F(VerifyTest, ARewrittenLogIsFoundByAHeadNotedElsewhere) {
  Head head = verified().head;
  std::filesystem::remove_all(folder());
  for (int i = 0; i < 12; ++i) ASSERT_TRUE(open_log()->record(Event(vm_start)));
  EXPECT_TRUE(verified().findings.empty());
  expect_only(Finding::Kind::altered, 10, verified(head));
}

TEST_F(VerifyTest, ATakenAwayTriggerIsFound) {
  sqlite3* handle = nullptr;
  ASSERT_EQ(sqlite3_open((folder() / "events.db").c_str(), &handle), SQLITE_OK);
  sqlite3_exec(handle, "DROP TRIGGER event_no_delete", nullptr, nullptr, nullptr);
  sqlite3_close(handle);
  expect_only(Finding::Kind::altered, 0, verified());
}

TEST_F(VerifyTest, ATornAnchorSlotFallsBackToTheOther) {
  for (off_t slot : {0, 512}) {
    UniqueFd fd(open((folder() / "events.anchor").c_str(), O_RDWR));
    std::string saved(1024, '\0');
    ASSERT_EQ(pread(fd.get(), saved.data(), saved.size(), 0), 1024);
    ASSERT_EQ(pwrite(fd.get(), "garbage", 7, slot), 7);
    EXPECT_TRUE(verified().findings.empty());
    ASSERT_EQ(pwrite(fd.get(), saved.data(), saved.size(), 0), 1024);
  }
}

TEST_F(VerifyTest, ADamagedFileIsAFindingNotACrash) {
  {
    sqlite3* handle = nullptr;
    ASSERT_EQ(sqlite3_open((folder() / "events.db").c_str(), &handle), SQLITE_OK);
    sqlite3_exec(handle, "PRAGMA wal_checkpoint(TRUNCATE)", nullptr, nullptr, nullptr);
    sqlite3_close(handle);
  }
  std::fstream file(folder() / "events.db", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(4096);
  file << std::string(8192, '\x5a');
  file.close();
  auto verification = verified();
  ASSERT_FALSE(verification.findings.empty());
}

TEST_F(VerifyTest, ManyFindingsAreCounted) {
  {
    auto log = open_log();
    std::vector<Event> events(300, Event(exec_start));
    ASSERT_TRUE(log->record_all(events));
  }
  tamper("UPDATE event SET boot = 'x'");
  auto verification = verified();
  EXPECT_EQ(verification.findings.size(), 100u);
  EXPECT_EQ(verification.findings.size() + verification.more_findings, 310u);
}

}  // namespace
}  // namespace anchorhold::events
