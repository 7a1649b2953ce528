// A client that was taken over: descriptors from elsewhere, swapped names, hidden names, and messages of any
// bytes.
#include <atomic>
#include <cstring>
#include <random>
#include <sys/mman.h>
#include <sys/mount.h>
#include <thread>

#include "keeper_fixture.h"

namespace anchorhold::mounts::testing {
namespace {

namespace fs = std::filesystem;

class Escape : public KeeperTest {
 protected:
  void SetUp() override {
    KeeperTest::SetUp();
    write_text(grant_ / "file", "inside");
    ASSERT_TRUE(fs::create_directory(grant_ / "folder"));
    write_text(outside_ / "victim", "outside");
    ASSERT_TRUE(fs::create_directory(outside_ / "empty"));
  }

  // Every verb that takes a folder, on a folder that it must not have.
  void expect_no_folder_verb(int folder, int expected) {
    int inside = at("folder").release();
    UniqueFd owned(inside);
    for (Verb verb : {Verb::create, Verb::make_directory, Verb::unlink, Verb::remove_directory})
      EXPECT_EQ(ask(make_request(verb, verb == Verb::remove_directory ? "empty" : "victim"), {folder}).error,
                expected)
          << to_string(verb);
    EXPECT_EQ(ask(make_request(Verb::make_symlink, "new"), {folder}, "t").error, expected);
    EXPECT_EQ(ask(make_request(Verb::rename, "victim", "stolen"), {folder, inside}).error, expected);
    EXPECT_EQ(ask(make_request(Verb::rename, "file", "escaped"), {at().get(), folder}).error, expected);
    EXPECT_EQ(ask(make_request(Verb::link, "escaped"), {at("file").get(), folder}).error, expected);
    EXPECT_EQ(read_text(outside_ / "victim"), "outside");
    EXPECT_EQ(std::distance(fs::directory_iterator(outside_), {}), 2);
    EXPECT_EQ(read_text(grant_ / "file"), "inside");
    EXPECT_TRUE(fs::is_empty(grant_ / "folder"));
  }

