#include "loop_fixture.h"

namespace anchorhold::agent {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

class ToolsTest : public LoopTest {
 protected:
  std::string text(std::string name, std::string input) {
    return call(std::move(name), std::move(input)).text;
  }
};

TEST_F(ToolsTest, read_file) {
  files_.put("/mnt/report/a.txt", "one\ntwo\nthree\nfour");
  EXPECT_EQ(text("read_file", R"({"path":"/mnt/report/a.txt"})"), "one\ntwo\nthree\nfour");
  EXPECT_EQ(text("read_file", R"({"path":"report/a.txt","first_line":2,"lines":2})"),
            "two\nthree\n[the file goes on: continue with first_line 4]");
  EXPECT_EQ(text("read_file", R"({"path":"/mnt/report/a.txt","first_line":4})"), "four");
  EXPECT_THAT(text("read_file", R"({"path":"/mnt/report/a.txt","first_line":9})"),
              HasSubstr("fewer than 9 lines"));
  EXPECT_THAT(text("read_file", R"({"path":"/mnt/report/absent"})"), HasSubstr("no such file"));
  EXPECT_THAT(text("read_file", R"({"path":"/etc/passwd"})"), HasSubstr("not in a granted folder"));
  EXPECT_THAT(text("read_file", R"({"path":"/mnt/report"})"), HasSubstr("is a folder"));
  files_.put("/mnt/report/empty", "");
  EXPECT_EQ(text("read_file", R"({"path":"/mnt/report/empty"})"), "[the file is empty]");
  files_.put("/mnt/report/bin", std::string("PK\0\1", 4));
  EXPECT_THAT(text("read_file", R"({"path":"/mnt/report/bin"})"), HasSubstr("binary file"));
  files_.put("/mnt/report/latin1.csv", "M\xfcller;5\n");
  EXPECT_THAT(text("read_file", R"({"path":"/mnt/report/latin1.csv"})"),
              AllOf(HasSubstr("M\xef\xbf\xbdller"), HasSubstr("not UTF-8: 1 byte ")));
}

TEST_F(ToolsTest, read_file_of_large_files_goes_on_in_steps_that_cover_everything) {
  std::string all;
  for (int i = 1; i <= 5000; ++i) all += "this is line number " + std::to_string(i) + "\n";
  files_.put("/mnt/report/big", all);
  std::string gathered;
  int steps = 0;
  for (int line = 1; line > 0 && steps < 50; ++steps) {
    std::string part =
        text("read_file", R"({"path":"/mnt/report/big","first_line":)" + std::to_string(line) + "}");
    auto note = part.find("[the file goes on: continue with first_line ");
    line = note == part.npos ? 0 : std::stoi(part.substr(note + 44));
    gathered += part.substr(0, note);
  }
  EXPECT_EQ(gathered, all);
  EXPECT_GT(steps, 2);
  files_.put("/mnt/report/long", std::string(100'000, 'x') + "\nshort\n");
  EXPECT_THAT(text("read_file", R"({"path":"/mnt/report/long"})"),
              AllOf(SizeIs(testing::Lt(30'000u)), HasSubstr("line 1 is cut here")));
  EXPECT_EQ(text("read_file", R"({"path":"/mnt/report/long","first_line":2})"), "short\n");
}

TEST_F(ToolsTest, write_file_and_edit_file) {
  EXPECT_EQ(text("write_file", R"({"path":"/mnt/report/new/a.md","content":"x\ny\nx\n"})"),
            "wrote 6 bytes to /mnt/report/new/a.md");
  EXPECT_EQ(files_.get("/mnt/report/new/a.md"), "x\ny\nx\n");
  EXPECT_THAT(text("write_file", R"({"path":"/mnt/source/a","content":"x"})"), HasSubstr("read only"));
  EXPECT_FALSE(files_.exists("/mnt/source/a"));

  auto edit = [&](std::string rest) {
    return text("edit_file", R"({"path":"/mnt/report/new/a.md",)" + rest + "}");
  };
  EXPECT_THAT(edit(R"("old_text":"z","new_text":"w")"), HasSubstr("does not stand"));
  EXPECT_THAT(edit(R"("old_text":"x","new_text":"w")"), HasSubstr("stands 2 times"));
  EXPECT_THAT(edit(R"("old_text":"x","new_text":"x")"), HasSubstr("nothing to do"));
  EXPECT_THAT(edit(R"("old_text":"","new_text":"x")"), HasSubstr("must not be empty"));
  EXPECT_EQ(files_.get("/mnt/report/new/a.md"), "x\ny\nx\n");
  EXPECT_EQ(edit(R"("old_text":"y\nx","new_text":"Y")"), "1 replacement in /mnt/report/new/a.md");
  EXPECT_EQ(files_.get("/mnt/report/new/a.md"), "x\nY\n");
  EXPECT_EQ(edit(R"("old_text":"\n","new_text":"--","replace_all":true)"),
            "2 replacements in /mnt/report/new/a.md");
  EXPECT_EQ(files_.get("/mnt/report/new/a.md"), "x--Y--");
  // Other bytes of the file stay as they are.
  files_.put("/mnt/report/l1", "M\xfcller;alt");
  EXPECT_EQ(text("edit_file", R"({"path":"/mnt/report/l1","old_text":"alt","new_text":"neu"})"),
            "1 replacement in /mnt/report/l1");
  EXPECT_EQ(files_.get("/mnt/report/l1"), "M\xfcller;neu");
}

TEST_F(ToolsTest, list) {
  files_.put("/mnt/report/a.csv", "12345");
  files_.put("/mnt/report/sub/b", "");
  files_.make_symlink("/mnt/report/link");
  EXPECT_EQ(text("list", R"({"path":"/mnt/report"})"), "a.csv (5 bytes)\nlink (symlink)\nsub/\n");
  EXPECT_EQ(text("list", "{}"), "report/\nsource/\n");
  EXPECT_EQ(text("list", R"({"path":"source"})"), "[the folder is empty]");
  EXPECT_THAT(text("list", R"({"path":"/mnt/absent"})"), HasSubstr("not in a granted folder"));
  for (int i = 0; i < 600; ++i) files_.put("/mnt/source/f" + std::to_string(i), "");
  EXPECT_THAT(text("list", R"({"path":"/mnt/source"})"), HasSubstr("only the first 500"));
}

class FakeWeb : public WebAccess {
 public:
  NetworkReach reach() const override { return {{"a.example:443"}, 0, false}; }
  Result<WebPage> fetch(const std::string& url, std::stop_token) override {
    if (url == "https://denied.example/")
      return fail(ErrorCode::permission_denied, "no rule names denied.example:443");
    WebPage page{.url = url,
                 .status = url.ends_with("/missing") ? 404u : 200u,
                 .type = "text/html",
                 .title = "T",
                 .text = ""};
    if (url.ends_with("/long"))
      for (int i = 0; i < 10'000; ++i) page.text += "line " + std::to_string(i) + "\n";
    else
      page.text = "the text";
    return page;
  }
};

TEST_F(ToolsTest, fetch_url) {
  EXPECT_EQ(text("fetch_url", R"({"url":"https://a.example/"})"), "this task has no way to the network");
  FakeWeb web;
  web_ = &web;
  EXPECT_EQ(text("fetch_url", R"({"url":"https://a.example/"})"),
            "https://a.example/ (HTTP 200, text/html)\nTitle: T\n\nthe text");
  EXPECT_THAT(text("fetch_url", R"({"url":"https://a.example/missing"})"), HasSubstr("HTTP 404"));
  EXPECT_EQ(text("fetch_url", R"({"url":"https://denied.example/"})"), "no rule names denied.example:443");
  std::string gathered, note = "[the text has 98890 bytes; go on with offset ";
  std::size_t offset = 0;
  for (int steps = 0; steps < 20; ++steps) {
    std::string part =
        text("fetch_url", R"({"url":"https://a.example/long","offset":)" + std::to_string(offset) + "}");
    part.erase(0, part.find("\n\n") + 2);
    auto more = part.find("\n" + note);
    gathered += part.substr(0, more);
    if (more == part.npos) break;
    offset = std::stoul(part.substr(more + 1 + note.size()));
  }
  EXPECT_EQ(gathered, web.fetch("https://a.example/long", {})->text);
  EXPECT_THAT(text("fetch_url", R"({"url":"https://a.example/","offset":9})"),
              HasSubstr("fewer than the offset"));
}

TEST_F(ToolsTest, glob) {
  files_.put("/mnt/report/a.csv", "");
  files_.put("/mnt/report/x/b.csv", "");
  files_.put("/mnt/report/x/c.txt", "");
  files_.put("/mnt/report/.git/objects/d.csv", "");
  EXPECT_EQ(text("glob", R"({"pattern":"*.csv"})"), "/mnt/report/a.csv\n/mnt/report/x/b.csv\n");
  EXPECT_EQ(text("glob", R"({"pattern":"x/*","path":"/mnt/report/"})"),
            "/mnt/report/x/b.csv\n/mnt/report/x/c.txt\n");
  EXPECT_EQ(text("glob", R"({"pattern":"*.zip"})"), "[no file matches]");
  EXPECT_THAT(text("glob", R"({"pattern":"[a"})"), HasSubstr("without ]"));
  files_.deny("/mnt/report/x");
  EXPECT_THAT(text("glob", R"({"pattern":"*.csv"})"),
              AllOf(HasSubstr("a.csv"), HasSubstr("1 folder could not be read")));
  for (int i = 0; i < 700; ++i) files_.put("/mnt/source/f" + std::to_string(i) + ".csv", "");
  EXPECT_THAT(text("glob", R"({"pattern":"*.csv"})"), HasSubstr("there is more"));
}

TEST_F(ToolsTest, grep) {
  files_.put("/mnt/report/a.txt", "alpha\nBeta 12\r\ngamma");
  files_.put("/mnt/report/sub/b.py", "beta = 1\n");
  files_.put("/mnt/report/bin", std::string("beta\0", 5));
  EXPECT_EQ(text("grep", R"({"pattern":"Beta \\d+$"})"), "/mnt/report/a.txt:2: Beta 12\n");
  EXPECT_EQ(text("grep", R"({"pattern":"beta","ignore_case":true,"path":"/mnt/report"})"),
            "/mnt/report/a.txt:2: Beta 12\n/mnt/report/sub/b.py:1: beta = 1\n");
  EXPECT_EQ(text("grep", R"({"pattern":"beta","ignore_case":true,"files":"*.py"})"),
            "/mnt/report/sub/b.py:1: beta = 1\n");
  EXPECT_EQ(text("grep", R"({"pattern":"gamma","path":"/mnt/report/a.txt"})"),
            "/mnt/report/a.txt:3: gamma\n");
  EXPECT_EQ(text("grep", R"({"pattern":"nothing"})"), "[no line matches]");
  EXPECT_THAT(text("grep", R"({"pattern":"(a"})"), HasSubstr("not valid"));
  EXPECT_THAT(text("grep", R"x({"pattern":"(?=a)"})x"), HasSubstr("not valid"));
  EXPECT_THAT(text("grep", R"x({"pattern":"((((a{100}){100}){100}){100})"})x"), HasSubstr("not valid"));
}

TEST_F(ToolsTest, grep_takes_lines_that_span_pieces_and_hostile_patterns_in_stride) {
  std::string across((1 << 20) - 5, 'x');
  files_.put("/mnt/report/big", across + "needle in the middle\n" + std::string(1 << 20, 'a') + "b\n");
  EXPECT_THAT(text("grep", R"({"pattern":"needle"})"), HasSubstr("/mnt/report/big:1: xxx"));
  EXPECT_EQ(text("grep", R"({"pattern":"(a*)*c","path":"/mnt/report/big"})"), "[no line matches]");
  files_.put("/mnt/report/many", [] {
    std::string lines;
    for (int i = 0; i < 5000; ++i) lines += "hit\n";
    return lines;
  }());
  EXPECT_THAT(text("grep", R"({"pattern":"hit"})"), HasSubstr("there is more"));
}

TEST_F(ToolsTest, shell_says_how_a_command_ended) {
  const std::pair<const char*, const char*> cases[] = {
      {"print a", "a\n[exit status 0]"},
      {"exit 7", "[exit status 7]"},
      {"print a;signal 11", "a\n[ended by signal 11]"},
      {"oom", "[killed: out of memory]"},
      {"lose", "[the workspace was lost while it ran: the machine ended]"},
      {"bytes ff00", "\xef\xbf\xbd\xef\xbf\xbd\n[exit status 0]"},
  };
  for (const auto& [command, told] : cases)
    EXPECT_EQ(text("shell", std::string(R"({"command":")") + command + "\"}"), told);
  EXPECT_EQ(text("shell", R"({"command":"late","timeout_seconds":90})"),
            "[killed: it ran longer than its time limit of 1m 30s]");
  EXPECT_THAT(text("shell", R"({"command":"print \u0000"})"), HasSubstr("NUL"));
}

TEST_F(ToolsTest, shell_passes_on_what_it_is_given) {
  text("shell", R"({"command":"print a","working_directory":"/mnt/report","timeout_seconds":5,"tty":true})");
  text("shell", R"({"command":"print b"})");
  text("shell", R"({"command":"print c","background":true})");
  auto started = workspace_.started();
  ASSERT_THAT(started, SizeIs(3));
  EXPECT_EQ(started[0].working_directory, "/mnt/report");
  EXPECT_EQ(started[0].time_limit, std::chrono::seconds(5));
  EXPECT_TRUE(started[0].tty);
  EXPECT_EQ(started[1].time_limit, std::chrono::seconds(300));
  EXPECT_EQ(started[2].time_limit, std::chrono::seconds(0));
}

TEST_F(ToolsTest, long_output_is_cut_for_the_model_and_kept_whole) {
  auto outcome = call("shell", R"({"command":"flood 3000000"})");
  EXPECT_LT(outcome.text.size(), 30'000u);
  EXPECT_THAT(outcome.text, AllOf(HasSubstr("line 0\n"),
                                  HasSubstr("bytes left out here; read more with read_output, call 1")));
  EXPECT_EQ(observer_.out.size(), 3'000'000u);
  std::string kept;
  while (kept.size() < 3'000'000u) {
    auto part = task_->read_output(1, kept.size(), 1 << 20);
    ASSERT_TRUE(part) << part.error().message;
    ASSERT_FALSE(part->empty());
    kept += *part;
  }
  EXPECT_EQ(kept, observer_.out);
  EXPECT_EQ((*task_->calls())[0].output_bytes, 3'000'000u);
}

TEST_F(ToolsTest, read_output) {
  FixedProvider provider({tool_turn({{"shell", R"({"command":"flood 100000"})"}}),
                          tool_turn({{"read_output", R"({"call":1,"offset":99990})"},
                                     {"read_output", R"({"call":1,"offset":100000})"},
                                     {"read_output", R"({"call":77})"}}),
                          text_turn("done")});
  run(provider);
  EXPECT_THAT(observer_.outcomes[1].text, HasSubstr("[next offset 100000]"));
  EXPECT_THAT(observer_.outcomes[2].text, HasSubstr("ends before it"));
  EXPECT_THAT(observer_.outcomes[3].text, HasSubstr("no finished tool call 77"));
}

TEST_F(ToolsTest, deliver_takes_only_files_in_grants) {
  files_.put("/mnt/report/out.md", "x");
  EXPECT_EQ(text("deliver", R"({"path":"/mnt/report/out.md"})"), "/mnt/report/out.md is marked as a result");
  EXPECT_THAT(text("deliver", R"({"path":"/mnt/report/absent"})"), HasSubstr("no such file"));
  EXPECT_THAT(text("deliver", R"({"path":"/mnt/report"})"), HasSubstr("not in a granted folder"));
  EXPECT_THAT(text("deliver", R"({"path":"/tmp/out.md"})"), HasSubstr("not in a granted folder"));
  EXPECT_THAT(text("deliver", R"({"path":"/mnt/reports/out.md"})"), HasSubstr("not in a granted folder"));
  EXPECT_THAT(text("deliver", R"({"path":"/mnt/report/../../etc/passwd"})"), HasSubstr("without \"..\""));
  EXPECT_THAT(observer_.outputs, SizeIs(1));
}

}  // namespace
}  // namespace anchorhold::agent
