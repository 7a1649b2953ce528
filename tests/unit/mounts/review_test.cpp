// The pure parts of a review: what is risky, how texts differ, what the sealed process may say.
#include <gtest/gtest.h>
#include <random>

#include "review_wire.h"
#include "risk.h"
#include "text_diff.h"

namespace anchorhold::mounts {
namespace {

TEST(Risk, ByName) {
  for (const char* path : {".git/hooks/pre-commit",
                           "sub/.git/hooks/post-checkout",
                           ".GIT/Hooks/update",
                           "bare.git/hooks/update",
                           ".git/modules/a/hooks/update",
                           ".git/config",
                           ".git/worktrees/w/config.worktree",
                           ".git/info/attributes",
                           ".gitattributes",
                           ".gitmodules",
                           ".envrc",
                           "x/.vscode/tasks.json",
                           ".github/workflows/ci.yml",
                           ".gitlab-ci.yml",
                           "Makefile",
                           "sub/CMakeLists.txt",
                           "package.json",
                           "setup.py",
                           "conftest.py",
                           "a.desktop",
                           "Budget.XLSM",
                           "letter.docm",
                           "lib/python3/site-packages/x.pth",
                           ".bashrc",
                           "run.bat",
                           ".husky/pre-commit",
                           ".ci/run",
                           ".pre-commit-config.yaml",
                           ".idea/workspace.xml"})
    EXPECT_TRUE(risk_of_running({path, false, {}, {}})) << path;
  for (const char* path :
       {"report.txt", ".git/hooks/pre-commit.sample", ".git/objects/ab/cdef", ".git/index", "data.csv",
        "hooks/readme", "git/config", "config", "makefiles/notes.txt", "letter.docx", ""})
    EXPECT_FALSE(risk_of_running({path, false, {}, {}})) << path;
}

TEST(Risk, ByContent) {
  EXPECT_TRUE(risk_of_running({"script", true, "#!/bin/sh", {}}));
  EXPECT_TRUE(risk_of_running({"sub/.git", false, "gitdir: /elsewhere", {}}));
  EXPECT_FALSE(risk_of_running({"sub/.git", false, "", {}}));
  EXPECT_TRUE(risk_of_running({"letter.docx", false, "PK\x03\x04", "word/vbaProject.bin"}));
  EXPECT_NE(risk_of_running({".git/config", false, "[core]\n\tFSmonitor = evil", {}})->find("fsmonitor"),
            std::string::npos);
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    auto end = std::min(text.find('\n'), text.size() - 1) + 1;
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return lines;
}

// As patch(1) would.
std::string patched(std::string_view before_text, std::string_view diff) {
  auto before = lines_of(before_text);
  std::string out;
  std::size_t at = 0;
  auto lines = lines_of(diff);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    std::string line = lines[i];
    if (line.starts_with("@@ -")) {
      std::size_t start = std::stoul(line.substr(4)), count = std::stoul(line.substr(line.find(',') + 1));
      std::size_t begin = count > 0 ? start - 1 : start;
      while (at < begin) out += before.at(at++);
      continue;
    }
    if (line.starts_with("\\")) continue;
    if (i + 1 < lines.size() && lines[i + 1].starts_with("\\")) line.pop_back();
    if (line[0] != '+') {
      EXPECT_EQ(before.at(at), line.substr(1));
      ++at;
    }
    if (line[0] != '-') out += line.substr(1);
  }
  while (at < before.size()) out += before[at++];
  return out;
}

TEST(TextDiff, IsShortAndRight) {
  EXPECT_EQ(unified_diff("a\n", "a\n"), "");
  EXPECT_EQ(unified_diff("", "a\n"), "@@ -0,0 +1,1 @@\n+a\n");
  EXPECT_EQ(unified_diff("a\n", ""), "@@ -1,1 +0,0 @@\n-a\n");
  EXPECT_EQ(unified_diff("a", "a\n"), "@@ -1,1 +1,1 @@\n-a\n\\ No newline at end of file\n+a\n");
  std::string many, other;
  for (int i = 0; i < 100; ++i) many += std::to_string(i) + "\n";
  other = many;
  other.replace(other.find("\n50\n") + 1, 2, "x");
  EXPECT_EQ(unified_diff(many, other), "@@ -48,7 +48,7 @@\n 47\n 48\n 49\n-50\n+x\n 51\n 52\n 53\n");
}

TEST(TextDiff, AppliesToAnyTexts) {
  auto seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 300; ++round) {
    std::string before, now;
    for (unsigned i = random() % 60; i > 0; --i) {
      std::string line(1, static_cast<char>('a' + random() % 4));
      line += '\n';
      if (random() % 4 != 0) before += line;
      if (random() % 4 != 0) now += line;
    }
    if (random() % 4 == 0 && !now.empty()) now.pop_back();
    EXPECT_EQ(patched(before, unified_diff(before, now)), now) << before << "---\n" << now;
  }
}

