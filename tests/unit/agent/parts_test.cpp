// Patterns, schemas, captured output, keys, scripts: tables of cases.
#include <cstdlib>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/keys.h"
#include "agent/provider.h"
#include "agent/tools.h"
#include "base/files.h"
#include "captured_output.h"
#include "context.h"
#include "glob.h"
#include "schema.h"
#include "scripted.h"

namespace anchorhold::agent {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(Glob, matches) {
  const struct {
    const char* pattern;
    const char* path;
    bool matches;
  } cases[] = {
      {"*.csv", "a.csv", true},
      {"*.csv", "deep/er/a.csv", true},
      {"*.csv", "a.csv.bak", false},
      {"data/*.csv", "data/a.csv", true},
      {"data/*.csv", "data/x/a.csv", false},
      {"data/**/*.csv", "data/a.csv", true},
      {"data/**/*.csv", "data/x/y/a.csv", true},
      {"**", "any/thing", true},
      {"a/**", "a/b/c", true},
      {"a/**", "b/a/c", false},
      {"?.txt", "a.txt", true},
      {"?.txt", "ab.txt", false},
      {"[a-c].txt", "b.txt", true},
      {"[!a-c].txt", "b.txt", false},
      {"[]x].txt", "].txt", true},
      {"{a,b}.txt", "b.txt", true},
      {"{a,b/{c,d}}.txt", "b/d.txt", true},
      {"{a,b}.txt", "c.txt", false},
      {"\\*.txt", "*.txt", true},
      {"\\*.txt", "a.txt", false},
      {"./x/*", "x/y", true},
      {"*", ".hidden", true},
      {"x**y", "xay", true},
      {"", "a", false},
      {"**/x/**/y", "a/x/b/c/y", true},
      {"**/x/**/y", "a/b/y", false},
  };
  for (const auto& c : cases) {
    auto glob = Glob::parse(c.pattern);
    if (!glob) {
      EXPECT_FALSE(c.matches) << c.pattern;
      continue;
    }
    EXPECT_EQ(glob->matches(c.path), c.matches) << c.pattern << " on " << c.path;
  }
}

TEST(Glob, hostile_patterns_are_refused_or_quick) {
  EXPECT_FALSE(Glob::parse("[abc"));
  EXPECT_FALSE(Glob::parse("{a,b"));
  EXPECT_FALSE(Glob::parse("{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}"));
  EXPECT_FALSE(Glob::parse(std::string(5000, 'a')));
  std::string stars, path;
  for (int i = 0; i < 200; ++i) stars += "*a", path += "a/";
  EXPECT_FALSE(Glob::parse(stars + "b")->matches(std::string(4000, 'a')));
  std::string folders;
  for (int i = 0; i < 100; ++i) folders += "**/a/";
  EXPECT_FALSE(Glob::parse(folders + "b")->matches(path + path + path + "c"));
}

TEST(Schema, faults_are_named) {
  auto schema =
      *parse_json(R"({"type":"object","additionalProperties":false,"required":["path"],"properties":{
    "path":{"type":"string","minLength":1,"maxLength":5},"n":{"type":"integer","minimum":1,"maximum":9},"b":{"type":"boolean"},
    "mode":{"type":"string","enum":["x","y"]},"list":{"type":"array","minItems":1,"maxItems":2,"items":{"type":"object","required":["t"],"properties":{"t":{"type":"string"}}}}}})");
  const std::pair<const char*, const char*> bad[] = {
      {"{}", "\"path\" is missing"},
      {R"({"path":null})", "\"path\" is missing"},
      {R"({"path":""})", "must not be empty"},
      {R"({"path":"toolong"})", "at most 5"},
      {R"({"path":5})", "must be of type string"},
      {R"({"path":"a","n":0})", "at least 1"},
      {R"({"path":"a","n":10})", "at most 9"},
      {R"({"path":"a","n":1.5})", "must be of type integer"},
      {R"({"path":"a","b":"true"})", "must be of type boolean"},
      {R"({"path":"a","mode":"z"})", "must be one of"},
      {R"({"path":"a","list":[]})", "at least 1"},
      {R"({"path":"a","list":[{},{},{}]})", "at most 2"},
      {R"({"path":"a","list":[{}]})", "\"list[0].t\" is missing"},
      {R"({"path":"a","list":[{"t":1}]})", "\"list[0].t\" must be of type string"},
      {R"({"path":"a","other":1})", "no argument \"other\""},
  };
  for (const auto& [value, message] : bad) {
    auto fault = mismatch(schema, *parse_json(value));
    ASSERT_TRUE(fault) << value;
    EXPECT_THAT(*fault, HasSubstr(message));
  }
  EXPECT_FALSE(mismatch(schema, *parse_json(R"({"path":"a","n":9,"mode":"y","b":null,"list":[{"t":"x"}]})")));
}

