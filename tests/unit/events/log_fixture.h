// What the tests of the event log share: a log in a folder of its own, and a way to read it and to tamper
// with it.
#pragma once

#include <gtest/gtest.h>
#include <sqlite3.h>

#include "base/files.h"
#include "events/event_log.h"

namespace anchorhold::events {

class LogTest : public testing::Test {
 protected:
  std::unique_ptr<EventLog> open_log(std::set<ContentCategory> captured = {}, Retention retention = {},
                                     const Clock* clock = nullptr) {
    auto log = EventLog::open(
        {.folder = folder(), .captured = std::move(captured), .clock = clock, .retention = retention});
    EXPECT_TRUE(log) << log.error().message;
    return std::move(*log);
  }

  std::vector<Record> records(const Filter& filter = {}) {
    std::vector<Record> found;
    auto status = list(folder(), filter, [&](const Record& record) {
      found.push_back(record);
      return true;
    });
    EXPECT_TRUE(status) << status.error().message;
    return found;
  }

  Verification verified(const std::optional<Head>& expected = {}) {
    auto verification = verify(folder(), expected);
    EXPECT_TRUE(verification) << verification.error().message;
    return *verification;
  }

  // Runs SQL as somebody would who means harm: the triggers are taken away and put back just as they were.
  void tamper(const std::string& sql) {
    sqlite3* handle = nullptr;
    ASSERT_EQ(sqlite3_open((folder() / "events.db").c_str(), &handle), SQLITE_OK);
    std::vector<std::pair<std::string, std::string>> triggers;
    auto collect = [](void* into, int, char** values, char**) {
      static_cast<decltype(triggers)*>(into)->emplace_back(values[0], values[1]);
      return 0;
    };
    sqlite3_exec(handle, "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'", collect, &triggers,
                 nullptr);
    ASSERT_EQ(triggers.size(), 3u);
    for (const auto& [name, text] : triggers)
      sqlite3_exec(handle, ("DROP TRIGGER " + name).c_str(), nullptr, nullptr, nullptr);
    char* message = nullptr;
    EXPECT_EQ(sqlite3_exec(handle, sql.c_str(), nullptr, nullptr, &message), SQLITE_OK) << message;
    for (const auto& [name, text] : triggers) sqlite3_exec(handle, text.c_str(), nullptr, nullptr, nullptr);
    sqlite3_close(handle);
  }

  std::filesystem::path folder() const { return directory_.path() / "events"; }

 private:
  TemporaryDirectory directory_ = *TemporaryDirectory::create();
};

}  // namespace anchorhold::events
