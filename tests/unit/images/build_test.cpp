#include "images/build.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tiny_recipe.h"

namespace anchorhold::images {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Build, MakesAnImageThatVerifies) {
  TinyRecipe tiny;
  auto built = tiny.build();
  ASSERT_TRUE(built) << built.error().message;
  EXPECT_TRUE(built->changed);
  auto image = tiny.verify();
  ASSERT_TRUE(image) << image.error().message;
  EXPECT_EQ(image->manifest(), built->manifest);
  EXPECT_EQ(image->manifest().kernel_version, "6.1-tiny");
  EXPECT_EQ(image->manifest().verity.data_blocks, 5u);
  EXPECT_EQ(image->manifest().description, "a tiny image");
  EXPECT_THAT(tiny.runs(), ElementsAre("kernel", "rootfs"));
}

TEST(Build, DoesNothingWhenNothingChanged) {
  TinyRecipe tiny;
  auto first = tiny.build();
  ASSERT_TRUE(first);
  auto second = tiny.build();
  ASSERT_TRUE(second);
  EXPECT_FALSE(second->changed);
  EXPECT_EQ(second->manifest, first->manifest);
  EXPECT_THAT(tiny.runs(), ElementsAre("kernel", "rootfs"));
}

TEST(Build, RepeatsOnlyTheStageWhoseInputsChanged) {
  TinyRecipe tiny;
  auto first = tiny.build();
  ASSERT_TRUE(first);
  tiny.write("agent", "another agent");
  auto second = tiny.build();
  ASSERT_TRUE(second);
  EXPECT_TRUE(second->changed);
  EXPECT_NE(second->manifest.initrd, first->manifest.initrd);
  EXPECT_EQ(second->manifest.rootfs, first->manifest.rootfs);
  EXPECT_THAT(tiny.runs(), ElementsAre("kernel", "rootfs"));

  tiny.set_script("rootfs", "head -c 9000 /dev/zero > \"$1\"");
  auto third = tiny.build();
  ASSERT_TRUE(third);
  EXPECT_NE(third->manifest.rootfs, second->manifest.rootfs);
  EXPECT_EQ(third->manifest.kernel, second->manifest.kernel);
  EXPECT_THAT(tiny.runs(), ElementsAre("kernel", "rootfs", "rootfs"));

  // Back to inputs that were built before: nothing runs.
  tiny.write("agent", "the agent");
  auto fourth = tiny.build();
  ASSERT_TRUE(fourth);
  EXPECT_EQ(fourth->manifest.initrd, first->manifest.initrd);
  EXPECT_THAT(tiny.runs(), ElementsAre("kernel", "rootfs", "rootfs"));
}

TEST(Build, EverythingThatDecidesIsAnInput) {
  TinyRecipe tiny;
  tiny.write("recipes/tiny/list", "a");
  tiny.set_recipe("", R"("inputs": ["list"])");
  ASSERT_TRUE(tiny.build());
  auto options = tiny.options();
  options.mirrors = "deb file:///mirror bookworm main";
  ASSERT_TRUE(build(tiny.store(), "tiny", options));
  tiny.write("recipes/tiny/list", "b");
  ASSERT_TRUE(tiny.build());
  EXPECT_TRUE(std::filesystem::create_directories(tiny.path("sources")));
  tiny.write("sources/src-1.tar.xz", "source");
  tiny.set_recipe(R"("source": "src-1")", R"("inputs": ["list"])");
  ASSERT_TRUE(tiny.build());
  tiny.write("sources/src-1.tar.xz", "source, patched");
  ASSERT_TRUE(tiny.build());
  tiny.set_recipe(R"("source": "src-1", "versions": [["echo", "compiler 2"]])", R"("inputs": ["list"])");
  ASSERT_TRUE(tiny.build());
  EXPECT_THAT(tiny.runs(), ElementsAre("kernel", "rootfs", "rootfs", "rootfs", "kernel", "kernel", "kernel"));
}

TEST(Build, RefreshTakesTheRootFileSystemAnew) {
  TinyRecipe tiny;
  tiny.set_script("rootfs", "cat '" + tiny.path("mirror").string() + "' > \"$1\"");
  tiny.write("mirror", "old packages");
  auto first = tiny.build();
  ASSERT_TRUE(first) << first.error().message;
  tiny.write("mirror", "new packages");
  auto same = tiny.build();
  ASSERT_TRUE(same);
  EXPECT_EQ(same->manifest, first->manifest);
  auto options = tiny.options();
  options.refresh = true;
  auto fresh = build(tiny.store(), "tiny", options);
  ASSERT_TRUE(fresh) << fresh.error().message;
  EXPECT_NE(fresh->manifest.rootfs.digest, first->manifest.rootfs.digest);
  EXPECT_EQ(fresh->manifest.kernel, first->manifest.kernel);
  // The next plain build keeps the refreshed one.
  auto kept = tiny.build();
  ASSERT_TRUE(kept);
  EXPECT_FALSE(kept->changed);
  EXPECT_EQ(kept->manifest, fresh->manifest);
}

TEST(Build, TheSameInputsGiveTheSameDigests) {
  TinyRecipe one, two;
  one.set_script("rootfs", "seq 1 5000 > \"$1\"");
  two.set_script("rootfs", "seq 1 5000 > \"$1\"");
  auto first = one.build();
  auto second = two.build();
  ASSERT_TRUE(first);
  ASSERT_TRUE(second);
  EXPECT_EQ(first->manifest.rootfs.digest, second->manifest.rootfs.digest);
  EXPECT_EQ(first->manifest.verity, second->manifest.verity);
  EXPECT_EQ(first->manifest.initrd.digest, second->manifest.initrd.digest);
}

