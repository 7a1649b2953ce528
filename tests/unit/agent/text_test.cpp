#include "text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "json.h"
#include "message_json.h"

namespace anchorhold::agent {
namespace {

using testing::HasSubstr;

TEST(Text, invalid_utf8_is_replaced_and_counted) {
  const struct {
    std::string in, out;
    std::size_t replaced;
  } cases[] = {
      {"plain é 🌍", "plain é 🌍", 0},
      {std::string("a\0b", 3),
       "a\xef\xbf\xbd"
       "b",
       1},
      {"\xff", "\xef\xbf\xbd", 1},
      {"M\xfcller", "M\xef\xbf\xbdller", 1},                                        // Latin-1
      {"\xe2\x82", "\xef\xbf\xbd", 1},                                              // cut
      {"\xe2\x82(", "\xef\xbf\xbd(", 1},                                            // broken off
      {"\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd", 2},                                  // overlong
      {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", 3},                  // surrogate
      {"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", 4},  // beyond U+10FFFF
      {"\xf0\x9f\x8c", "\xef\xbf\xbd", 1},
  };
  for (const auto& c : cases) {
    std::size_t replaced = 99;
    EXPECT_EQ(clean_utf8(c.in, &replaced), c.out);
    EXPECT_EQ(replaced, c.replaced);
  }
}

TEST(Text, cuts_never_split_a_character) {
  std::string text = "aé🌍b";
  for (std::size_t n = 0; n <= text.size() + 1; ++n) {
    EXPECT_EQ(clean_utf8(prefix_at_boundary(text, n)), std::string(prefix_at_boundary(text, n)));
    EXPECT_EQ(clean_utf8(suffix_at_boundary(text, n)), std::string(suffix_at_boundary(text, n)));
    EXPECT_LE(prefix_at_boundary(text, n).size(), n);
    EXPECT_LE(suffix_at_boundary(text, n).size(), n);
  }
  // Bytes that are no UTF-8 are not searched for ever.
  EXPECT_EQ(prefix_at_boundary(std::string(100, '\x80'), 50).size(), 47u);
}

TEST(Text, one_line_shows_the_first) {
  EXPECT_EQ(one_line("\n  first\nsecond"), "first …");
  EXPECT_EQ(one_line("only\n"), "only");
  EXPECT_EQ(one_line("a\tb\x1b[31m"), "a b [31m");
  EXPECT_EQ(one_line(std::string(300, 'x'), 10), "xxxxxxxxxx …");
  EXPECT_EQ(one_line(""), "");
  EXPECT_EQ(grouped(1234567), "1,234,567");
  EXPECT_EQ(grouped(12), "12");
  EXPECT_EQ(counted(1, "line", "lines"), "1 line");
}

TEST(BoundedJson, size_and_depth_are_limited_and_errors_are_values) {
  EXPECT_TRUE(parse_json(R"({"a":[1,2,{"b":"}]["}]})"));
  EXPECT_FALSE(parse_json("{"));
  EXPECT_FALSE(parse_json(""));
  EXPECT_FALSE(parse_json("\"\xff\""));
  EXPECT_FALSE(parse_json("[1,2,3]", 4));
  EXPECT_TRUE(parse_json(std::string(max_json_depth, '[') + std::string(max_json_depth, ']')));
  auto deep = parse_json(std::string(100'000, '['));
  ASSERT_FALSE(deep);
  EXPECT_THAT(deep.error().message, HasSubstr("nested deeper"));
  EXPECT_EQ(to_text(Json{{"a", "\xff"}}), "{\"a\":\"\xef\xbf\xbd\"}");
}

TEST(BoundedJson, members_have_defaults) {
  Json json = {{"s", "x"}, {"n", 5}, {"negative", -5}, {"b", true}};
  EXPECT_EQ(string_or(json, "s"), "x");
  EXPECT_EQ(string_or(json, "n", "d"), "d");
  EXPECT_EQ(uint_or(json, "n"), 5u);
  EXPECT_EQ(uint_or(json, "negative", 7), 7u);
  EXPECT_EQ(uint_or(json, "s", 7), 7u);
  EXPECT_TRUE(bool_or(json, "b"));
  EXPECT_TRUE(member(Json::array(), "x").is_null());
}

TEST(Message, blocks_survive_the_way_to_json_and_back) {
  std::vector<Block> blocks{
      TextBlock{"hello", {}},
      ToolUseBlock{"id1", "shell", R"({"command":"ls"})", false},
      ToolUseBlock{"id2", "shell", R"({"command": "l)", true},
      ToolResultBlock{"id1", "out", true},
      OpaqueBlock{"thinking", R"({"signature":"s","thinking":"t","type":"thinking"})"},
  };
  std::string json = blocks_to_json(blocks);
  auto back = blocks_from_json(json);
  ASSERT_TRUE(back);
  EXPECT_EQ(blocks_to_json(*back), json);
  const auto& broken = std::get<ToolUseBlock>((*back)[2]);
  EXPECT_TRUE(broken.malformed);
  EXPECT_EQ(broken.input, R"({"command": "l)");
  EXPECT_FALSE(blocks_from_json("{}"));
  EXPECT_FALSE(blocks_from_json(R"([{"no":"type"}])"));
  EXPECT_FALSE(blocks_from_json(R"([{"type":"tool_use"}])"));
}

TEST(Message, text_with_more_fields_is_carried_whole) {
  auto block = block_from_json(*parse_json(R"({"type":"text","text":"x","citations":[{"a":1}]})"));
  EXPECT_EQ(block_to_json(*block)["citations"][0]["a"], 1);
  auto plain = block_from_json(*parse_json(R"({"type":"text","text":"x","citations":null})"));
  EXPECT_FALSE(block_to_json(*plain).contains("citations"));
  auto parts = block_from_json(*parse_json(
      R"({"type":"tool_result","tool_use_id":"i","content":[{"type":"text","text":"a"},{"type":"image"},{"type":"text","text":"b"}]})"));
  EXPECT_EQ(std::get<ToolResultBlock>(*parts).text, "ab");
}

TEST(Message, arguments_are_an_object_or_malformed) {
  const std::pair<const char*, const char*> good[] = {
      {"", "{}"}, {" \n", "{}"}, {R"({"a":1})", R"({"a":1})"}, {R"("{\"a\":1}")", R"({"a":1})"}};
  for (const auto& [given, input] : good) {
    ToolUseBlock use;
    set_input(use, given);
    EXPECT_FALSE(use.malformed) << given;
    EXPECT_EQ(use.input, input);
  }
  for (const char* given : {"{", "[]", "5", "null", "\"text\"", "{} x"}) {
    ToolUseBlock use;
    set_input(use, given);
    EXPECT_TRUE(use.malformed) << given;
  }
}

}  // namespace
}  // namespace anchorhold::agent
