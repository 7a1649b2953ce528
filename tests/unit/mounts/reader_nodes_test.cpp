// The table of nodes: identity, bounds, and finding things again. Here the limits are small.
#include <fcntl.h>
#include <sys/stat.h>
#include <thread>

#include "keeper_fixture.h"
#include "reader/coherence.h"
#include "reader/handle_table.h"
#include "reader/node_table.h"
#include "reader/owners.h"

namespace anchorhold::mounts {
namespace {

using testing::write_text;

class ReaderNodes : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = TemporaryDirectory::create("anchorhold-nodes-test");
    ASSERT_TRUE(made);
    directory_ = std::make_unique<TemporaryDirectory>(std::move(*made));
  }
  void make_table(NodeLimits limits) {
    auto root =
        std::make_shared<const UniqueFd>(open(directory_->path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    auto table = NodeTable::create(root, limits);
    ASSERT_TRUE(table);
    table_ = std::move(*table);
  }
  std::filesystem::path path(const std::string& name) const { return directory_->path() / name; }
  Outcome<NodeRef> enter(const NodeRef& parent, const std::string& name) {
    auto folder = table_->descriptor(parent);
    if (!folder) return refuse(folder.error());
    auto info = table_->stat_at((*folder)->get(), name);
    if (!info) return refuse(info.error());
    return table_->enter(*info, parent, name);
  }

  std::unique_ptr<TemporaryDirectory> directory_;
  std::unique_ptr<NodeTable> table_;
};

TEST_F(ReaderNodes, HardLinksAreOneNode) {
  write_text(path("a"), "x");
  std::filesystem::create_hard_link(path("a"), path("b"));
  make_table({});
  auto a = enter(table_->root(), "a"), b = enter(table_->root(), "b");
  EXPECT_EQ(*a, *b);
  EXPECT_EQ(table_->node_count(), 2u);
  table_->forget((*a)->id(), 1);
  EXPECT_TRUE(table_->find((*a)->id()));
  table_->forget((*a)->id(), 1);
  EXPECT_EQ(table_->find((*a)->id()).error(), ESTALE);
}

TEST_F(ReaderNodes, DescriptorsAreBoundedAndComeBack) {
  constexpr int files = 200;
  for (int i = 0; i < files; ++i) write_text(path(std::to_string(i)), "x");
  make_table({.nodes = 1000, .descriptors = 16});
  std::vector<NodeRef> nodes;
  for (int i = 0; i < files; ++i) nodes.push_back(*enter(table_->root(), std::to_string(i)));
  for (int round = 0; round < 3; ++round) {
    for (const auto& node : nodes) {
      auto descriptor = table_->descriptor(node);
      ASSERT_TRUE(descriptor);
      struct stat info;
      ASSERT_EQ(fstat((*descriptor)->get(), &info), 0);
      EXPECT_EQ(info.st_ino, node->identity().inode);
      EXPECT_LE(table_->descriptor_count(), 16u);
    }
  }
}

TEST_F(ReaderNodes, NodesAreBounded) {
  for (int i = 0; i < 10; ++i) write_text(path(std::to_string(i)), "x");
  make_table({.nodes = 5, .descriptors = 16});
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(enter(table_->root(), std::to_string(i)));
  EXPECT_EQ(enter(table_->root(), "5").error(), ENFILE);
  EXPECT_TRUE(enter(table_->root(), "3")) << "known already";
  table_->clear();
  EXPECT_TRUE(enter(table_->root(), "5"));
}

TEST_F(ReaderNodes, AChainIsFoundAgainWithoutAnyDescriptor) {
  std::filesystem::create_directories(path("a/b/c"));
  write_text(path("a/b/c/file"), "x");
  for (int i = 0; i < 8; ++i) write_text(path(std::to_string(i)), "x");
  make_table({.nodes = 100, .descriptors = 2});
  NodeRef at = table_->root();
  for (const char* name : {"a", "b", "c", "file"}) at = *enter(at, name);
  EXPECT_EQ(table_->path(at), "a/b/c/file");
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(table_->descriptor(*enter(table_->root(), std::to_string(i))));
  EXPECT_TRUE(table_->descriptor(at));
  EXPECT_TRUE(table_->attributes(at));
  // The parents may be forgotten before the child.
  auto folder = *table_->find(at->id() - 1);
  for (std::uint64_t id = 2; id < at->id(); ++id) table_->forget(id, 1);
  EXPECT_EQ(table_->find(folder->id()).error(), ESTALE);
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(table_->descriptor(*enter(table_->root(), std::to_string(i))));
  EXPECT_TRUE(table_->attributes(at));
  // Another folder of that name is not the one that was meant.
  std::filesystem::rename(path("a/b"), path("a/old"));
  std::filesystem::create_directories(path("a/b/c"));
  write_text(path("a/b/c/file"), "y");
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(table_->descriptor(*enter(table_->root(), std::to_string(i))));
  auto found = table_->descriptor(at);
  EXPECT_FALSE(found);
}

TEST_F(ReaderNodes, PinnedNodesOutliveTheirNames) {
  write_text(path("file"), "x");
  make_table({});
  auto node = *enter(table_->root(), "file");
  table_->losing_name(node, table_->root(), "file");
  std::filesystem::remove(path("file"));
  auto info = table_->attributes(node);
  ASSERT_TRUE(info);
  EXPECT_EQ(info->stx_nlink, 0u);
  write_text(path("file"), "another");
  EXPECT_NE(*enter(table_->root(), "file"), node);
  table_->forget(node->id(), 1);
  EXPECT_EQ(table_->descriptor_count(), 0u);
}

// The host moves two folders into each other's place, so that each was once above the other.
TEST_F(ReaderNodes, StaleParentsMakeNoCircle) {
  std::filesystem::create_directories(path("a/b"));
  make_table({.nodes = 100, .descriptors = 1});
  auto a = *enter(table_->root(), "a");
  auto b = *enter(a, "b");
  std::filesystem::rename(path("a/b"), path("b"));
  std::filesystem::rename(path("a"), path("b/a"));
  // The guest still uses the node of b, and finds a in it.
  ASSERT_EQ(*enter(table_->root(), "b"), b);
  EXPECT_EQ(*enter(b, "a"), a);
  std::filesystem::rename(path("b/a"), path("a"));
  std::filesystem::rename(path("b"), path("a/b"));
  EXPECT_EQ(*enter(table_->root(), "a"), a);
  EXPECT_EQ(*enter(a, "b"), b);
  EXPECT_EQ(table_->path(b), "a/b");
  EXPECT_TRUE(table_->descriptor(b));
}

TEST_F(ReaderNodes, AVeryDeepChainEndsWithoutRecursion) {
  make_table({.nodes = 1u << 20, .descriptors = 4});
  NodeRef at = table_->root();
  Statx info{};
  info.stx_mode = S_IFDIR | 0755;
  for (std::uint64_t i = 0; i < 20000; ++i) {
    info.stx_ino = 1'000'000 + i;
    at = *table_->enter(info, at, "x");
  }
  auto deepest = at->id();
  for (std::uint64_t id = 2; id < deepest; ++id) table_->forget(id, 1);
  at.reset();
  table_->forget(deepest, 1);
  EXPECT_EQ(table_->node_count(), 1u);
}

TEST_F(ReaderNodes, ManyThreadsAtOnce) {
  for (int i = 0; i < 50; ++i) write_text(path(std::to_string(i)), "x");
  make_table({.nodes = 1000, .descriptors = 8});
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 2000; ++i) {
        auto node = enter(table_->root(), std::to_string((i * 7 + t) % 50));
        if (!node || !table_->descriptor(*node) || !table_->attributes(*node)) ++failures;
        if (node) table_->forget((*node)->id(), 1);
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(table_->node_count(), 1u);
  EXPECT_EQ(table_->descriptor_count(), 0u);
}

TEST_F(ReaderNodes, PagesAreKeptOfASettledVersionOnly) {
  write_text(path("file"), "x");
  make_table({});
  auto node = *enter(table_->root(), "file");
  Coherence coherence(*table_);
  auto old = *table_->attributes(node);
  old.stx_mtime.tv_sec = old.stx_ctime.tv_sec = 1'000'000'000;
  EXPECT_FALSE(coherence.may_keep_pages(node, old)) << "the first time there are no pages";
  EXPECT_TRUE(coherence.may_keep_pages(node, old));
  auto changed = old;
  changed.stx_ctime.tv_nsec = 1;
  EXPECT_FALSE(coherence.may_keep_pages(node, changed)) << "a restored modification time hides nothing";
  EXPECT_TRUE(coherence.may_keep_pages(node, changed));
  auto fresh = *table_->attributes(node);
  EXPECT_FALSE(coherence.may_keep_pages(node, fresh));
  EXPECT_FALSE(coherence.may_keep_pages(node, fresh))
      << "the next change may fall into the same step of the clock";
}

TEST(ReaderHandles, AreBounded) {
  HandleTable handles(3);
  std::vector<std::uint64_t> ids;
  for (int i = 0; i < 3; ++i) ids.push_back(*handles.add(std::make_shared<FileHandle>()));
  EXPECT_EQ(handles.add(std::make_shared<FolderHandle>()).error(), ENFILE);
  EXPECT_TRUE(handles.remove(ids[0]));
  EXPECT_FALSE(handles.remove(ids[0]));
  auto folder = handles.add(std::make_shared<FolderHandle>());
  ASSERT_TRUE(folder);
  EXPECT_EQ(handles.file(*folder).error(), EBADF);
  EXPECT_EQ(handles.folder(ids[1]).error(), EBADF);
}

TEST(ReaderOwners, MapThePersonToTheGuestsUser) {
  Owners person(1234, {1234, 50});
  EXPECT_EQ(person.guest_uid(1234), 1000u);
  EXPECT_EQ(person.guest_uid(0), Owners::nobody);
  EXPECT_EQ(person.guest_gid(50), 1000u);
  EXPECT_EQ(person.guest_gid(0), Owners::nobody);
  Owners root(0, {0});
  EXPECT_EQ(root.guest_uid(1234), 1000u);
  EXPECT_EQ(root.guest_gid(99), 1000u);
}

}  // namespace
}  // namespace anchorhold::mounts
