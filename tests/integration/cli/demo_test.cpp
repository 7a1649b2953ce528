// The demonstration, as tools/run shows it.
#include "cli_fixture.h"

namespace anchorhold::cli {
namespace {

using DemoTest = CliTest;

TEST_F(DemoTest, JoinsTheExportsAndIsRefusedWhatItMustNotDo) {
  ANCHORHOLD_NEEDS_IMAGE();
  auto outcome = run_program({ANCHORHOLD_SOURCE_DIR "/tools/demo/run", program(), "--image", image_},
                             {{"ANCHORHOLD_DEMO_DIR", home() / "data"}});
  ASSERT_EQ(outcome.status, 0) << outcome.out << outcome.err;
  for (const char* text : {// What was made.
                           "412 sales", "12,798.40 euro", "# First quarter 2025", "office/report.md",
                           "office/sales-q1.csv", "office/revenue.png",
                           // What was refused.
                           "/mnt/reference/articles.csv: Read-only file system", "no connection to 192.0.2.1",
                           "The requested URL returned error: 403",
                           "private/note.txt: No such file or directory", "is not in a granted folder",
                           // What a person can do next.
                           "ANTHROPIC_API_KEY"})
    EXPECT_NE(outcome.out.find(text), std::string::npos) << text << "\n" << outcome.out;
  EXPECT_EQ(outcome.out.find("4711"), std::string::npos);
  auto scratch = std::filesystem::directory_iterator(home() / "data")->path();
  EXPECT_TRUE(read_text(scratch / "office/revenue.png").starts_with("\x89PNG"));
  EXPECT_TRUE(read_text(scratch / "office/sales-q1.csv")
                  .starts_with("date,channel,sku,group,quantity,amount\n2025-01-02,"));
  EXPECT_TRUE(nothing_left());
}

}  // namespace
}  // namespace anchorhold::cli
