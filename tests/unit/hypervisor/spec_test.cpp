#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hypervisor/apple.h"
#include "hypervisor/hcs.h"
#include "hypervisor/hypervisor.h"

namespace anchorhold::hypervisor {
namespace {

using testing::HasSubstr;

MachineSpec good_spec() {
  MachineSpec spec;
  spec.id = MachineId("abc-1");
  spec.kernel = "/k/vmlinux";
  spec.initrd = "/k/initrd";
  spec.console.path = "/log/console";
  return spec;
}

TEST(MachineSpec, AcceptsWhatIsUsual) {
  MachineSpec spec = good_spec();
  EXPECT_TRUE(validate(spec));
  spec.vcpus = max_vcpus;
  spec.memory = min_memory;
  spec.vsock_socket = "/" + std::string(106, 's');
  spec.shares = {{std::string(36, 't'), "/s/1"}, {"grant-A.b_c", "/s/2"}};
  spec.kernel_words = {"dm-mod.create=\"root,,,ro,0 8 verity\""};
  spec.wall_time = std::chrono::milliseconds(1);
  EXPECT_TRUE(validate(spec));
}

struct BadCase {
  const char* message;
  std::function<void(MachineSpec&)> spoil;
};

TEST(MachineSpec, RefusesAndSaysWhatAndHowMuch) {
  const std::vector<BadCase> cases = {
      {"machine id ''", [](auto& s) { s.id = MachineId(""); }},
      {"machine id 'a/b'", [](auto& s) { s.id = MachineId("a/b"); }},
      {"machine id 'A'", [](auto& s) { s.id = MachineId("A"); }},
      {"1 to 40 characters", [](auto& s) { s.id = MachineId(std::string(41, 'a')); }},
      {"kernel '' is not an absolute path", [](auto& s) { s.kernel.clear(); }},
      {"kernel 'k/v'", [](auto& s) { s.kernel = "k/v"; }},
      {"kernel holds a control character", [](auto& s) { s.kernel = "/k\n"; }},
      {"initrd is too long", [](auto& s) { s.initrd = "/" + std::string(5000, 'x'); }},
      {"neither an initrd nor a root file system", [](auto& s) { s.initrd.clear(); }},
      {"0 processors are not possible (1 to 64)", [](auto& s) { s.vcpus = 0; }},
      {"65 processors", [](auto& s) { s.vcpus = 65; }},
      {"63 MiB of memory are not possible (64 MiB to 256 GiB)",
       [](auto& s) { s.memory = ByteSize::mib(63); }},
      {"of memory are not possible", [](auto& s) { s.memory = ByteSize::gib(257); }},
      {"not a whole number of MiB", [](auto& s) { s.memory.bytes = (128ull << 20) + 4096; }},
      {"vsock socket is too long (108 bytes, at most 107)",
       [](auto& s) { s.vsock_socket = "/" + std::string(107, 's'); }},
      {"vsock socket 'x'", [](auto& s) { s.vsock_socket = "x"; }},
      {"share's tag ''",
       [](auto& s) {
         s.shares = {{"", "/s"}};
       }},
      {"share's tag 'a b'",
       [](auto& s) {
         s.shares = {{"a b", "/s"}};
       }},
      {"1 to 36 characters",
       [](auto& s) {
         s.shares = {{std::string(37, 't'), "/s"}};
       }},
      {"two shares have the tag 'x'",
       [](auto& s) {
         s.shares = {{"x", "/s"}, {"x", "/t"}};
       }},
      {"socket of the share 'x' is too long",
       [](auto& s) {
         s.shares = {{"x", "/" + std::string(200, 's')}};
       }},
      {"21 folders are too many",
       [](auto& s) {
         for (int i = 0; i < 21; ++i) s.shares.push_back({"t" + std::to_string(i), "/s"});
       }},
      {"kernel word '' is empty", [](auto& s) { s.kernel_words = {""}; }},
      {"holds a control character", [](auto& s) { s.kernel_words = {"a\nb"}; }},
      {"kernel command line is too long", [](auto& s) { s.kernel_words = {std::string(3000, 'w')}; }},
      {"console log '' is not an absolute path", [](auto& s) { s.console.path.clear(); }},
      {"is below 4 KiB", [](auto& s) { s.console.limit = ByteSize{100}; }},
      {"time limit is not positive", [](auto& s) { s.wall_time = std::chrono::milliseconds(0); }},
  };
  for (const auto& test : cases) {
    MachineSpec spec = good_spec();
    test.spoil(spec);
    Status status = validate(spec);
    ASSERT_FALSE(status) << test.message;
    EXPECT_EQ(status.error().code, ErrorCode::invalid_argument);
    EXPECT_THAT(status.error().message, HasSubstr(test.message));
  }
}

TEST(OtherPlatforms, SayThatTheyAreNotHere) {
  auto apple = make_apple_hypervisor();
  ASSERT_FALSE(apple);
  EXPECT_EQ(apple.error().code, ErrorCode::unsupported);
  EXPECT_THAT(apple.error().message, HasSubstr("macOS"));
  EXPECT_FALSE(apple.error().hint.empty());
  auto hcs = make_hcs_hypervisor();
  ASSERT_FALSE(hcs);
  EXPECT_EQ(hcs.error().code, ErrorCode::unsupported);
  EXPECT_THAT(hcs.error().message, HasSubstr("Windows"));
  EXPECT_FALSE(hcs.error().hint.empty());
}

}  // namespace
}  // namespace anchorhold::hypervisor
