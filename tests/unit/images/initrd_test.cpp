#include "initrd.h"

#include <gtest/gtest.h>
#include <map>
#include <string>

namespace anchorhold::images {
namespace {

struct Member {
  unsigned mode = 0;
  unsigned device_major = 0;
  unsigned device_minor = 0;
  unsigned uid = 1;
  unsigned mtime = 1;
  std::string contents;
};

// Reads the "newc" format on its own, as the kernel's init/initramfs.c does.
std::map<std::string, Member> read_archive(const std::string& archive) {
  std::map<std::string, Member> members;
  std::size_t at = 0;
  for (;;) {
    if (archive.compare(at, 6, "070701") != 0) ADD_FAILURE() << "no magic at " << at;
    auto field = [&](int index) {
      return static_cast<unsigned>(std::stoul(archive.substr(at + 6 + 8 * index, 8), nullptr, 16));
    };
    Member member{field(1), field(9), field(10), field(2), field(5), {}};
    std::size_t name_size = field(11), size = field(6);
    std::string name = archive.substr(at + 110, name_size - 1);
    EXPECT_EQ(archive[at + 110 + name_size - 1], '\0');
    std::size_t data = (at + 110 + name_size + 3) & ~std::size_t(3);
    member.contents = archive.substr(data, size);
    at = (data + size + 3) & ~std::size_t(3);
    if (name == "TRAILER!!!" || at >= archive.size() || ::testing::Test::HasFailure()) return members;
    members[name] = member;
  }
}

TEST(Initrd, HoldsTheAgentAndAConsole) {
  for (std::size_t size : {0, 1, 2, 3, 4, 5, 100001}) {
    std::string agent(size, 'x');
    auto archive = make_initrd(agent);
    EXPECT_EQ(archive.size() % 512, 0u);
    auto members = read_archive(archive);
    EXPECT_EQ(members.at("init").contents, agent);
    EXPECT_EQ(members.at("init").mode, 0100755u);
    EXPECT_EQ(members.at("dev/console").mode, 0020600u);
    EXPECT_EQ(members.at("dev/console").device_major, 5u);
    EXPECT_EQ(members.at("dev/console").device_minor, 1u);
    EXPECT_EQ(members.at("dev").mode, 0040755u);
    for (const auto& [name, member] : members) {
      EXPECT_EQ(member.uid, 0u) << name;
      EXPECT_EQ(member.mtime, 0u) << name;
    }
    EXPECT_EQ(members.size(), 5u);
  }
}

TEST(Initrd, IsTheSameForTheSameAgent) {
  EXPECT_EQ(make_initrd("agent"), make_initrd("agent"));
  EXPECT_NE(make_initrd("agent"), make_initrd("Agent"));
}

}  // namespace
}  // namespace anchorhold::images
