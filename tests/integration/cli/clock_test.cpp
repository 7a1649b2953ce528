// The guest's clock follows the host's. Setting the clock needs a machine of its own: with-kvm COMMAND runs a
// command in this computer's file system inside an emulated machine, which has a working /dev/kvm besides.
#include <cstdlib>
#include <unistd.h>

#include "base/paths.h"
#include "cli_fixture.h"

namespace anchorhold::cli {
namespace {

using ClockTest = CliTest;

std::filesystem::path with_kvm() {
  if (const char* variable = std::getenv("ANCHORHOLD_WITH_KVM")) return variable;
  return std::filesystem::path(ANCHORHOLD_SOURCE_DIR).parent_path() / "shared/tools/with-kvm";
}

// The number after the text, which must be there.
int number_after(const std::string& out, const std::string& text) {
  auto at = out.find(text);
  EXPECT_NE(at, std::string::npos) << text << " is not in: " << out;
  return at == std::string::npos ? -1 : std::atoi(out.c_str() + at + text.size());
}

TEST_F(ClockTest, TheGuestFollowsAClockThatIsSetAndRunsOnTheHardware) {
  ANCHORHOLD_NEEDS_IMAGE();
  if (access(with_kvm().c_str(), X_OK) != 0)
    GTEST_SKIP() << with_kvm() << " is not there (ANCHORHOLD_WITH_KVM): setting the clock is NOT tested";
  if (geteuid() != 0) GTEST_SKIP() << "with-kvm needs root: setting the clock is NOT tested";
  auto cache = cache_directory(), config = config_directory();
  ASSERT_TRUE(cache && config);
  // Its /tmp is another one, where the symlinks of this test are not.
  const std::string command = "bash " ANCHORHOLD_SOURCE_DIR "/tests/integration/cli/clock_step.sh " +
                              program() + " " + image_ + " " + cache->parent_path().string() + " " +
                              config->parent_path().string();
  auto lock = FileLock::acquire("/var/tmp/anchorhold-with-kvm.lock", FileLock::Wait::yes);
  ASSERT_TRUE(lock) << lock.error().message;
  // The tool keeps its machine's kernel in the person's cache.
  const std::string person = std::getenv("HOME") ? std::getenv("HOME") : "/root";
  auto running = start_program({with_kvm().string(), command},
                               {{"HOME", person}, {"XDG_CACHE_HOME", person + "/.cache"}});
  running.close_input();
  auto outcome = running.finish();
  EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.err;
  EXPECT_LE(std::abs(number_after(outcome.out, "apart before: ")), 30);
  EXPECT_LE(std::abs(number_after(outcome.out, "apart after: ")), 60);
  EXPECT_NE(outcome.out.find("vm.acceleration=hardware"), std::string::npos) << outcome.out;
}

}  // namespace
}  // namespace anchorhold::cli
