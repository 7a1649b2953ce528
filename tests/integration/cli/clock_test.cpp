// The guest's clock follows the host's. Setting the clock needs a machine of its own: with-kvm COMMAND runs a
// command in this computer's file system inside an emulated machine, which has a working /dev/kvm besides.
#include <cstdlib>
#include <unistd.h>

#include "cli_fixture.h"

namespace anchorhold::cli {
namespace {

using ClockTest = CliTest;

std::filesystem::path with_kvm() {
  if (const char* variable = std::getenv("ANCHORHOLD_WITH_KVM")) return variable;
  return std::filesystem::path(ANCHORHOLD_SOURCE_DIR).parent_path() / "shared/tools/with-kvm";
}

// A folder that is gone with the test.
struct Layout {
  std::filesystem::path path;
  ~Layout() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
};

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
  // The machine sees this computer's root file system, but has a /tmp, a /run and perhaps other mounts of its
  // own: everything needed is laid out in one place that is surely seen.
  std::string pattern = "/var/tmp/anchorhold-clock-XXXXXX";
  ASSERT_NE(mkdtemp(pattern.data()), nullptr);
  const Layout layout{pattern};
  using std::filesystem::copy_options;
  std::filesystem::copy(ANCHORHOLD_PROGRAM_DIR, layout.path / "bin");
  std::filesystem::copy_file(ANCHORHOLD_SOURCE_DIR "/tests/integration/cli/clock_step.sh",
                             layout.path / "step");
  const auto store = home() / "cache/anchorhold/images", laid_out = layout.path / "cache/anchorhold/images";
  const auto image = std::filesystem::path("images") / image_;
  std::filesystem::create_directories(laid_out / image);
  std::filesystem::copy(store / image, laid_out / image);
  const auto manifest = nlohmann::json::parse(read_text(store / image / "manifest.json"));
  for (const char* part : {"kernel", "rootfs", "initrd"}) {
    const auto file = manifest.at(part).at("file").get<std::string>();
    std::filesystem::create_directories((laid_out / file).parent_path());
    std::filesystem::copy_file(store / file, laid_out / file);
  }
  std::filesystem::create_directories(layout.path / "config/anchorhold");
  std::filesystem::copy(home() / "config/anchorhold/image-keys", layout.path / "config/anchorhold/image-keys",
                        copy_options::recursive);
  const std::string place = layout.path.string();
  const std::string command = "bash " + place + "/step " + place + "/bin/anchorhold " + image_ + " " + place +
                              "/cache " + place + "/config";
  auto lock = FileLock::acquire("/var/tmp/anchorhold-with-kvm.lock", FileLock::Wait::yes);
  ASSERT_TRUE(lock) << lock.error().message;
  // The tool keeps its machine's kernel in the person's cache.
  const std::string person = std::getenv("HOME") ? std::getenv("HOME") : "/root";
  auto outcome =
      run_program({with_kvm().string(), command}, {{"HOME", person}, {"XDG_CACHE_HOME", person + "/.cache"}});
  EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.err;
  EXPECT_LE(std::abs(number_after(outcome.out, "apart before: ")), 30);
  EXPECT_LE(std::abs(number_after(outcome.out, "apart after: ")), 60);
  EXPECT_NE(outcome.out.find("vm.acceleration=hardware"), std::string::npos) << outcome.out;
}

}  // namespace
}  // namespace anchorhold::cli