TEST(Build, ReportsProgressAndOutput) {
  TinyRecipe tiny;
  tiny.set_script("kernel", "echo compiling; echo a warning >&2; printf k > \"$1\"");
  std::vector<std::string> seen;
  auto options = tiny.options();
  options.progress = [&](const BuildProgress& progress) {
    std::string kind = progress.kind == BuildProgress::Kind::output     ? "output"
                       : progress.kind == BuildProgress::Kind::advanced ? std::to_string(progress.percent)
                       : progress.kind == BuildProgress::Kind::started  ? "started"
                       : progress.kind == BuildProgress::Kind::finished ? "finished"
                       : progress.kind == BuildProgress::Kind::cached   ? "cached"
                                                                        : "waiting";
    seen.push_back(std::string(to_string(progress.stage)) + " " + kind + " " + std::string(progress.text));
  };
  ASSERT_TRUE(build(tiny.store(), "tiny", options));
  EXPECT_THAT(seen, ElementsAre("kernel started ", "kernel output compiling", "kernel output a warning",
                                "kernel finished ", "rootfs started ", "rootfs 50 half way",
                                "rootfs finished ", "initrd started ", "initrd finished "));
  seen.clear();
  ASSERT_TRUE(build(tiny.store(), "tiny", options));
  EXPECT_THAT(seen, ElementsAre("kernel cached ", "rootfs cached ", "initrd cached "));
}

TEST(Build, AFailingScriptSaysWhyAndHarmsNothing) {
  TinyRecipe tiny;
  auto first = tiny.build();
  ASSERT_TRUE(first);
  tiny.set_script("rootfs",
                  "echo fetching; echo 'no such mirror' >&2; head -c 100 /dev/zero > \"$1\"; exit 7");
  auto failed = tiny.build();
  ASSERT_FALSE(failed);
  EXPECT_THAT(failed.error().message, HasSubstr("building the rootfs"));
  EXPECT_THAT(failed.error().message, HasSubstr("no such mirror"));
  EXPECT_THAT(failed.error().message, HasSubstr("exit status 7"));
  EXPECT_THAT(failed.error().hint, HasSubstr("logs/tiny-rootfs.log"));
  auto image = tiny.verify();
  ASSERT_TRUE(image);
  EXPECT_EQ(image->manifest(), first->manifest);
  EXPECT_TRUE(std::filesystem::is_empty(tiny.path("store/building")));
}

TEST(Build, AScriptThatWritesNothingFails) {
  TinyRecipe tiny;
  tiny.set_script("kernel", "true");
  EXPECT_FALSE(tiny.build());
  tiny.set_script("kernel", ": > \"$1\"");
  EXPECT_FALSE(tiny.build());
  tiny.set_script("kernel", "mkdir \"$1\"");
  EXPECT_FALSE(tiny.build());
}

TEST(Build, TheSizeIsBounded) {
  TinyRecipe tiny;
  tiny.set_recipe("", R"("limit_mib": 1)");
  tiny.set_script("rootfs", "head -c 1048577 /dev/zero > \"$1\"");
  auto built = tiny.build();
  ASSERT_FALSE(built);
  EXPECT_EQ(built.error().code, ErrorCode::resource_exhausted);
  tiny.set_script("rootfs", "head -c 1048576 /dev/zero > \"$1\"");
  EXPECT_TRUE(tiny.build());
}

TEST(Build, MissingThingsAreNamedWithTheirPackages) {
  TinyRecipe tiny;
  tiny.set_recipe(R"("tools": {"no-such-flex": "flex", "no-such-bison": "bison", "bash": "bash"})", "");
  auto built = tiny.build();
  ASSERT_FALSE(built);
  EXPECT_THAT(built.error().message, HasSubstr("no-such-bison, no-such-flex"));
  EXPECT_THAT(built.error().hint, HasSubstr("apt-get install bison flex"));

  tiny.set_recipe(R"("source": "linux-source-0.1")", "");
  built = tiny.build();
  ASSERT_FALSE(built);
  EXPECT_THAT(built.error().message, HasSubstr("linux-source-0.1.tar.xz"));
  EXPECT_THAT(built.error().hint, HasSubstr("apt-get install linux-source-0.1"));

  tiny.set_recipe("", "");
  std::filesystem::remove(tiny.path("agent"));
  built = tiny.build();
  ASSERT_FALSE(built);
  EXPECT_THAT(built.error().message, HasSubstr("agent"));
  EXPECT_TRUE(tiny.runs().empty());
}

TEST(Build, TooLittleSpaceIsSaidBeforeItRuns) {
  TinyRecipe tiny;
  tiny.set_recipe(R"("space_mib": 4000000000)", "");
  auto built = tiny.build();
  ASSERT_FALSE(built);
  EXPECT_EQ(built.error().code, ErrorCode::resource_exhausted);
  EXPECT_THAT(built.error().message, HasSubstr("free space"));
  EXPECT_TRUE(tiny.runs().empty());
}

TEST(Build, AKeyThatTheStoreDoesNotTrustIsFoundAtOnce) {
  TinyRecipe tiny;
  auto options = tiny.options();
  options.key_folder = tiny.path("other-keys");
  auto built = build(tiny.store(), "tiny", options);
  ASSERT_FALSE(built);
  EXPECT_THAT(built.error().message, HasSubstr("not trusted"));
}

}  // namespace
}  // namespace anchorhold::images