TEST(Tools, every_schema_is_an_object_s_and_every_name_is_taken_by_the_services) {
  std::vector<std::string> names;
  for (const auto& spec : tool_specs()) {
    names.push_back(spec.name);
    auto schema = parse_json(spec.input_schema);
    ASSERT_TRUE(schema) << spec.name << schema.error().message;
    EXPECT_EQ((*schema)["type"], "object") << spec.name;
    EXPECT_FALSE(bool_or(*schema, "additionalProperties", true)) << spec.name;
    EXPECT_FALSE(spec.description.empty());
  }
  EXPECT_THAT(names, testing::UnorderedElementsAre("shell", "shell_job", "read_output", "read_file",
                                                   "write_file", "edit_file", "list", "glob", "grep",
                                                   "fetch_url", "plan", "ask_user", "deliver"));
}

class Captured : public testing::Test {
 protected:
  TemporaryDirectory directory_ = *TemporaryDirectory::create();
  std::filesystem::path file_ = directory_.path() / "1";
};

TEST_F(Captured, what_fits_is_whole_and_makes_no_file) {
  CapturedOutput output(file_, 100, 1000);
  output.add("a\xff");
  output.add("b");
  EXPECT_EQ(output.text(1),
            "a\xef\xbf\xbd"
            "b");
  EXPECT_EQ(output.stored(), 0u);
  EXPECT_FALSE(std::filesystem::exists(file_));
}

