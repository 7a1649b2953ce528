#include <fstream>
#include <sys/socket.h>
#include <sys/stat.h>
#include <thread>

#include "base/fd.h"
#include "log_fixture.h"

namespace anchorhold::events {
namespace {

using EventLogTest = LogTest;

TEST_F(EventLogTest, RecordsComeBackInOrderWithEverythingTheyWereGiven) {
  auto log = open_log();
  ASSERT_TRUE(log->record(Event(vm_start).set(SessionId("s1")).set("cpus", 2).set("kvm", false)));
  ASSERT_TRUE(log->record(Event(mount_violation)
                              .set(SessionId("s1"))
                              .set("names", std::vector<std::string>{"a", "b"})
                              .set_guest_reported("pid", std::int64_t{7})));
  auto found = records();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].sequence, 1);
  EXPECT_EQ(found[0].name, "anchorhold.vm.start");
  EXPECT_EQ(found[0].severity, Severity::info);
  EXPECT_EQ(found[0].attributes.at("cpus"), Value(std::int64_t{2}));
  EXPECT_EQ(found[0].attributes.at("kvm"), Value(false));
  EXPECT_EQ(found[0].attributes.at("session.id"), Value("s1"));
  EXPECT_FALSE(std::get<std::string>(found[0].attributes.at("user.name")).empty());
  EXPECT_EQ(found[1].sequence, 2);
  EXPECT_EQ(found[1].severity, Severity::warn);
  EXPECT_EQ(found[1].attributes.at("names"), Value(std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(found[1].attributes.at("guest.reported.pid"), Value(std::int64_t{7}));
  EXPECT_NE(found[0].id, found[1].id);
  EXPECT_LE(found[0].monotonic, found[1].monotonic);
}

TEST_F(EventLogTest, TimesAreTheClocksOwn) {
  FakeClock clock;
  auto log = EventLog::open({.folder = folder(), .captured = {}, .clock = &clock});
  ASSERT_TRUE(log);
  ASSERT_TRUE((*log)->record(Event(vm_start)));
  clock.advance(std::chrono::seconds(5));
  ASSERT_TRUE((*log)->record(Event(vm_ready)));
  auto found = records();
  EXPECT_EQ(found[1].wall, clock.wall());
  EXPECT_EQ(found[1].wall - found[0].wall, std::chrono::seconds(5));
  EXPECT_EQ(found[1].monotonic - found[0].monotonic, std::chrono::seconds(5));
}

TEST_F(EventLogTest, ContentIsLeftOutUnlessItsCategoryIsCaptured) {
  Event event(tool_call);
  event.set("gen_ai.tool.name", "shell")
      .set_content(ContentCategory::arguments, "arguments", std::string("cat secrets"))
      .set_content(ContentCategory::paths, "path", std::string("/home/a"));
  ASSERT_TRUE(open_log()->record(event));
  ASSERT_TRUE(open_log({ContentCategory::paths})->record(event));
  auto found = records();
  EXPECT_FALSE(found[0].attributes.contains("arguments"));
  EXPECT_FALSE(found[0].attributes.contains("path"));
  EXPECT_EQ(found[0].attributes.at("event.redacted"), Value(std::vector<std::string>{"arguments", "path"}));
  EXPECT_EQ(found[1].attributes.at("path"), Value("/home/a"));
  EXPECT_EQ(found[1].attributes.at("event.redacted"), Value(std::vector<std::string>{"arguments"}));
  // Not in the file either.
  for (const char* name : {"events.db", "events.db-wal"}) {
    std::ifstream file(folder() / name, std::ios::binary);
    std::string bytes((std::istreambuf_iterator<char>(file)), {});
    EXPECT_EQ(bytes.find("cat secrets"), std::string::npos) << name;
  }
}

TEST_F(EventLogTest, ContextIsAddedAndNeverReplacesWhatIsSaid) {
  auto log = open_log();
  ContextSink sink(*log, {{"session.id", "outer"}, {"vm.id", "v"}});
  ASSERT_TRUE(sink.record(Event(vm_start)));
  ASSERT_TRUE(sink.record(Event(vm_ready).set(SessionId("own"))));
  auto found = records();
  EXPECT_EQ(found[0].attributes.at("session.id"), Value("outer"));
  EXPECT_EQ(found[1].attributes.at("session.id"), Value("own"));
  EXPECT_EQ(found[1].attributes.at("vm.id"), Value("v"));
}

TEST_F(EventLogTest, HostileTextIsStoredBoundedAndReadable) {
  auto log = open_log();
  ASSERT_TRUE(log->record(Event(exec_end).set_guest_reported("text", std::string("\xff\xfe\0bad", 6))));
  ASSERT_TRUE(log->record(Event(exec_end).set_guest_reported("text", std::string(10 << 20, 'x'))));
  auto found = records();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_NE(std::get<std::string>(found[0].attributes.at("guest.reported.text")).find("bad"),
            std::string::npos);
  EXPECT_LT(std::get<std::string>(found[1].attributes.at("guest.reported.text")).size(), 10'000u);
  EXPECT_TRUE(verified().findings.empty());
}

TEST_F(EventLogTest, FiltersSelect) {
  auto log = open_log();
  std::vector<Event> events;
  for (int i = 0; i < 10; ++i)
    events.push_back(Event(i % 2 ? exec_start : mount_violation).set(SessionId(i < 5 ? "a" : "b")));
  events.push_back(Event(tool_call).set(TaskId("t")));
  ASSERT_TRUE(log->record_all(events));
  auto count = [&](const Filter& filter) { return records(filter).size(); };
  EXPECT_EQ(count({}), 11u);
  EXPECT_EQ(count({.session = "a"}), 5u);
  EXPECT_EQ(count({.task = "t"}), 1u);
  EXPECT_EQ(count({.name_prefix = "anchorhold.exec"}), 5u);
  EXPECT_EQ(count({.name_prefix = "anchorhold.%"}), 0u);
  EXPECT_EQ(count({.at_least = Severity::warn}), 5u);
  EXPECT_EQ(count({.after = 9}), 2u);
  EXPECT_EQ(count({.since = std::chrono::system_clock::now() + std::chrono::hours(1)}), 0u);
  auto newest = records({.session = "b", .newest = 2});
  ASSERT_EQ(newest.size(), 2u);
  EXPECT_EQ(newest[0].sequence, 9);
  EXPECT_EQ(newest[1].sequence, 10);
}

TEST_F(EventLogTest, AChangedOrDeletedRecordIsRefusedByTheFileItself) {
  ASSERT_TRUE(open_log()->record(Event(vm_start)));
  sqlite3* handle = nullptr;
  ASSERT_EQ(sqlite3_open((folder() / "events.db").c_str(), &handle), SQLITE_OK);
  const char* refused[] = {
      "UPDATE event SET name = 'other'",
      "DELETE FROM event",
      "INSERT OR REPLACE INTO event SELECT 1, 'i', 1, 1, 'b', 'n', 9, '{}', previous, hash FROM event",
      "INSERT INTO event SELECT 5, 'i', 1, 1, 'b', 'n', 9, '{}', previous, hash FROM event",
  };
  for (const char* sql : refused) {
    EXPECT_NE(sqlite3_exec(handle, sql, nullptr, nullptr, nullptr), SQLITE_OK) << sql;
    EXPECT_NE(std::string(sqlite3_errmsg(handle)).find("append-only"), std::string::npos) << sql;
  }
  sqlite3_close(handle);
  EXPECT_TRUE(verified().findings.empty());
}

TEST_F(EventLogTest, OnlyItsOwnerMayReadIt) {
  ASSERT_TRUE(open_log()->record(Event(vm_start)));
  for (const auto& entry : std::filesystem::directory_iterator(folder())) {
    struct stat info;
    ASSERT_EQ(stat(entry.path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 077, 0u) << entry.path();
  }
}

TEST_F(EventLogTest, FollowingSeesWhatIsThereThenWhatComesAndStops) {
  auto log = open_log();
  ASSERT_TRUE(log->record(Event(vm_start)));
  auto [stop, stopper] = *socket_pair(SOCK_STREAM);
  std::vector<std::string> seen;
  std::thread writer;
  auto status = follow(
      folder(), {},
      [&](const Record& record) {
        seen.push_back(record.name);
        if (seen.size() == 1) writer = std::thread([&] { ASSERT_TRUE(log->record(Event(vm_ready))); });
        if (seen.size() == 2) stopper.reset();
        return true;
      },
      stop.get());
  writer.join();
  EXPECT_TRUE(status);
  EXPECT_EQ(seen, (std::vector<std::string>{"anchorhold.vm.start", "anchorhold.vm.ready"}));
}

TEST_F(EventLogTest, ALogOfANewerVersionIsRefused) {
  ASSERT_TRUE(open_log()->record(Event(vm_start)));
  tamper("PRAGMA user_version = 2");
  auto log = EventLog::open({.folder = folder()});
  ASSERT_FALSE(log);
  EXPECT_EQ(log.error().code, ErrorCode::failed_precondition);
}

}  // namespace
}  // namespace anchorhold::events
