#include "console.h"

#include <gtest/gtest.h>

namespace anchorhold::cli {
namespace {

TEST(Printable, NothingSteersTheTerminal) {
  EXPECT_EQ(printable("plain\ttext\n"), "plain\ttext\n");
  EXPECT_EQ(printable("\x1b[31mred"), "\\x1b[31mred");
  EXPECT_EQ(printable("a\rb\x07"), "a\\x0db\\x07");
  EXPECT_EQ(printable(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\x7f"), "\\x7f");
  EXPECT_EQ(printable("grün → €"), "grün → €");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\xef\xbf\xbd"
            "31m");  // C1 control sequence introducer
  EXPECT_EQ(printable("a\xe2\x80\xae"
                      "b"),
            "a\xef\xbf\xbd"
            "b");  // right-to-left override
  EXPECT_EQ(printable("a\xe2\x81\xa6"
                      "b"),
            "a\xef\xbf\xbd"
            "b");  // isolate
  EXPECT_EQ(printable("\xff\xfe"), "\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(printable("\xc0\x80"), "\xef\xbf\xbd\xef\xbf\xbd");                  // overlong
  EXPECT_EQ(printable("\xed\xa0\x80"), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");  // surrogate
  EXPECT_EQ(printable("\xe2\x82"), "\xef\xbf\xbd\xef\xbf\xbd");                  // cut short
  EXPECT_EQ(printable("\xf0\x9f\x98\x80"), "\xf0\x9f\x98\x80");
  EXPECT_EQ(printable("\xf4\x90\x80\x80").find('\xf4'), std::string::npos);  // beyond U+10FFFF
}

TEST(OneLine, IsOneLineOfItsLengthAndWholeCharacters) {
  EXPECT_EQ(one_line("a\nb\tc\n\n", 100), "a b c");
  EXPECT_EQ(one_line("abcdef", 6), "abcdef");
  std::string cut = one_line("äöüäöüäöü", 10);
  EXPECT_LE(cut.size(), 10u);
  EXPECT_EQ(cut, "äöü…");
  EXPECT_EQ(one_line("", 10), "");
}

TEST(OneLine, OfATerminalIsCountedInCharacters) {
  const std::string line = bar(50) + " kernel compiling";
  EXPECT_EQ(one_line_of(line, 100), line);
  EXPECT_EQ(one_line_of("äöü", 3), "äöü");
  EXPECT_EQ(one_line_of("äöüß", 3), "äö…");
  EXPECT_EQ(one_line_of("abc\ndef", 4), "abc…");
  EXPECT_EQ(one_line_of(std::string(50, '\x1b'), 1000).size(), 200u);
  EXPECT_EQ(one_line_of("", 3), "");
}

TEST(Advice, IsTheErrorsOwnOrOneLineForItsKind) {
  EXPECT_EQ(advice({ErrorCode::internal, "broken", "mend it"}), "mend it");
  using enum ErrorCode;
  for (auto code :
       {invalid_argument, not_found, already_exists, permission_denied, resource_exhausted,
        failed_precondition, unavailable, deadline_exceeded, cancelled, data_loss, unsupported, internal}) {
    auto text = advice({code, "broken", {}});
    EXPECT_GT(text.size(), 10u) << to_string(code);
    EXPECT_EQ(text.find('\n'), std::string::npos) << to_string(code);
  }
  EXPECT_NE(advice({not_found, "x", {}}), advice({permission_denied, "x", {}}));
  EXPECT_NE(advice({resource_exhausted, "x", {}}), advice({unavailable, "x", {}}));
}

TEST(Bar, ShowsItsPart) {
  EXPECT_EQ(bar(0).find("█"), std::string::npos);
  EXPECT_EQ(bar(100).find("░"), std::string::npos);
  EXPECT_EQ(bar(-5), bar(0));
  EXPECT_EQ(bar(500), bar(100));
  EXPECT_NE(bar(50), bar(45));
}

}  // namespace
}  // namespace anchorhold::cli