TEST_F(Captured, what_does_not_fit_is_head_and_tail_and_a_file_whatever_the_pieces) {
  std::string all;
  for (int i = 0; all.size() < 5000; ++i) all += "line " + std::to_string(i) + "\n";
  for (std::size_t piece : {1u, 7u, 99u, 100u, 101u, 4096u, 10000u}) {
    CapturedOutput output(file_, 100, 10'000);
    for (std::size_t at = 0; at < all.size(); at += piece)
      output.add(std::string_view(all).substr(at, piece));
    EXPECT_EQ(*read_file(file_, 1 << 20), all);
    EXPECT_EQ(output.stored(), all.size());
    std::string text = output.text(7);
    EXPECT_TRUE(text.starts_with(all.substr(0, 50)));
    EXPECT_TRUE(text.ends_with(all.substr(all.size() - 50)));
    EXPECT_THAT(text, HasSubstr("read_output, call 7, from offset 50"));
    EXPECT_LT(text.size(), 300u);
  }
}

TEST_F(Captured, storing_has_its_limit_and_its_trouble_is_said) {
  CapturedOutput limited(file_, 10, 30);
  limited.add(std::string(100, 'x'));
  EXPECT_EQ(limited.stored(), 30u);
  EXPECT_EQ(std::filesystem::file_size(file_), 30u);
  EXPECT_THAT(limited.text(1), HasSubstr("only its first 30 bytes are kept"));
  CapturedOutput homeless(directory_.path() / "no" / "folder", 10, 1000);
  homeless.add(std::string(100, 'x'));
  EXPECT_EQ(homeless.stored(), 0u);
  EXPECT_THAT(homeless.text(1), AllOf(HasSubstr("could not be kept"), Not(HasSubstr("read_output"))));
}

TEST(Secrets, move_wipes_and_copies_are_asked_for) {
  std::string source = "sk-0123456789-a-long-secret-key-beyond-small-strings";
  Secret first(std::move(source));
  EXPECT_TRUE(source.empty());
  Secret second(std::move(first));
  EXPECT_TRUE(first.empty());
  EXPECT_EQ(second.copy().expose(), second.expose());
  static_assert(!std::is_copy_constructible_v<Secret> && !std::is_copy_assignable_v<Secret>);
}

class Keys : public testing::Test {
 protected:
  std::filesystem::path file(std::string_view bytes, mode_t mode = 0600) {
    auto path = directory_.path() / "key";
    EXPECT_TRUE(write_file_atomic(path, bytes, mode));
    chmod(path.c_str(), mode);
    return path;
  }
  TemporaryDirectory directory_ = *TemporaryDirectory::create();
};

TEST_F(Keys, a_key_file_is_one_trimmed_line) {
  auto good = read_key_file(file("  sk-abc\n"));
  ASSERT_TRUE(good) << good.error().message;
  EXPECT_EQ(good->expose(), "sk-abc");
  EXPECT_EQ(key_file_warning(file("sk-abc")), "");
  EXPECT_EQ(key_file_warning({}), "");
  for (const char* bad : {"", "\n \n", "two\nlines", "sp ace", "k\xc3\xa9y", "a\x01"}) {
    auto refused = read_key_file(file(bad));
    ASSERT_FALSE(refused) << bad;
    EXPECT_THAT(refused.error().message, Not(HasSubstr("two")));
  }
  EXPECT_THAT(key_file_warning(file("sk-abc", 0644)), HasSubstr("chmod 600"));
  EXPECT_FALSE(read_key_file(file(std::string(20 << 10, 'k'))));
  EXPECT_FALSE(read_key_file(directory_.path()));
  EXPECT_FALSE(read_key_file(directory_.path() / "absent"));
  EXPECT_FALSE(read_key_file("/dev/zero"));
}

TEST_F(Keys, the_environment_is_emptied_and_remembered) {
  setenv("ANTHROPIC_API_KEY", " sk-env \n", 1);
  EXPECT_EQ(environment_key("ANTHROPIC_API_KEY").expose(), "sk-env");
  char* in_environment = std::getenv("ANTHROPIC_API_KEY");
  withdraw_keys_from_environment();
  EXPECT_EQ(std::getenv("ANTHROPIC_API_KEY"), nullptr);
  EXPECT_STREQ(in_environment, "");
  EXPECT_EQ(environment_key("ANTHROPIC_API_KEY").expose(), "sk-env");
  EXPECT_TRUE(environment_key("SOME_OTHER_KEY").empty());
}

TEST_F(Keys, providers_want_a_key_where_one_is_needed) {
  unsetenv("OPENAI_API_KEY");
  auto refused = make_provider({"openai:gpt", "", "", 0});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::failed_precondition);
  EXPECT_THAT(refused.error().hint, HasSubstr("OPENAI_API_KEY"));
  EXPECT_TRUE(make_provider({"openai:llama", "http://localhost:11434/v1", "", 0}));
  EXPECT_TRUE(make_provider({"openai:llama", "http://10.1.2.3:8080/v1", "", 0}));
  auto open = make_provider({"openai:llama", "http://10.1.2.3:8080/v1", file("sk-abc"), 0});
  ASSERT_FALSE(open);
  EXPECT_THAT(open.error().message, HasSubstr("unencrypted"));
  EXPECT_TRUE(make_provider({"anthropic:claude", "", file("sk-abc"), 0}));
  for (const char* model : {"", "claude", "anthropic:", "other:x", ":x"})
    EXPECT_FALSE(make_provider({model, "", "", 0})) << model;
  EXPECT_EQ(make_provider({"scripted:/no/such/file", "", "", 0}).error().code, ErrorCode::not_found);
}

