#include "base/secret.h"

#include <cstring>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/prctl.h>

namespace anchorhold {
namespace {

// What smaps(5) says of the mapping that holds this address.
std::string flags_of_mapping(const void* address) {
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  bool here = false;
  while (std::getline(maps, line)) {
    std::size_t dash = line.find('-');
    if (line.find("kB") == std::string::npos && dash != std::string::npos && dash < 20) {
      auto begin = std::stoull(line.substr(0, dash), nullptr, 16),
           end = std::stoull(line.substr(dash + 1), nullptr, 16);
      auto at = reinterpret_cast<std::uintptr_t>(address);
      here = at >= begin && at < end;
    }
    if (here && line.starts_with("VmFlags:")) return line;
  }
  return {};
}

TEST(Secret, TakesWipesAndMoves) {
  std::string source = "sk-0123456789-a-long-secret-key-beyond-small-strings";
  const std::string text = source;
  const char* where = source.data();
  Secret first(std::move(source));
  EXPECT_EQ(first.expose(), text);
  EXPECT_TRUE(source.empty());
  EXPECT_EQ(std::string(where, 8), std::string(8, '\0'));
  Secret second(std::move(first));
  EXPECT_TRUE(first.empty());
  EXPECT_EQ(second.copy().expose(), text);
  second = Secret::of("another");
  EXPECT_EQ(second.expose(), "another");
  EXPECT_TRUE(Secret().empty());
  EXPECT_TRUE(Secret::of("").empty());
}

TEST(Secret, IsNoPartOfACoreDump) {
  Secret secret = Secret::of("sk-not-in-a-dump");
  EXPECT_NE(flags_of_mapping(secret.expose().data()).find(" dd"), std::string::npos)
      << flags_of_mapping(secret.expose().data());
}

TEST(Secret, ThePersonsOtherProcessesAreKeptOutWhileItIsAskedFor) {
  ASSERT_EQ(prctl(PR_GET_DUMPABLE), 1);
  {
    Undumpable outer;
    {
      Undumpable inner;
      EXPECT_EQ(prctl(PR_GET_DUMPABLE), 0);
    }
    EXPECT_EQ(prctl(PR_GET_DUMPABLE), 0);
  }
  EXPECT_EQ(prctl(PR_GET_DUMPABLE), 1);
}

TEST(Secret, WipingReachesWhatAnEarlierValueLeft) {
  std::string text = "a long value that does not fit into a small string";
  char* bytes = text.data();
  text.resize(3);
  wipe(text);
  EXPECT_TRUE(text.empty());
  EXPECT_EQ(std::string(bytes, 20), std::string(20, '\0'));
}

}  // namespace
}  // namespace anchorhold
