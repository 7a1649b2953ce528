#include "page_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace anchorhold::egress {
namespace {

std::string text_of(const std::string& html, std::size_t piece = 100'000,
                    const std::string& charset = "utf-8") {
  PageText page(charset, "https://www.example.com/a/b", 100'000);
  for (std::size_t at = 0; at < html.size(); at += piece) page.add(std::string_view(html).substr(at, piece));
  page.finish();
  return page.text();
}

TEST(PageText, WhatAReaderSeesIsText) {
  const std::pair<const char*, const char*> table[] = {
      {"", ""},
      {"just words", "just words"},
      {"<p>One  two\n three</p><p>four</p>", "One two three\n\nfour"},
      {"a<br>b<br/>c", "a\nb\nc"},
      {"<h1>Title</h1>text<h3>Below</h3>", "# Title\n\ntext\n\n### Below"},
      {"<ul><li>one<li>two</ul>after", "- one\n- two\n\nafter"},
      {"<table><tr><th>a<th>b</tr><tr><td>1<td>2</tr></table>", "a | b\n1 | 2"},
      {"<pre>x  y\n  z</pre>", "x  y\n  z"},
      {"<a href='../c?x=1&amp;y'>link</a>", "link (https://www.example.com/c?x=1&y)"},
      {"<a href='#here'>here</a> <a href='javascript:alert(1)'>no</a> <a href='mailto:a@b'>mail</a>",
       "here no mail"},
      {"<base href='https://other.example/'><a href=x>x</a>", "x (https://other.example/x)"},
      {"<img alt='a chart' src=x><img src=y>", "[a chart]"},
      {"a&lt;b&gt; &amp; &uuml; &#8364; &nosuch;", "a<b> & \xc3\xbc \xe2\x82\xac &nosuch;"},
      {"<script>var x = '<p>no</p>';</script><style>p{}</style><noscript>no</noscript>yes", "yes"},
      {"<svg><text>no</text></svg><template><p>no</p></template><iframe>no</iframe>yes", "yes"},
      {"<div hidden>no</div><p style='Display : none'>no</p><b aria-hidden=true>no</b>yes", "yes"},
      {"<!-- no -->yes", "yes"},
      {"<p>not closed <b>at <i>all", "not closed at all"},
      {"</p></div>more", "more"},
  };
  for (const auto& [html, text] : table)
    for (std::size_t piece : {std::size_t{1}, std::size_t{7}, std::size_t{100'000}})
      EXPECT_EQ(text_of(html, piece), text) << html << " in pieces of " << piece;
}

TEST(PageText, TheTitleIsApart) {
  PageText page("utf-8", "https://a.example/", 1000);
  page.add("<html><head><title>A &amp; B</title></head><body>text<svg><title>no</title></svg></body></html>");
  page.finish();
  EXPECT_EQ(page.title(), "A & B");
  EXPECT_EQ(page.text(), "text");
}

TEST(PageText, CharsetsOfTheServerAndOfThePage) {
  EXPECT_EQ(text_of("<p>\xfc</p>", 100, "iso-8859-1"), "\xc3\xbc");
  EXPECT_EQ(text_of("<p>\xc3\xbc</p>", 100, ""), "\xc3\xbc");
  EXPECT_EQ(text_of("<meta charset='iso-8859-1'><p>\xfc</p>", 100, ""), "\xc3\xbc");
}

TEST(PageText, WhatIsTooMuchOrTooDeepEndsQuietly) {
  PageText page("utf-8", "https://a.example/", 100);
  for (int i = 0; i < 1000; ++i) page.add("<p>words and more words</p>");
  page.finish();
  EXPECT_TRUE(page.shortened());
  EXPECT_LE(page.text().size(), 100u);
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "<div>";
  EXPECT_THAT(text_of(deep + "bottom"), ::testing::AnyOf("bottom", ""));
}

}  // namespace
}  // namespace anchorhold::egress