TEST(Script, faults_name_the_turn) {
  const std::pair<const char*, const char*> bad[] = {
      {"{", "the script s"},
      {"{}", "no array \"turns\""},
      {R"({"turns":[5]})", "turn 1: is not an object"},
      {R"({"turns":[{"content":[]}]})", "turn 1: \"content\""},
      {R"({"turns":[{"content":[{"type":"text","text":"a"}]},{"content":[{"text":"a"}]}]})",
       "turn 2: a block has no"},
      {R"({"turns":[{"content":[{"type":"tool_use","name":"x","input":5}]}]})", "turn 1: the \"input\""},
  };
  for (const auto& [text, message] : bad) {
    auto refused = ScriptedProvider::parse(text, "s");
    ASSERT_FALSE(refused) << text;
    EXPECT_THAT(refused.error().message, HasSubstr(message));
  }
}

TEST(Script, last_result_is_filled_in_everywhere_and_never_twice) {
  auto script = ScriptedProvider::parse(
      R"({"turns":[{"content":[{"type":"text","text":"[{{last_result}}] [{{last_result}}]"},
    {"type":"tool_use","name":"write_file","input":{"path":"p","deep":[{"x":"{{last_result}}"}]}}],"stop_reason":"max_tokens"}]})",
      "s");
  TurnRequest request;
  request.messages = {
      {Role::user,
       {ToolResultBlock{"1", "older", false}, ToolResultBlock{"2", "say {{last_result}}", false}}}};
  TurnObserver nobody;
  auto turn = (*script)->stream(request, nobody, {});
  ASSERT_TRUE(turn);
  EXPECT_EQ(text_of(turn->blocks), "[say {{last_result}}] [say {{last_result}}]");
  EXPECT_THAT(std::get<ToolUseBlock>(turn->blocks[1]).input, HasSubstr(R"({"x":"say {{last_result}}"})"));
  EXPECT_EQ(turn->stop_reason, StopReason::max_tokens);
  request.messages.push_back({Role::assistant, {}});
  EXPECT_EQ((*script)->stream(request, nobody, {})->stop_reason, StopReason::script_end);
}

TEST(Context, the_estimate_learns_from_what_the_server_counted) {
  TurnRequest request;
  request.system = std::string(10'000, 'x');
  TokenEstimate estimate;
  std::uint64_t before = estimate.of(request);
  estimate.correct(request, 8'000);
  EXPECT_GE(estimate.of(request), 8'000u);
  for (int i = 0; i < 50; ++i) estimate.correct(request, 2'000);
  EXPECT_LT(estimate.of(request), before);
  estimate.correct(request, 0);
  EXPECT_GT(estimate.of(request), 0u);
}

TEST(Context, fits_by_shortening_the_oldest_or_says_that_it_cannot) {
  TurnRequest request;
  request.messages.push_back({Role::user, {TextBlock{"go", {}}}});
  for (int i = 0; i < 10; ++i) {
    request.messages.push_back(
        {Role::assistant,
         {ToolUseBlock{"i", "write_file", R"({"content":")" + std::string(2000, 'c') + "\"}", false}}});
    request.messages.push_back({Role::user, {ToolResultBlock{"i", std::string(2000, 'r'), false}}});
  }
  TokenEstimate estimate;
  std::uint64_t whole = estimate.of(request);
  auto all = fit(request, 0, whole, estimate);
  ASSERT_TRUE(all);
  EXPECT_EQ(all->through, 0u);
  auto some = fit(request, 0, whole - 1, estimate);
  ASSERT_TRUE(some);
  EXPECT_GT(some->through, 0u);
  EXPECT_LT(some->through, 10u);
  EXPECT_LE(estimate.of(some->request), (whole - 1) / 2);
  EXPECT_EQ(std::get<ToolResultBlock>(some->request.messages.back().blocks[0]).text.size(), 2000u);
  EXPECT_FALSE(fit(request, 0, 100, estimate));
}

}  // namespace
}  // namespace anchorhold::agent
