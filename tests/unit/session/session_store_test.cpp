#include "session/session_store.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/files.h"
#include "database/database.h"
#include "policy/configuration.h"

namespace anchorhold::session {
namespace {

class SessionStoreTest : public testing::Test {
 protected:
  SessionStore open() { return std::move(*SessionStore::open(folder_.path() / "sessions.db")); }
  SessionRecord record(const std::string& id) {
    SessionRecord made;
    made.id = SessionId(id);
    made.kind = SessionKind::task;
    made.title = "Add the numbers";
    made.image = "base";
    made.grants = {"rw /a → /mnt/a", "ro /\xff → /mnt/b"};
    return made;
  }
  // Begins the record in another process, which then waits until it is killed.
  pid_t begin_elsewhere(const std::string& id) {
    Pipe ready = *make_pipe();
    pid_t pid = fork();
    if (pid == 0) {
      auto begun = open().begin(record(id), clock_);
      char byte = begun ? 'y' : 'n';
      (void)!write(ready.write_end.get(), &byte, 1);
      pause();
      _exit(0);
    }
    char byte = 0;
    EXPECT_EQ(read(ready.read_end.get(), &byte, 1), 1);
    EXPECT_EQ(byte, 'y');
    return pid;
  }

  TemporaryDirectory folder_ = *TemporaryDirectory::create();
  SystemClock clock_;
};

TEST_F(SessionStoreTest, RulesAndAnswersComeBack) {
  auto store = open();
  auto made = record("aa1");
  made.network = {*policy::parse_rule_argument("example.com:8443", policy::EgressAction::allow),
                  *policy::parse_rule_argument("10.0.0.0/8", policy::EgressAction::deny)};
  ASSERT_TRUE(store.begin(made, clock_));
  policy::EgressRule answer = made.network[0];
  answer.methods = {"GET"};
  answer.source = "answered 10:15";
  ASSERT_TRUE(store.set_answers(SessionId("aa1"), {answer}, clock_));
  auto back = store.find("aa1");
  ASSERT_TRUE(back) << back.error().message;
  ASSERT_EQ(back->network.size(), 2u);
  EXPECT_EQ(back->network[0].host.text(), "example.com");
  EXPECT_EQ(back->network[0].ports, (std::vector<std::uint16_t>{8443}));
  EXPECT_EQ(back->network[0].source, "--allow example.com:8443");
  EXPECT_EQ(back->network[1].action, policy::EgressAction::deny);
  ASSERT_EQ(back->answers.size(), 1u);
  EXPECT_EQ(back->answers[0].methods, (std::vector<std::string>{"GET"}));
  EXPECT_EQ(back->answers[0].source, "answered 10:15");
}

// As the first version wrote it.
TEST_F(SessionStoreTest, AListFromBeforeIsTakenOver) {
  {
    auto old =
        *database::Database::open(folder_.path() / "sessions.db", database::Database::Mode::read_write);
    ASSERT_TRUE(
        old.run("CREATE TABLE session (id TEXT PRIMARY KEY, kind TEXT NOT NULL, state TEXT NOT NULL, title "
                "TEXT NOT NULL, "
                "image TEXT NOT NULL, grants TEXT NOT NULL, created_ns INTEGER NOT NULL, changed_ns INTEGER "
                "NOT NULL, "
                "pid INTEGER NOT NULL, start_ticks INTEGER NOT NULL, boot TEXT NOT NULL, end TEXT NOT NULL);"
                "INSERT INTO session VALUES ('old1', 'task', 'ended', 'title', 'base', '[]', 1, 2, 3, 4, "
                "'boot', 'done');"
                "PRAGMA user_version = 1"));
  }
  auto store = open();
  auto back = store.find("old1");
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->end, "done");
  EXPECT_TRUE(back->network.empty());
  EXPECT_TRUE(store.set_answers(SessionId("old1"), {}, clock_));
  EXPECT_TRUE(open().find("old1"));
}

TEST_F(SessionStoreTest, RecordsComeBackNewestFirst) {
  auto store = open();
  FakeClock clock;
  ASSERT_TRUE(store.begin(record("aa1"), clock));
  clock.advance(std::chrono::seconds(1));
  ASSERT_TRUE(store.begin(record("ab2"), clock));
  ASSERT_TRUE(store.end(SessionId("aa1"), "completed", clock));
  auto all = store.list();
  ASSERT_TRUE(all) << all.error().message;
  ASSERT_EQ(all->size(), 2u);
  EXPECT_EQ((*all)[0].id.value(), "ab2");
  EXPECT_EQ((*all)[0].state, SessionState::running);
  EXPECT_EQ((*all)[0].owner.pid, getpid());
  EXPECT_EQ((*all)[1].state, SessionState::ended);
  EXPECT_EQ((*all)[1].end, "completed");
  EXPECT_EQ((*all)[1].kind, SessionKind::task);
  EXPECT_EQ((*all)[1].grants[0], "rw /a → /mnt/a");
  EXPECT_EQ((*all)[1].grants.size(), 2u);
}

TEST_F(SessionStoreTest, IdsMayBeShortened) {
  auto store = open();
  ASSERT_TRUE(store.begin(record("aa1"), clock_));
  ASSERT_TRUE(store.begin(record("ab2"), clock_));
  EXPECT_EQ(store.find("ab")->id.value(), "ab2");
  EXPECT_EQ(store.find("a").error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(store.find("x").error().code, ErrorCode::not_found);
  EXPECT_EQ(store.find("").error().message, "the id of a session is empty");
}

TEST_F(SessionStoreTest, ARecordRunsOnlyWhileItsProcessLives) {
  auto store = open();
  pid_t other = begin_elsewhere("aa1");
  EXPECT_EQ(store.find("aa1")->state, SessionState::running);
  EXPECT_EQ(store.remove(SessionId("aa1")).error().code, ErrorCode::failed_precondition);
  EXPECT_EQ(store.begin(record("aa1"), clock_).error().code, ErrorCode::unavailable);
  auto process = open_process(store.find("aa1")->owner);
  ASSERT_TRUE(process && *process);
  ASSERT_TRUE(signal_process((*process)->get(), SIGKILL));
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(other), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(store.find("aa1")->state, SessionState::interrupted);  // a zombie is none that runs
  waitpid(other, nullptr, 0);
  EXPECT_EQ(store.find("aa1")->state, SessionState::interrupted);
  auto created = store.find("aa1")->created;
  ASSERT_TRUE(store.begin(record("aa1"), clock_));  // resumed
  EXPECT_EQ(store.find("aa1")->state, SessionState::running);
  EXPECT_EQ(store.find("aa1")->owner.pid, getpid());
  EXPECT_EQ(store.find("aa1")->created, created);
  ASSERT_TRUE(store.end(SessionId("aa1"), "completed", clock_));
  ASSERT_TRUE(store.remove(SessionId("aa1")));
  EXPECT_EQ(store.find("aa1").error().code, ErrorCode::not_found);
}

TEST_F(SessionStoreTest, AReusedProcessNumberIsAnotherProcess) {
  auto identity = *ProcessIdentity::of_this_process();
  EXPECT_TRUE(*open_process(identity));
  identity.start_ticks += 1;
  EXPECT_FALSE(*open_process(identity));
  identity.start_ticks -= 1;
  identity.boot = "another boot";
  EXPECT_FALSE(*open_process(identity));
  EXPECT_FALSE(*open_process({}));
}

}  // namespace
}  // namespace anchorhold::session
