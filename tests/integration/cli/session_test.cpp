// anchorhold sessions on running commands.
#include <signal.h>

#include "cli_fixture.h"

namespace anchorhold::cli {
namespace {

class SessionsTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    ANCHORHOLD_NEEDS_IMAGE();
  }
};

TEST_F(SessionsTest, ARunIsListedStoppedAndForgotten) {
  auto running = start({"run", "--image", image_, "--", "sh", "-c", "echo ready; sleep 1000"});
  running.read_until("ready\n");
  auto sessions = objects(run({"sessions", "list", "--json"}).out);
  ASSERT_EQ(sessions.size(), 1u);
  EXPECT_EQ(sessions[0].at("state"), "running");
  EXPECT_EQ(sessions[0].at("kind"), "run");
  EXPECT_EQ(sessions[0].at("pid"), running.pid());
  std::string id = sessions[0].at("id");
  EXPECT_EQ(run({"sessions", "resume", id}).status, 125);
  auto stopped = run({"sessions", "stop", id});
  EXPECT_EQ(stopped.status, 0) << stopped.err;
  EXPECT_EQ(running.finish().status, 128 + SIGTERM);
  EXPECT_TRUE(nothing_left());
  EXPECT_EQ(run({"sessions", "stop", id}).status, 125);
  EXPECT_EQ(run({"sessions", "rm", id}).status, 0);
  EXPECT_EQ(run({"sessions", "show", id}).status, 125);
}

TEST_F(SessionsTest, AStopWhileTheGuestStartsLeavesNothing) {
  auto running = start({"run", "--verbose", "--image", image_, "--", "true"});
  // The machine is being made, or boots.
  running.read_errors_until("stage machine");
  running.signal(SIGINT);
  auto outcome = running.finish();
  EXPECT_EQ(outcome.status, 128 + SIGINT) << outcome.err;
  EXPECT_TRUE(nothing_left());
}

}  // namespace
}  // namespace anchorhold::cli
