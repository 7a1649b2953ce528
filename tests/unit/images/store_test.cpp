#include "images/store.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tiny_recipe.h"

namespace anchorhold::images {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Store, ListsWhatIsThereAndWhatIsWrongWithIt) {
  TinyRecipe tiny;
  auto store = tiny.store();
  EXPECT_TRUE(store.list()->empty());
  auto built = tiny.build();
  ASSERT_TRUE(built);
  auto images = store.list();
  ASSERT_TRUE(images);
  ASSERT_EQ(images->size(), 1u);
  const auto& info = images->front();
  EXPECT_EQ(info.name, "tiny");
  EXPECT_TRUE(info.usable) << info.problem;
  EXPECT_EQ(info.description, "a tiny image");
  EXPECT_EQ(info.kernel_version, "6.1-tiny");
  EXPECT_EQ(info.key_id.size(), 16u);
  EXPECT_EQ(info.size.bytes,
            built->manifest.kernel.size + built->manifest.rootfs.size + built->manifest.initrd.size);
  EXPECT_GT(info.built_unix_seconds, 0);

  fs::resize_file(store.root() / built->manifest.rootfs.file, 1);
  images = store.list();
  EXPECT_FALSE(images->front().usable);
  EXPECT_THAT(images->front().problem, HasSubstr("rootfs.img"));
  fs::remove(store.image_folder("tiny") / "manifest.sig");
  images = store.list();
  EXPECT_THAT(images->front().problem, HasSubstr("manifest.sig"));
}

TEST(Store, RemovesAnImageAndCollectsItsStages) {
  TinyRecipe tiny;
  auto store = tiny.store();
  auto built = tiny.build();
  ASSERT_TRUE(built);
  ASSERT_TRUE(store.remove("tiny"));
  EXPECT_TRUE(store.list()->empty());
  EXPECT_FALSE(tiny.verify());
  EXPECT_TRUE(fs::exists(store.root() / built->manifest.rootfs.file));
  auto garbage = store.collect_garbage();
  ASSERT_TRUE(garbage);
  EXPECT_EQ(garbage->removed.size(), 3u);
  EXPECT_THAT(garbage->removed, Contains(StartsWith("stages/rootfs-")));
  EXPECT_GE(garbage->freed.bytes, built->manifest.rootfs.size);
  EXPECT_TRUE(fs::is_empty(store.root() / "stages"));
  auto again = store.remove("tiny");
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::not_found);
  EXPECT_TRUE(tiny.build());
}

TEST(Store, GarbageIsWhatNoImageUses) {
  TinyRecipe tiny;
  auto store = tiny.store();
  auto old = tiny.build();
  ASSERT_TRUE(old);
  tiny.write("agent", "a newer agent");
  auto current = tiny.build();
  ASSERT_TRUE(current);
  fs::create_directories(store.root() / "building" / "rootfs-dead" / "scratch");
  auto garbage = store.collect_garbage();
  ASSERT_TRUE(garbage);
  auto old_folder = fs::path(old->manifest.initrd.file).parent_path().string();
  EXPECT_THAT(garbage->removed, ::testing::UnorderedElementsAre("building/rootfs-dead", old_folder));
  EXPECT_TRUE(tiny.verify());
  EXPECT_TRUE(store.collect_garbage()->removed.empty());
}

TEST(Store, AnImageWithABadSignatureKeepsItsStages) {
  TinyRecipe tiny;
  auto store = tiny.store();
  ASSERT_TRUE(tiny.build());
  fs::remove(store.image_folder("tiny") / "manifest.sig");
  EXPECT_TRUE(store.collect_garbage()->removed.empty());
}

TEST(Store, AnImageWithAManifestThatCannotBeReadKeepsItsStages) {
  TinyRecipe tiny;
  auto store = tiny.store();
  ASSERT_TRUE(tiny.build());
  auto manifest = store.image_folder("tiny") / "manifest.json";
  for (const std::string& text : {std::string("{\"format\": 1"), std::string("{\"format\": 4711}"),
                                  std::string(), std::string(max_manifest_bytes + 1, ' ')}) {
    std::ofstream(manifest, std::ios::trunc) << text;
    fs::create_directories(store.root() / "building" / "rootfs-dead");
    auto garbage = store.collect_garbage();
    ASSERT_TRUE(garbage);
    EXPECT_THAT(garbage->removed, ElementsAre("building/rootfs-dead")) << text.substr(0, 20);
    EXPECT_THAT(garbage->unreadable, ElementsAre("tiny"));
  }
  auto mended = tiny.build();
  ASSERT_TRUE(mended);
  EXPECT_TRUE(tiny.verify());
  EXPECT_TRUE(store.collect_garbage()->unreadable.empty());

  fs::resize_file(manifest, 1);
  ASSERT_TRUE(store.remove("tiny"));
  auto garbage = store.collect_garbage();
  ASSERT_TRUE(garbage);
  EXPECT_EQ(garbage->removed.size(), 3u);
  EXPECT_TRUE(garbage->unreadable.empty());
}

TEST(Store, NothingIsRemovedUnderABuild) {
  TinyRecipe tiny;
  ASSERT_TRUE(tiny.build());
  auto store = tiny.store();
  auto held = store.lock(FileLock::Wait::yes);
  ASSERT_TRUE(held);
  auto garbage = store.collect_garbage();
  ASSERT_FALSE(garbage);
  EXPECT_EQ(garbage.error().code, ErrorCode::unavailable);
  auto removed = store.remove("tiny");
  ASSERT_FALSE(removed);
  EXPECT_EQ(removed.error().code, ErrorCode::unavailable);
  EXPECT_TRUE(tiny.verify());
}

TEST(Store, UnknownNamesAreNotRemoved) {
  TinyRecipe tiny;
  ASSERT_TRUE(tiny.build());
  for (const char* name : {"", "..", "../stages", "nosuch"}) EXPECT_FALSE(tiny.store().remove(name)) << name;
  EXPECT_TRUE(tiny.verify());
}

}  // namespace
}  // namespace anchorhold::images
