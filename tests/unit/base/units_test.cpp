#include "base/units.h"

#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/id.h"

namespace anchorhold {
namespace {

using std::chrono::milliseconds;

TEST(Units, SizesAsPeopleWriteThem) {
  struct Case {
    std::string_view text;
    std::uint64_t bytes;
  };
  for (const auto& c :
       {Case{"0", 0}, Case{"512", 512}, Case{"512B", 512}, Case{"1k", 1024}, Case{"512M", 512ull << 20},
        Case{"2GiB", 2ull << 30}, Case{"3GB", 3ull << 30}, Case{"1T", 1ull << 40}}) {
    auto size = parse_size(c.text);
    ASSERT_TRUE(size) << c.text;
    EXPECT_EQ(size->bytes, c.bytes) << c.text;
  }
  for (auto text : {"", "M", "-1", "1.5G", "1X", "1Gi", "99999999999999999999", "16777216T", " 1"}) {
    auto size = parse_size(text);
    ASSERT_FALSE(size) << text;
    EXPECT_EQ(size.error().code, ErrorCode::invalid_argument);
    EXPECT_FALSE(size.error().hint.empty());
  }
}

TEST(Units, DurationsAsPeopleWriteThem) {
  struct Case {
    std::string_view text;
    std::int64_t count;
  };
  for (const auto& c : {Case{"250ms", 250}, Case{"90s", 90'000}, Case{"90", 90'000}, Case{"5m", 300'000},
                        Case{"1h30m", 5'400'000}, Case{"1d", 86'400'000}}) {
    auto duration = parse_duration(c.text);
    ASSERT_TRUE(duration) << c.text;
    EXPECT_EQ(duration->count(), c.count) << c.text;
  }
  for (auto text : {"", "s", "-5s", "1h30", "5 m", "99999999999999999d", "1w"})
    EXPECT_FALSE(parse_duration(text)) << text;
}

TEST(Units, PrintedForPeople) {
  EXPECT_EQ(to_string(ByteSize{512}), "512 B");
  EXPECT_EQ(to_string(ByteSize::gib(2)), "2 GiB");
  EXPECT_EQ(to_string(ByteSize{1536ull << 20}), "1.5 GiB");
  EXPECT_EQ(to_string(milliseconds(250)), "250ms");
  EXPECT_EQ(to_string(milliseconds(90'000)), "1m 30s");
}

TEST(Units, TimeIsRfc3339InUtc) {
  EXPECT_EQ(to_rfc3339(WallTime(milliseconds(1'234))), "1970-01-01T00:00:01.234Z");
}

TEST(Id, RandomAndShort) {
  EXPECT_EQ(random_hex(8).size(), 16u);
  EXPECT_NE(random_hex(8), random_hex(8));
  EXPECT_EQ(new_short_id().size(), 12u);
  EXPECT_NE(new_short_id(), new_short_id());
}

}  // namespace
}  // namespace anchorhold
