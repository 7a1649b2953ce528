#include "base/executor.h"

#include <future>
#include <gtest/gtest.h>

namespace anchorhold {
namespace {

using namespace std::chrono_literals;

TEST(SerialExecutor, RunsInOrderOnOneThread) {
  std::vector<int> order;
  std::promise<void> done;
  SerialExecutor executor("test");
  for (int i = 0; i < 100; ++i) executor.post([&order, i] { order.push_back(i); });
  executor.post([&done] { done.set_value(); });
  done.get_future().wait();
  ASSERT_EQ(order.size(), 100u);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST(SerialExecutor, DestroyedWithTasksWaiting) {
  bool ran = false;
  {
    SerialExecutor executor("test");
    executor.post_after(1h, [&ran] { ran = true; });
  }
  EXPECT_FALSE(ran);
}

TEST(ManualExecutor, StepsFromOneDueTimeToTheNext) {
  FakeClock clock;
  ManualExecutor executor(clock);
  std::vector<std::string> log;
  auto start = clock.monotonic();
  executor.post_after(20ms, [&] {
    log.push_back("second");
    EXPECT_EQ(clock.monotonic() - start, 20ms);
  });
  executor.post_after(10ms, [&] {
    log.push_back("first");
    executor.post_after(5ms, [&] { log.push_back("nested"); });
  });
  executor.advance(30ms);
  EXPECT_EQ(log, (std::vector<std::string>{"first", "nested", "second"}));
  EXPECT_EQ(clock.monotonic() - start, 30ms);
}

}  // namespace
}  // namespace anchorhold
