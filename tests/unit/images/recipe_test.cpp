#include "images/recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace anchorhold::images {
namespace {

const std::filesystem::path shipped = std::filesystem::path(ANCHORHOLD_SOURCE_DIR) / "images" / "recipes";

TEST(Recipe, ShippedRecipesAreWhole) {
  auto names = list_recipes(shipped);
  ASSERT_TRUE(names) << names.error().message;
  EXPECT_THAT(*names, ::testing::ElementsAre("base", "full"));
  for (const auto& name : *names) {
    auto recipe = load_recipe(shipped, name);
    ASSERT_TRUE(recipe) << recipe.error().message;
    EXPECT_FALSE(recipe->description.empty());
    for (const auto* stage : {&recipe->kernel, &recipe->rootfs}) {
      EXPECT_TRUE(std::filesystem::is_regular_file(stage->script)) << stage->script;
      EXPECT_FALSE(stage->inputs.empty());
      for (const auto& input : stage->inputs) EXPECT_TRUE(std::filesystem::exists(input)) << input;
    }
    EXPECT_GT(recipe->rootfs.limit.bytes, 0u);
  }
  // One kernel: a stage is shared when its recipe is the same.
  EXPECT_EQ(load_recipe(shipped, "base")->kernel.tools, load_recipe(shipped, "full")->kernel.tools);
  EXPECT_EQ(load_recipe(shipped, "base")->kernel.script, load_recipe(shipped, "full")->kernel.script);
}

TEST(Recipe, AnUnknownOneNamesThoseThereAre) {
  for (const char* name : {"nosuch", "../base", "", "Base"}) {
    auto recipe = load_recipe(shipped, name);
    ASSERT_FALSE(recipe) << name;
    EXPECT_EQ(recipe.error().code, ErrorCode::not_found);
    EXPECT_EQ(recipe.error().hint, "recipes: base, full");
  }
}

TEST(Recipe, AMalformedOneIsAnError) {
  for (
      const char* text :
      {"", "{}", "[]", R"({"format":2})", R"({"format":1,"description":"x","kernel":{},"rootfs":{}})",
       R"({"format":1,"description":"x","kernel":{"script":"k","inputs":[3]},"rootfs":{"script":"r","inputs":[]}})",
       R"({"format":1,"description":"x","kernel":{"script":"k","inputs":[],"versions":[[]]},"rootfs":{"script":"r","inputs":[]}})"})
    EXPECT_FALSE(parse_recipe(text, "x", "/recipes/x")) << text;
}

TEST(Recipe, PathsAreRelativeToItsFolder) {
  auto recipe = parse_recipe(
      R"({"format":1,"description":"x","kernel":{"script":"../../kernel/build","inputs":["../../kernel"]},
          "rootfs":{"script":"make","inputs":["."],"limit_mib":2}})",
      "x", "/images/recipes/x");
  ASSERT_TRUE(recipe) << recipe.error().message;
  EXPECT_EQ(recipe->kernel.script, "/images/kernel/build");
  EXPECT_EQ(recipe->rootfs.script, "/images/recipes/x/make");
  EXPECT_EQ(recipe->rootfs.limit, ByteSize::mib(2));
}

}  // namespace
}  // namespace anchorhold::images