TEST(TextDiff, StaysWithinItsBounds) {
  std::string before, now;
  for (int i = 0; i < 40'000; ++i) {
    before += "b" + std::to_string(i) + "\n";
    now += "n" + std::to_string(i) + "\n";
  }
  auto diff = unified_diff(before, now);
  EXPECT_LT(diff.size(), max_diff_bytes + 1000);
  EXPECT_NE(diff.find("left out"), std::string::npos);
}

TEST(TextDiff, BinaryIsNoText) {
  EXPECT_TRUE(looks_like_text("Zeile\n\tmit Umlauten: \xc3\xbc\n"));
  EXPECT_TRUE(looks_like_text(""));
  EXPECT_FALSE(looks_like_text(std::string_view("a\0b", 3)));
  EXPECT_FALSE(looks_like_text("\x01\x02\x03\x04"));
}

TEST(ReviewWire, GivesBackWhatWasSaid) {
  Change change;
  change.kind = Change::Kind::renamed;
  change.object = Change::Object::symlink;
  change.risk = Change::Risk::leads_outside;
  change.path = "a\xff\n";
  change.old_path = "ü";
  change.size = 1ull << 60;
  change.mode = 07755;
  change.xattrs_changed = true;
  change.diff = "@@\n-\x80\n";
  Review review;
  auto line = encode(change);
  ASSERT_TRUE(line.ends_with('\n'));
  auto last = decode_line(std::string_view(line).substr(0, line.size() - 1), review);
  ASSERT_TRUE(last) << last.error().message;
  EXPECT_FALSE(*last);
  ASSERT_EQ(review.changes.size(), 1u);
  const Change& back = review.changes[0];
  EXPECT_EQ(back.path, change.path);
  EXPECT_EQ(back.old_path, change.old_path);
  EXPECT_EQ(back.diff, change.diff);
  EXPECT_EQ(back.kind, change.kind);
  EXPECT_EQ(back.object, change.object);
  EXPECT_EQ(back.risk, change.risk);
  EXPECT_EQ(back.size, change.size);
  EXPECT_EQ(back.mode, change.mode);
  EXPECT_TRUE(back.xattrs_changed);
}

TEST(ReviewWire, BelievesNothing) {
  for (const char* line : {"", "x", "[]", "null", "{", "\"type\"", "{\"type\":\"error\",\"code\":7}"}) {
    Review review;
    EXPECT_FALSE(decode_line(line, review)) << line;
  }
  for (const char* line :
       {"{}", "{\"type\":5}", "{\"type\":\"change\",\"kind\":[],\"path\":{},\"size\":-1,\"mode\":\"x\"}",
        "{\"type\":\"change\",\"path_hex\":\"zz\"}",
        "{\"type\":\"undo\",\"paths\":[1,{\"path\":2}],\"begun\":99999999999999999}"}) {
    Review review;
    EXPECT_TRUE(decode_line(line, review)) << line;
  }
}

}  // namespace
}  // namespace anchorhold::mounts
