// The hardware path, inside an emulated machine that has a working /dev/kvm: with-kvm COMMAND runs a command
// in this computer's file system there. Its /tmp, /run and /dev are its own, so everything needed is laid out
// elsewhere.
#include <cstdlib>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/process.h"
#include "hypervisor/tiny_guest.h"

namespace anchorhold::hypervisor {
namespace {

using testing::HasSubstr;

std::filesystem::path with_kvm() {
  if (const char* variable = std::getenv("ANCHORHOLD_WITH_KVM")) return variable;
  return std::filesystem::path(ANCHORHOLD_SOURCE_DIR).parent_path() / "shared/tools/with-kvm";
}

struct Ran {
  ExitStatus status;
  std::string output;
};

Ran run(const std::vector<std::string>& argv) {
  Pipe pipe = make_pipe().value();
  SpawnSpec spec;
  spec.argv = argv;
  spec.descriptors = {{pipe.write_end.get(), 1}, {pipe.write_end.get(), 2}};
  Child child = Child::spawn(spec).value();
  pipe.write_end.reset();
  std::string output(1 << 20, '\0');
  output.resize(read_full(pipe.read_end.get(), std::as_writable_bytes(std::span(output))).value_or(0));
  return {child.wait(), output};
}

TEST(Kvm, GuestBootsOnTheHardwarePath) {
  if (test_kernel().empty())
    GTEST_SKIP() << "ANCHORHOLD_TEST_IMAGE names no image: the hardware path is NOT tested";
  if (access(with_kvm().c_str(), X_OK) != 0)
    GTEST_SKIP() << with_kvm() << " is not there (ANCHORHOLD_WITH_KVM): the hardware path is NOT tested";
  if (geteuid() != 0) GTEST_SKIP() << "with-kvm needs root: the hardware path is NOT tested";
  std::string pattern = "/var/tmp/anchorhold-kvm-XXXXXX";
  ASSERT_NE(mkdtemp(pattern.data()), nullptr);
  const std::filesystem::path layout = pattern;
  // The tool has one job file for the whole computer.
  auto lock = FileLock::acquire("/var/tmp/anchorhold-with-kvm.lock", FileLock::Wait::yes);
  ASSERT_TRUE(lock);
  std::filesystem::create_directories(layout / "bin");
  const auto programs = std::filesystem::path(ANCHORHOLD_PROGRAM_DIR);
  for (const char* name : {"anchorhold-reaper", "anchorhold-qemu"})
    std::filesystem::copy_file(programs / name, layout / "bin" / name);
  std::filesystem::copy_file(programs / "../tests/hypervisor_host", layout / "bin" / "host");
  std::filesystem::copy_file(test_kernel(), layout / "vmlinux");
  write_initrd(programs / "../tests/tiny_init", layout / "initrd");

  auto command = layout.string() + "/bin/host /tmp/r /tmp/cache " + layout.string() + "/vmlinux " +
                 layout.string() + "/initrd /tmp/console poweroff ";
  Ran ran = run({with_kvm().string(), command + "automatic"});
  std::filesystem::remove_all(layout);
  EXPECT_TRUE(ran.status.ok()) << to_string(ran.status);
  EXPECT_THAT(ran.output, HasSubstr("acceleration hardware"));
  EXPECT_THAT(ran.output, testing::ContainsRegex("running [0-9]+ kvm"));
  EXPECT_THAT(ran.output, HasSubstr("tiny: up"));
  EXPECT_THAT(ran.output, HasSubstr("exit guest_shutdown"));
}

}  // namespace
}  // namespace anchorhold::hypervisor