  // Every verb that takes an object.
  void expect_no_object_verb(int object, int expected) {
    EXPECT_EQ(ask(make_request(Verb::open_for_write), {object}).error, expected);
    EXPECT_EQ(truncate(object, 0).error, expected);
    EXPECT_EQ(allocate(object, 0, 0, 10).error, expected);
    auto request = make_request(Verb::set_attributes);
    request.valid = valid_flag::mode;
    request.mode = 0777;
    EXPECT_EQ(ask(request, {object}).error, expected);
    EXPECT_EQ(ask(make_request(Verb::set_xattr, "user.x"), {object}, "v").error, expected);
    EXPECT_EQ(ask(make_request(Verb::remove_xattr, "user.x"), {object}).error, expected);
    EXPECT_EQ(ask(make_request(Verb::link, "stolen"), {object, at("folder").get()}).error, expected);
    EXPECT_TRUE(fs::is_empty(grant_ / "folder"));
  }
};

TEST_F(Escape, FoldersFromOutside) {
  start(Mode::rw);
  expect_no_folder_verb(at_path(outside_).get(), ESTALE);
}

TEST_F(Escape, FoldersFromAbove) {
  start(Mode::rw);
  for (const auto& above : {directory_->path(), directory_->path().parent_path(), fs::path("/")}) {
    UniqueFd fd = at_path(above);
    EXPECT_EQ(ask(make_request(Verb::create, "escaped"), {fd.get()}).error, ESTALE) << above;
    EXPECT_EQ(ask(make_request(Verb::unlink, "grant"), {fd.get()}).error, ESTALE) << above;
    EXPECT_EQ(ask(make_request(Verb::rename, "outside", "x"), {fd.get(), at().get()}).error, ESTALE) << above;
  }
  auto report = expect_report(ReportKind::refused);
  EXPECT_EQ(report.error, ESTALE);
}

TEST_F(Escape, ObjectsFromOutside) {
  start(Mode::rw);
  expect_no_object_verb(at_path(outside_ / "victim").get(), ESTALE);
  expect_no_object_verb(at_path(ledger_ / "journal.db").get(), ESTALE);
  // A writable descriptor of something else proves nothing either.
  UniqueFd writable(open((outside_ / "victim").c_str(), O_RDWR | O_CLOEXEC));
  expect_no_object_verb(writable.get(), ESTALE);
  EXPECT_EQ(read_text(outside_ / "victim"), "outside");
}

TEST_F(Escape, NamelessFilesOfOthers) {
  start(Mode::rw);
  UniqueFd nameless(open((outside_ / "victim").c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::unlink((outside_ / "victim").c_str()), 0);
  EXPECT_EQ(truncate(nameless.get(), 0).error, ESTALE);
  auto pipe = make_pipe();
  ASSERT_TRUE(pipe);
  EXPECT_EQ(ask(make_request(Verb::open_for_write), {pipe->write_end.get()}).error, ESTALE);
  UniqueFd memory(memfd_create("m", MFD_CLOEXEC));
  EXPECT_EQ(truncate(memory.get(), 1 << 20).error, ESTALE);
}

TEST_F(Escape, AFolderThatWasMovedAway) {
  start(Mode::rw);
  ASSERT_EQ(mkdir("", "session").error, 0);
  UniqueFd held = at("folder"), own = at("session");
  fs::rename(grant_ / "folder", outside_ / "folder");
  fs::rename(grant_ / "session", outside_ / "session");
  EXPECT_EQ(ask(make_request(Verb::create, "x"), {held.get()}).error, ESTALE);
  EXPECT_EQ(ask(make_request(Verb::create, "x"), {own.get()}).error, ESTALE);
  EXPECT_TRUE(fs::is_empty(outside_ / "folder"));
  EXPECT_TRUE(fs::is_empty(outside_ / "session"));
}

TEST_F(Escape, AFolderThatWasRemoved) {
  start(Mode::rw);
  UniqueFd held = at("folder");
  ASSERT_EQ(rmdir("", "folder").error, 0);
  EXPECT_EQ(ask(make_request(Verb::create, "x"), {held.get()}).error, ESTALE);
  // One of the same name is another one.
  ASSERT_EQ(mkdir("", "folder").error, 0);
  EXPECT_EQ(ask(make_request(Verb::create, "x"), {held.get()}).error, ESTALE);
}

TEST_F(Escape, TheGrantedFolderMayBeRenamedOrReplaced) {
  start(Mode::rw);
  UniqueFd root = at(), folder = at("folder");
  fs::rename(grant_, directory_->path() / "renamed");
  fs::create_directory_symlink(outside_, grant_);
  auto request = make_request(Verb::create, "new");
  request.flags = open_flag::exclusive;
  request.mode = 0644;
  EXPECT_EQ(ask(request, {root.get()}).error, 0);
  EXPECT_EQ(ask(request, {folder.get()}).error, 0);
  EXPECT_TRUE(fs::exists(directory_->path() / "renamed/folder/new"));
  EXPECT_FALSE(fs::exists(outside_ / "new"));
  // Its neighbour with a name that begins alike is not beneath it.
  fs::create_directory(directory_->path() / "renamed2");
  EXPECT_EQ(ask(request, {at_path(directory_->path() / "renamed2").get()}).error, ESTALE);
}

TEST_F(Escape, SymlinksAreNeverFollowed) {
  fs::create_directory_symlink(outside_, grant_ / "way-out");
  fs::create_symlink(outside_ / "victim", grant_ / "to-victim");
  start(Mode::rw);
  EXPECT_EQ(ask(make_request(Verb::create, "x"), {at("way-out").get()}).error, ENOTDIR);
  EXPECT_EQ(ask(make_request(Verb::unlink, "victim"), {at("way-out").get()}).error, ENOTDIR);
  EXPECT_EQ(open_write("to-victim", open_flag::truncate).error, ELOOP);
  EXPECT_EQ(truncate(at("to-victim").get(), 0).error, ELOOP);
  EXPECT_EQ(chmod("to-victim", 0777).error, EOPNOTSUPP);
  EXPECT_EQ(unlink("", "to-victim").error, 0);
  EXPECT_EQ(read_text(outside_ / "victim"), "outside");
}

// The host swaps a folder for a symlink that leads out, and back, as fast as it can, while the client works
// in it.
TEST_F(Escape, NamesSwappedInALoop) {
  write_text(grant_ / "folder/victim", "decoy");
  fs::create_directory_symlink(outside_, grant_ / "link");
  start(Mode::rw);
  std::atomic<bool> stop{false};
  std::thread swapper([&] {
    while (!stop)
      renameat2(AT_FDCWD, (grant_ / "folder").c_str(), AT_FDCWD, (grant_ / "link").c_str(), RENAME_EXCHANGE);
  });
  for (int i = 0; i < 3000; ++i) {
    for (auto name : {"folder", "link"}) {
      UniqueFd fd = at(name);
      ask(make_request(Verb::unlink, "victim"), {fd.get()});
      auto request = make_request(Verb::create, "victim");
      request.flags = open_flag::truncate;
      request.mode = 0600;
      ask(request, {fd.get()});
    }
  }
  stop = true;
  swapper.join();
  EXPECT_EQ(read_text(outside_ / "victim"), "outside");
  EXPECT_EQ(std::distance(fs::directory_iterator(outside_), {}), 2);
}

// The same with a folder that really moves out and back: whatever is done, is done while it is inside.
TEST_F(Escape, AFolderThatMovesOutAndBack) {
  start(Mode::rw);
  UniqueFd held = at("folder");
  std::atomic<bool> stop{false};
  std::thread mover([&] {
    while (!stop) {
      ::rename((grant_ / "folder").c_str(), (outside_ / "folder").c_str());
      ::rename((outside_ / "folder").c_str(), (grant_ / "folder").c_str());
    }
  });
  auto create_in_it = [&](const std::string& name) {
    auto request = make_request(Verb::create, name);
    request.flags = open_flag::exclusive;
    return ask(request, {held.get()}).error;
  };
  for (int i = 0; i < 2000; ++i) {
    int error = create_in_it("n" + std::to_string(i));
    // ESTALE: it was outside; EACCES: the kernel's own rule noticed at the change itself.
    EXPECT_TRUE(error == 0 || error == ESTALE || error == EACCES) << error;
  }
  stop = true;
  mover.join();
  // What of it was met in the race is chance; each alone is not, and what was found before does not count.
  EXPECT_EQ(create_in_it("inside"), 0);
  fs::rename(grant_ / "folder", outside_ / "folder");
  EXPECT_EQ(create_in_it("outside"), ESTALE);
  fs::rename(outside_ / "folder", grant_ / "folder2");
  EXPECT_EQ(create_in_it("elsewhere"), 0);
  EXPECT_TRUE(fs::exists(grant_ / "folder2/elsewhere"));
}

TEST_F(Escape, HiddenNamesCannotBeReachedByAnyVerb) {
  write_text(grant_ / ".env", "TOKEN=1");
  ASSERT_TRUE(fs::create_directory(grant_ / ".ssh"));
  write_text(grant_ / ".ssh/config", "x");
  start(Mode::rw);
  for (std::string_view name : {".env", ".ENV", ".env.new", "server.pem", "ID_RSA", ".\xef\xbd\x85nv"}) {
    EXPECT_EQ(create("", name, 0).error, EACCES) << name;
    EXPECT_EQ(mkdir("", name).error, EACCES) << name;
    EXPECT_EQ(symlink("", name, "t").error, EACCES) << name;
    EXPECT_EQ(link("file", "", name).error, EACCES) << name;
    EXPECT_EQ(unlink("", name).error, EACCES) << name;
    EXPECT_EQ(rmdir("", name).error, EACCES) << name;
    EXPECT_EQ(rename("", "file", "", name).error, EACCES) << name;
    EXPECT_EQ(rename("", name, "", "seen").error, EACCES) << name;
    EXPECT_EQ(rename("", "file", "", name, rename_flag::exchange).error, EACCES) << name;
  }
  // Descriptors that a client got somehow.
  expect_no_object_verb(at(".env").get(), EACCES);
  EXPECT_EQ(ask(make_request(Verb::create, "x"), {at(".ssh").get()}).error, EACCES);
  EXPECT_EQ(ask(make_request(Verb::unlink, "config"), {at(".ssh").get()}).error, EACCES);
  expect_no_object_verb(at(".ssh/config").get(), EACCES);
  EXPECT_EQ(read_text(grant_ / ".env"), "TOKEN=1");
  EXPECT_EQ(read_text(grant_ / "file"), "inside");
}

TEST_F(Escape, PolicyMayHideOtherNames) {
  write_text(grant_ / "salaries.xlsx", "");
  start(Mode::rw, {"--hidden", "salar*", "--hidden", "*.p12"});
  EXPECT_EQ(open_write("salaries.xlsx").error, EACCES);
  EXPECT_EQ(create("", ".env").error, 0);
}

TEST_F(Escape, ABindMountOfTheOutsideIsRefusedByItsDescriptor) {
  if (geteuid() != 0) GTEST_SKIP() << "mounting needs root";
  // A view of the granted folder's inside from another place: the same objects by another way is not beneath
  // the grant.
  ASSERT_TRUE(fs::create_directory(outside_ / "view"));
  if (mount((grant_ / "folder").c_str(), (outside_ / "view").c_str(), nullptr, MS_BIND, nullptr) != 0)
    GTEST_SKIP() << "no right to mount here";
  start(Mode::rw);
  {
    UniqueFd view = at_path(outside_ / "view");
    EXPECT_EQ(ask(make_request(Verb::create, "x"), {view.get()}).error, ESTALE);
  }
  umount2((outside_ / "view").c_str(), MNT_DETACH);
  EXPECT_TRUE(fs::is_empty(grant_ / "folder"));
}

TEST_F(Escape, ASingleFileIsAlone) {
  write_text(grant_ / "sibling", "theirs");
  start(Mode::rw, {"--only-file", "file"});
  EXPECT_EQ(open_write("sibling").error, EACCES);
  EXPECT_EQ(chmod("sibling", 0777).error, EACCES);
  EXPECT_EQ(chmod("", 0777).error, EACCES);
  EXPECT_EQ(create("", "new").error, EACCES);
  EXPECT_EQ(unlink("", "sibling").error, EACCES);
  EXPECT_EQ(unlink("", "file").error, EACCES);
  EXPECT_EQ(rename("", "file", "", "other").error, EACCES);
  EXPECT_EQ(rename("", "sibling", "", "file").error, EACCES);
  EXPECT_EQ(ask(make_request(Verb::create, "x"), {at("folder").get()}).error, EACCES);
  auto opened = open_write("file", open_flag::truncate);
  ASSERT_EQ(opened.error, 0);
  ASSERT_TRUE(write_all(opened.descriptor.get(), std::as_bytes(std::span("new", 3))));
  EXPECT_EQ(read_text(grant_ / "file"), "new");
  EXPECT_TRUE(is_kept("inside"));
  EXPECT_EQ(chmod("file", 0600).error, 0);
  EXPECT_EQ(read_text(grant_ / "sibling"), "theirs");
}

class Hostile : public KeeperTest {
 protected:
  void SetUp() override {
    KeeperTest::SetUp();
    write_text(grant_ / "file", "inside");
    start(Mode::rw);
  }
  int socket() { return keeper_->sockets[1].get(); }
  void send_raw(std::string_view bytes, std::vector<int> descriptors = {}) {
    ASSERT_TRUE(send_with_descriptors(socket(), std::as_bytes(std::span(bytes)), descriptors));
  }
  void expect_cut_off() {
    char byte;
    EXPECT_LE(recv(socket(), &byte, 1, 0), 0);
    auto report = expect_report(ReportKind::violation);
    EXPECT_FALSE(report.reason.empty());
    // The other client is served as before.
    EXPECT_GT(numbers().requests, 0u);
  }
  static std::string bytes_of(const RequestHeader& header) {
    return {reinterpret_cast<const char*>(&header), sizeof header};
  }
};

TEST_F(Hostile, TooShort) {
  send_raw("x");
  expect_cut_off();
}

TEST_F(Hostile, TooLong) {
  send_raw(std::string(sizeof(RequestHeader) + max_payload_bytes + 1, '\0'));
  expect_cut_off();
}

TEST_F(Hostile, WrongVerb) {
  auto header = make_request(static_cast<Verb>(99));
  send_raw(bytes_of(header));
  expect_cut_off();
}

TEST_F(Hostile, MissingDescriptor) {
  auto header = make_request(Verb::unlink, "file");
  header.descriptors = 1;
  send_raw(bytes_of(header));
  expect_cut_off();
  EXPECT_TRUE(fs::exists(grant_ / "file"));
}

TEST_F(Hostile, TooManyDescriptors) {
  auto header = make_request(Verb::unlink, "file");
  header.descriptors = 1;
  UniqueFd root = at();
  send_raw(bytes_of(header), std::vector<int>(max_passed_descriptors, root.get()));
  expect_cut_off();
  EXPECT_TRUE(fs::exists(grant_ / "file"));
}

TEST_F(Hostile, WrongKindOfDescriptor) {
  auto sockets = socket_pair(SOCK_STREAM);
  ASSERT_TRUE(sockets);
  EXPECT_EQ(ask(make_request(Verb::create, "x"), {sockets->first.get()}).error, ESTALE);
  UniqueFd root = at();
  EXPECT_EQ(ask(make_request(Verb::create, "x"), {at("file").get()}).error, ENOTDIR);
  EXPECT_EQ(ask(make_request(Verb::open_for_write), {root.get()}).error, EISDIR);
}

TEST_F(Hostile, AClientThatTakesNoAnswers) {
  // Its requests fill its own socket, not the keeper.
  auto header = make_request(Verb::statistics);
  ASSERT_TRUE(set_nonblocking(socket()));
  for (int i = 0; i < 100'000; ++i) {
    header.id = static_cast<std::uint64_t>(i);
    if (send(socket(), &header, sizeof header, MSG_NOSIGNAL) < 0) break;
  }
  keeper_->sockets[1].reset();
  EXPECT_GT(numbers().requests, 0u);
}

TEST_F(Hostile, DescriptorsAreNotLeaked) {
  auto count = [&] {
    return std::distance(fs::directory_iterator("/proc/" + std::to_string(keeper_->child->pid()) + "/fd"),
                         {});
  };
  if (geteuid() != 0) GTEST_SKIP() << "a sealed process does not show its descriptors";
  ask(make_request(Verb::open_for_write), {at("file").get()});
  auto before = count();
  for (int i = 0; i < 500; ++i) {
    ask(make_request(Verb::open_for_write), {at("file").get()});
    ask(make_request(Verb::create, "file"), {at().get()});
    ask(make_request(Verb::unlink, "missing"), {at().get()});
    ask(make_request(Verb::create, "x"), {at_path("/").get()});
  }
  EXPECT_LE(count(), before + 8);
}

TEST_F(Hostile, RandomMessages) {
  std::mt19937 random(20261129);
  auto number = [&](std::uint32_t most) {
    return std::uniform_int_distribution<std::uint32_t>(0, most)(random);
  };
  keeper_.reset();
  client_.reset();
  keeper_ = KeeperProcess::start(grant_, ledger_, {.mode = Mode::rw, .clients = 30, .arguments = {}});
  ASSERT_TRUE(keeper_);
  ASSERT_EQ(keeper_->next_report()->kind, ReportKind::ready);
  client_ = std::make_unique<KeeperClient>(std::move(keeper_->sockets[0]));
  for (std::size_t client = 1; client < 30; ++client) {
    for (int i = 0; i < 200; ++i) {
      auto header = make_request(static_cast<Verb>(number(16)), std::string(number(8), 'f'),
                                 std::string(number(2), 'g'));
      header.descriptors = static_cast<std::uint16_t>(number(2));
      header.flags = number(63);
      auto bytes = bytes_of(header);
      for (std::uint32_t flips = number(3); flips > 0; --flips)
        bytes[number(static_cast<std::uint32_t>(bytes.size() - 1))] ^= static_cast<char>(1u << number(7));
      UniqueFd folder = at_path(number(1) ? grant_ : outside_);
      std::vector<int> descriptors(header.descriptors, folder.get());
      if (!send_with_descriptors(keeper_->sockets[client].get(), std::as_bytes(std::span(bytes)),
                                 descriptors))
        break;
      Reply reply;
      if (recv(keeper_->sockets[client].get(), &reply, sizeof reply, 0) <= 0) break;
    }
  }
  EXPECT_GT(numbers().requests, 0u);
  EXPECT_TRUE(fs::is_empty(outside_));
  EXPECT_EQ(read_text(grant_ / "file"), "inside");
}

}  // namespace
}  // namespace anchorhold::mounts::testing
