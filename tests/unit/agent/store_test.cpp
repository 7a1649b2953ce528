#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "agent/task_store.h"
#include "base/files.h"
#include "database/database.h"

namespace anchorhold::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class StoreTest : public testing::Test {
 protected:
  TaskSpec spec() {
    TaskSpec made;
    made.prompt = "Make it \"so\"\n";
    made.provider = {"anthropic:claude", "http://localhost:1/v1", "/keys/k", 1000};
    made.grants.folders = {{"/home/a", "/mnt/a", FolderMode::read_write},
                           {"/home/b", "/mnt/b", FolderMode::read_write_no_delete}};
    made.grants.folder_limits = {0u, ByteSize::mib(5), 7, true};
    made.grants.cpus = 2;
    made.grants.memory = ByteSize::gib(1);
    made.grants.image = "base";
    made.limits = {7, std::chrono::minutes(3), 99, 2};
    return made;
  }
  TemporaryDirectory directory_ = *TemporaryDirectory::create();
  FakeClock clock_;
  TaskStore store_ = *TaskStore::open(directory_.path() / "tasks");
};

TEST_F(StoreTest, what_a_task_was_made_of_comes_back) {
  TaskId id = store_.create(spec(), clock_)->id();
  auto task = store_.open_task(id, clock_);
  ASSERT_TRUE(task) << task.error().message;
  const TaskSpec& back = task->spec();
  EXPECT_EQ(back.prompt, spec().prompt);
  EXPECT_EQ(back.provider.model, "anthropic:claude");
  EXPECT_EQ(back.provider.base_url, "http://localhost:1/v1");
  EXPECT_EQ(back.provider.key_file, "/keys/k");
  EXPECT_EQ(back.provider.context_tokens, 1000u);
  ASSERT_THAT(back.grants.folders, SizeIs(2));
  EXPECT_EQ(back.grants.folders[1].mode, FolderMode::read_write_no_delete);
  EXPECT_EQ(back.grants.folders[0].host_path, "/home/a");
  EXPECT_EQ(back.grants.folder_limits.bulk_changes, 0u);
  EXPECT_EQ(back.grants.folder_limits.bytes_written, ByteSize::mib(5));
  EXPECT_EQ(back.grants.folder_limits.files, 7u);
  EXPECT_TRUE(back.grants.folder_limits.refuse_escaping_symlinks);
  EXPECT_EQ(back.grants.memory, ByteSize::gib(1));
  EXPECT_EQ(back.limits.turns, 7u);
  EXPECT_EQ(back.limits.wall_time, std::chrono::minutes(3));
  EXPECT_EQ(back.limits.tokens, 99u);
  EXPECT_THAT(*task->messages(), SizeIs(1));
  EXPECT_EQ(task->summary()->state, TaskState::ready);
}

TEST_F(StoreTest, relative_scripts_and_keys_become_absolute) {
  TaskSpec relative = spec();
  relative.provider.model = "scripted:demo.json";
  relative.provider.key_file = "key";
  auto task = store_.create(relative, clock_);
  EXPECT_EQ(task->spec().provider.model,
            "scripted:" + (std::filesystem::current_path() / "demo.json").string());
  EXPECT_TRUE(task->spec().provider.key_file.is_absolute());
}

TEST_F(StoreTest, lists_newest_first_and_removes) {
  EXPECT_THAT(*store_.list(), IsEmpty());
  TaskId first = store_.create(spec(), clock_)->id();
  clock_.advance(std::chrono::seconds(1));
  TaskId second = store_.create(spec(), clock_)->id();
  auto tasks = store_.list();
  ASSERT_THAT(*tasks, SizeIs(2));
  EXPECT_EQ((*tasks)[0].id, second);
  EXPECT_EQ((*tasks)[1].id, first);
  EXPECT_TRUE(store_.remove(first));
  EXPECT_THAT(*store_.list(), SizeIs(1));
  EXPECT_EQ(store_.remove(first).error().code, ErrorCode::not_found);
  EXPECT_EQ(store_.open_task(first, clock_).error().code, ErrorCode::not_found);
}

TEST_F(StoreTest, ids_are_never_paths) {
  for (const char* id : {"", "..", ".", "a/b", "../tasks", "A", "x y"}) {
    EXPECT_EQ(store_.open_task(TaskId(id), clock_).error().code, ErrorCode::not_found) << id;
    EXPECT_EQ(store_.remove(TaskId(id)).error().code, ErrorCode::not_found) << id;
    EXPECT_EQ(store_.summary(TaskId(id)).error().code, ErrorCode::not_found) << id;
  }
}

TEST_F(StoreTest, a_damaged_task_harms_no_other) {
  TaskId good = store_.create(spec(), clock_)->id();
  TaskId bad = store_.create(spec(), clock_)->id();
  TaskId newer = store_.create(spec(), clock_)->id();
  auto folder = directory_.path() / "tasks";
  ASSERT_TRUE(write_file_atomic(folder / bad.value() / "task.db", std::string(4096, 'x')));
  auto database =
      database::Database::open(folder / newer.value() / "task.db", database::Database::Mode::read_write);
  ASSERT_TRUE(database->run("PRAGMA user_version = 99"));
  std::vector<std::string> damaged;
  auto tasks = store_.list(&damaged);
  ASSERT_TRUE(tasks);
  ASSERT_THAT(*tasks, SizeIs(1));
  EXPECT_EQ((*tasks)[0].id, good);
  EXPECT_THAT(damaged, SizeIs(2));
  EXPECT_EQ(store_.open_task(bad, clock_).error().code, ErrorCode::data_loss);
  auto refused = store_.open_task(newer, clock_);
  EXPECT_EQ(refused.error().code, ErrorCode::data_loss);
  EXPECT_THAT(refused.error().message, HasSubstr("newer Anchorhold"));
}

TEST_F(StoreTest, others_cannot_read_what_is_stored) {
  TaskId id = store_.create(spec(), clock_)->id();
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory_.path() / "tasks")) {
    struct stat info;
    ASSERT_EQ(stat(entry.path().c_str(), &info), 0);
    if (entry.path().extension() == ".db" || entry.path().filename() == id.value()) {
      EXPECT_EQ(info.st_mode & 077, 0u) << entry.path();
    }
  }
}

TEST_F(StoreTest, what_a_crash_left_half_made_is_no_task_and_goes) {
  auto half = directory_.path() / "tasks" / ".halfmade";
  ASSERT_TRUE(make_directories(half / "outputs"));
  EXPECT_THAT(*store_.list(), IsEmpty());
  std::filesystem::last_write_time(half,
                                   std::filesystem::file_time_type::clock::now() - std::chrono::hours(48));
  ASSERT_TRUE(TaskStore::open(directory_.path() / "tasks"));
  EXPECT_FALSE(std::filesystem::exists(half));
}

}  // namespace
}  // namespace anchorhold::agent
