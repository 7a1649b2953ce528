// Builds that are stopped, killed, or meet another build.
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "tiny_recipe.h"

namespace anchorhold::images {
namespace {

using ::testing::ElementsAre;

// A script that notes its process and that of a child of a child, and then waits for ever.
std::string waiting_script(const TinyRecipe& tiny) {
  auto fifo = tiny.path("fifo").string();
  EXPECT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  auto pids = tiny.path("pids").string();
  return "(bash -c 'echo $$ >> \"" + pids + "\"; read _ < \"" + fifo + "\"'; true) &\n" +
         "head -c 1000 /dev/zero > \"$1\"\necho $$ >> '" + pids + "'\nread _ < '" + fifo + "'";
}

std::vector<pid_t> noted(const TinyRecipe& tiny) {
  std::ifstream file(tiny.path("pids"));
  std::vector<pid_t> pids;
  for (pid_t pid; file >> pid;) pids.push_back(pid);
  return pids;
}

// Gone, or dead and not yet reaped by whoever inherited it.
bool is_gone(pid_t pid) {
  if (kill(pid, 0) != 0) return errno == ESRCH;
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  auto end = text.rfind(')');
  return end != std::string::npos && end + 2 < text.size() && text[end + 2] == 'Z';
}

TEST(InterruptedBuild, AStopEndsAllProcessesAndKeepsTheOldImage) {
  TinyRecipe tiny;
  auto first = tiny.build();
  ASSERT_TRUE(first) << first.error().message;
  tiny.set_script("rootfs", waiting_script(tiny));
  std::stop_source stop;
  std::optional<Result<BuiltImage>> result;
  std::thread builder([&] { result = tiny.build(stop.get_token()); });
  ASSERT_TRUE(eventually([&] { return noted(tiny).size() == 2; }));
  stop.request_stop();
  builder.join();
  ASSERT_FALSE(*result);
  EXPECT_EQ(result->error().code, ErrorCode::cancelled);
  for (pid_t pid : noted(tiny)) EXPECT_TRUE(eventually([&] { return is_gone(pid); })) << pid;
  EXPECT_TRUE(std::filesystem::is_empty(tiny.path("store/building")));
  auto image = tiny.verify();
  ASSERT_TRUE(image);
  EXPECT_EQ(image->manifest(), first->manifest);
}

TEST(InterruptedBuild, AScriptThatIgnoresTheStopIsKilled) {
  TinyRecipe tiny;
  tiny.set_script("kernel", "trap '' TERM\n" + waiting_script(tiny));
  std::stop_source stop;
  std::optional<Result<BuiltImage>> result;
  std::thread builder([&] { result = tiny.build(stop.get_token()); });
  ASSERT_TRUE(eventually([&] { return noted(tiny).size() == 2; }));
  stop.request_stop();
  builder.join();
  ASSERT_FALSE(*result);
  EXPECT_EQ(result->error().code, ErrorCode::cancelled);
  for (pid_t pid : noted(tiny)) EXPECT_TRUE(eventually([&] { return is_gone(pid); })) << pid;
}

TEST(InterruptedBuild, AStopBeforeTheStartRunsNothing) {
  TinyRecipe tiny;
  std::stop_source stop;
  stop.request_stop();
  auto built = tiny.build(stop.get_token());
  ASSERT_FALSE(built);
  EXPECT_EQ(built.error().code, ErrorCode::cancelled);
  EXPECT_TRUE(tiny.runs().empty());
}

TEST(InterruptedBuild, AKilledBuilderLeavesNoProcessAndTheNextOneSucceeds) {
  TinyRecipe tiny;
  auto old_script = "head -c 5000 /dev/zero > \"$1\"";
  tiny.set_script("rootfs", waiting_script(tiny));
  pid_t builder = fork();
  if (builder == 0) {
    auto built = tiny.build();
    _exit(built ? 0 : 1);
  }
  ASSERT_TRUE(eventually([&] { return noted(tiny).size() == 2; }));
  EXPECT_FALSE(std::filesystem::is_empty(tiny.path("store/building")));
  kill(builder, SIGKILL);
  ASSERT_EQ(waitpid(builder, nullptr, 0), builder);
  for (pid_t pid : noted(tiny)) EXPECT_TRUE(eventually([&] { return is_gone(pid); })) << pid;
  EXPECT_FALSE(tiny.verify());

  tiny.set_script("rootfs", old_script);
  auto built = tiny.build();
  ASSERT_TRUE(built) << built.error().message;
  EXPECT_TRUE(tiny.verify());
  EXPECT_TRUE(std::filesystem::is_empty(tiny.path("store/building")));
  // The kernel that the killed builder had finished was kept.
  EXPECT_THAT(tiny.runs(), ElementsAre("kernel", "rootfs", "rootfs"));
}

TEST(InterruptedBuild, TwoBuildersAtOnceBuildOnce) {
  TinyRecipe tiny;
  auto fifo = tiny.path("gate").string();
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  tiny.set_script("kernel", "read _ < '" + fifo + "'; printf k > \"$1\"");
  std::atomic<bool> waited = false;
  auto options = tiny.options();
  options.progress = [&](const BuildProgress& progress) {
    if (progress.kind == BuildProgress::Kind::waiting) waited = true;
  };
  std::optional<Result<BuiltImage>> results[2];
  std::thread first([&] { results[0] = build(tiny.store(), "tiny", options); });
  std::thread second([&] { results[1] = build(tiny.store(), "tiny", options); });
  EXPECT_TRUE(eventually([&] { return waited.load(); }));
  // Opening for writing waits for the script to open for reading.
  {
    std::ofstream gate(fifo);
    gate << "go\n";
  }
  first.join();
  second.join();
  ASSERT_TRUE(*results[0]);
  ASSERT_TRUE(*results[1]);
  EXPECT_NE((*results[0])->changed, (*results[1])->changed);
  EXPECT_EQ((*results[0])->manifest, (*results[1])->manifest);
  EXPECT_THAT(tiny.runs(), ElementsAre("kernel", "rootfs"));
}

TEST(InterruptedBuild, WaitingForAnotherBuildCanBeStopped) {
  TinyRecipe tiny;
  auto held = tiny.store().lock(FileLock::Wait::yes);
  ASSERT_TRUE(held);
  std::stop_source stop;
  auto options = tiny.options();
  options.progress = [&](const BuildProgress& progress) {
    if (progress.kind == BuildProgress::Kind::waiting) stop.request_stop();
  };
  auto built = build(tiny.store(), "tiny", options, stop.get_token());
  ASSERT_FALSE(built);
  EXPECT_EQ(built.error().code, ErrorCode::cancelled);
}

}  // namespace
}  // namespace anchorhold::images
