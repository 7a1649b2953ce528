// Watching a granted folder: what reader and host say to each other, what the host lets be watched, and what
// the reader makes of the kernel's events.
#include <atomic>
#include <condition_variable>
#include <fcntl.h>
#include <fstream>
#include <future>
#include <gtest/gtest.h>
#include <mutex>
#include <sys/inotify.h>
#include <sys/socket.h>

#include "../../../host/mounts/src/folder_watch.h"
#include "base/guest_numbers.h"
#include "mounts/watch_protocol.h"
#include "reader_fixture.h"

namespace anchorhold::mounts {
namespace {

using testing::FuseGuest;

std::span<const std::byte> bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

TEST(WatchProtocol, ChangesComeBackAsTheyWere) {
  using Kind = HostChange::Kind;
  for (const HostChange& change : {HostChange{Kind::content, ObjectKind::file, "a/b", ""},
                                   {Kind::attributes, ObjectKind::folder, "", ""},
                                   {Kind::appeared, ObjectKind::symlink, std::string("\xff\x01"), ""},
                                   {Kind::vanished, ObjectKind::other, "x", ""},
                                   {Kind::renamed, ObjectKind::folder, "from/x", "to/y"},
                                   {Kind::lost, ObjectKind::file, "", ""}}) {
    auto parsed = parse_watch_message(bytes(encode_watch_message({WatchMessage::Kind::change, 7, change})));
    ASSERT_TRUE(parsed) << parsed.error().message;
    EXPECT_EQ(parsed->change, change);
    EXPECT_EQ(parsed->number, 7u);
  }
  HostChange endless{Kind::renamed, ObjectKind::file, std::string(5000, 'x'), "y"};
  auto cut = parse_watch_message(bytes(encode_watch_message({WatchMessage::Kind::change, 0, endless})));
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->change.kind, Kind::lost);
}

TEST(WatchProtocol, WhatNoReaderSendsIsRefused) {
  using Kind = HostChange::Kind;
  for (const HostChange& change : {HostChange{Kind::content, ObjectKind::file, "/etc", ""},
                                   {Kind::content, ObjectKind::file, "a/../b", ""},
                                   {Kind::content, ObjectKind::file, "a//b", ""},
                                   {Kind::content, ObjectKind::file, "a/", ""},
                                   {Kind::content, ObjectKind::file, ".", ""},
                                   {Kind::appeared, ObjectKind::file, "", ""},
                                   {Kind::renamed, ObjectKind::file, "a", ""},
                                   {Kind::renamed, ObjectKind::file, "a", ".."},
                                   {Kind::content, ObjectKind::file, "a", "b"},
                                   {Kind::content, ObjectKind::file, std::string("a\0b", 3), ""},
                                   {static_cast<Kind>(17), ObjectKind::file, "a", ""},
                                   {Kind::content, static_cast<ObjectKind>(9), "a", ""}})
    EXPECT_FALSE(parse_watch_message(bytes(encode_watch_message({WatchMessage::Kind::change, 0, change}))))
        << change.path;
  for (auto kind : {WatchMessage::Kind::watch, WatchMessage::Kind::unwatch, WatchMessage::Kind::settled}) {
    auto good = encode_watch_message({kind, 1});
    EXPECT_TRUE(parse_watch_message(bytes(good)));
    EXPECT_FALSE(parse_watch_message(bytes(good + "x")));
    for (std::size_t size = 0; size < good.size(); ++size)
      EXPECT_FALSE(parse_watch_message(bytes(good.substr(0, size))));
    EXPECT_FALSE(parse_watch_message(
        bytes(encode_watch_message({kind, 1, {Kind::content, ObjectKind::file, "a", ""}}))));
  }
  EXPECT_FALSE(parse_watch_message(bytes(encode_watch_message({static_cast<WatchMessage::Kind>(5), 1}))));
}

// Changes as they are told, for a test to wait for.
class Told {
 public:
  std::function<bool(HostChange)> sink() {
    return [this](HostChange change) {
      std::lock_guard lock(mutex_);
      changes_.push_back(std::move(change));
      changed_.notify_all();
      return true;
    };
  }
  // What was told until now and not taken.
  std::vector<HostChange> rest() {
    std::lock_guard lock(mutex_);
    return {changes_.begin() + static_cast<std::ptrdiff_t>(std::exchange(next_, changes_.size())),
            changes_.end()};
  }
  std::optional<HostChange> next() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(60), [&] { return next_ < changes_.size(); }))
      return std::nullopt;
    return changes_[next_++];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<HostChange> changes_;
  std::size_t next_ = 0;
};

// Asks for what was changed until now, and waits until all of it is told.
void settle(FolderWatch& watch) {
  std::promise<void> done;
  auto settled = done.get_future();
  watch.settle([&] { done.set_value(); });
  ASSERT_EQ(settled.wait_for(std::chrono::seconds(60)), std::future_status::ready);
}

TEST(FolderWatch, OnlyFoldersBeneathTheGrantAreWatched) {
  auto made = TemporaryDirectory::create("anchorhold-watch-test");
  ASSERT_TRUE(made);
  for (const char* name : {"grant", "grant/below", "grant-beside", "outside"})
    std::filesystem::create_directory(made->path() / name);
  std::ofstream(made->path() / "grant/file") << "text";
  std::filesystem::create_directory_symlink(made->path() / "outside", made->path() / "grant/link");
  UniqueFd root(open((made->path() / "grant").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  Told told;
  FolderWatch::Ends ends;
  auto watch = FolderWatch::start(root.get(), told.sink(), ends);
  ASSERT_TRUE(watch) << watch.error().message;
  auto ask = [&](const std::string& name) {
    UniqueFd fd(open((made->path() / name).c_str(), O_PATH | O_CLOEXEC));
    int descriptor = fd.get();
    auto message = encode_watch_message({WatchMessage::Kind::watch, 5});
    EXPECT_TRUE(send_with_descriptors(ends.socket.get(), bytes(message), std::span(&descriptor, 1)));
    WatchWord answer{};
    EXPECT_EQ(recv(ends.socket.get(), &answer, sizeof answer, 0), static_cast<ssize_t>(sizeof answer));
    EXPECT_EQ(answer.kind, WatchWord::Kind::answer);
    EXPECT_EQ(answer.number, 5u);
    return answer.watch;
  };
  EXPECT_GT(ask("grant"), 0);
  EXPECT_GT(ask("grant/below"), 0);
  for (const char* name : {"outside", "grant-beside", "", "grant/file", "grant/link"})
    EXPECT_LT(ask(name), 0) << name;
  // What breaks the rules ends the watching: nothing is reported any more.
  EXPECT_EQ(send(ends.socket.get(), "nonsense", 8, 0), 8);
  auto last = told.next();
  ASSERT_TRUE(last);
  EXPECT_EQ(last->kind, HostChange::Kind::lost);
}

// Whoever asks for what was changed is told once: when the reader has answered for that number or a later
// one, or when it will not answer any more, whatever it says instead.
TEST(FolderWatch, WhatIsAskedIsAnsweredOnce) {
  auto made = TemporaryDirectory::create("anchorhold-watch-test");
  ASSERT_TRUE(made);
  UniqueFd root(open(made->path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  Told told;
  FolderWatch::Ends ends;
  auto watch = FolderWatch::start(root.get(), told.sink(), ends);
  ASSERT_TRUE(watch) << watch.error().message;
  std::atomic<int> answered = 0;
  auto ask = [&] { (*watch)->settle([&] { ++answered; }); };
  auto asked = [&] {
    WatchWord word{};
    EXPECT_EQ(recv(ends.socket.get(), &word, sizeof word, 0), static_cast<ssize_t>(sizeof word));
    EXPECT_EQ(word.kind, WatchWord::Kind::settle);
    return word.number;
  };
  // What is said after it has been taken, what was said before has been, too.
  auto say = [&](WatchMessage::Kind kind, std::uint64_t number) {
    auto message = encode_watch_message({kind, number});
    EXPECT_EQ(send(ends.socket.get(), message.data(), message.size(), 0),
              static_cast<ssize_t>(message.size()));
    auto change = encode_watch_message(
        {WatchMessage::Kind::change, 0, {HostChange::Kind::content, ObjectKind::file, "file", ""}});
    EXPECT_EQ(send(ends.socket.get(), change.data(), change.size(), 0), static_cast<ssize_t>(change.size()));
    EXPECT_TRUE(told.next());
  };
  for (int i = 0; i < 3; ++i) ask();
  auto first = asked();
  EXPECT_EQ(asked(), first + 1);
  EXPECT_EQ(asked(), first + 2);
  say(WatchMessage::Kind::settled, 0);
  EXPECT_EQ(answered, 0);
  say(WatchMessage::Kind::settled, first + 1);
  EXPECT_EQ(answered, 2);
  say(WatchMessage::Kind::settled, first);
  EXPECT_EQ(answered, 2);
  say(WatchMessage::Kind::settled, ~std::uint64_t{0});
  EXPECT_EQ(answered, 3);
  // A reader that takes no words: they end somewhere, and so does the waiting for them.
  for (int i = 0; i < 5000; ++i) ask();
  EXPECT_GT(answered, 3);
  EXPECT_LT(answered, 5003);
  EXPECT_EQ(send(ends.socket.get(), "nonsense", 8, 0), 8);
  ASSERT_TRUE(told.next());
  ask();
  watch->reset();
  EXPECT_EQ(answered, 5004);
}

class WatchedReader : public testing::ReaderTest {
 protected:
  void boot(Mode mode) {
    UniqueFd root(open(grant_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    auto watch = FolderWatch::start(root.get(), told_.sink(), ends_);
    ASSERT_TRUE(watch);
    watch_ = std::move(*watch);
    reader_arguments_ = {"--watch"};
    reader_descriptors_ = {{ends_.socket.get(), reader_fd::watch}, {ends_.events.get(), reader_fd::events}};
    ReaderTest::boot(mode);
    ends_ = {};
  }
  // Looks at the name until it may be remembered, which is when the folder is watched.
  fuse_entry_out look(std::uint64_t parent, const std::string& name) {
    for (;;) {
      auto entry = guest_->lookup(parent, name).as<fuse_entry_out>();
      if (entry.entry_valid > 1) return entry;
    }
  }
  void expect(const HostChange& wanted) {
    auto change = told_.next();
    ASSERT_TRUE(change) << wanted.path;
    EXPECT_EQ(*change, wanted) << change->path << " " << static_cast<int>(change->kind) << " instead of "
                               << wanted.path << " " << static_cast<int>(wanted.kind);
  }
  void write(const std::string& name, const std::string& text) { std::ofstream(grant_ / name) << text; }

  Told told_;
  std::unique_ptr<FolderWatch> watch_;
  FolderWatch::Ends ends_;
};

using Kind = HostChange::Kind;

TEST_F(WatchedReader, WhatTheHostChangesIsTold) {
  write("file", "text");
  std::filesystem::create_directory(grant_ / "folder");
  boot(Mode::ro);
  EXPECT_EQ(look(FUSE_ROOT_ID, "file").attr_valid, 30u);
  auto folder = look(FUSE_ROOT_ID, "folder").nodeid;
  look(folder, "nothing");
  std::filesystem::permissions(grant_ / "file", std::filesystem::perms::owner_all);
  expect({Kind::attributes, ObjectKind::file, "file", ""});
  { std::ofstream(grant_ / "file", std::ios::app) << "more"; }
  expect({Kind::content, ObjectKind::file, "file", ""});
  std::filesystem::rename(grant_ / "file", grant_ / "folder/moved");
  expect({Kind::renamed, ObjectKind::file, "file", "folder/moved"});
  std::filesystem::create_symlink("x", grant_ / "folder/link");
  expect({Kind::appeared, ObjectKind::symlink, "folder/link", ""});
  // From where nobody looks, and there again.
  std::filesystem::rename(grant_ / "folder/moved", directory_->path() / "outside/moved");
  expect({Kind::vanished, ObjectKind::file, "folder/moved", ""});
  std::filesystem::create_directory(directory_->path() / "outside/new");
  std::filesystem::rename(directory_->path() / "outside/new", grant_ / "new");
  expect({Kind::appeared, ObjectKind::folder, "new", ""});
  // Hidden names do not exist, so that what leaves for one is gone.
  write(".env", "SECRET=1");
  std::filesystem::rename(grant_ / "new", grant_ / ".ssh");
  expect({Kind::vanished, ObjectKind::folder, "new", ""});
  std::filesystem::remove(grant_ / "folder/link");
  expect({Kind::vanished, ObjectKind::file, "folder/link", ""});
}

TEST_F(WatchedReader, WhatTheGuestChangesIsNot) {
  boot(Mode::rw);
  look(FUSE_ROOT_ID, "nothing");
  for (int round = 0; round < 20; ++round) {
    auto created = guest_->create(FUSE_ROOT_ID, "file", O_RDWR | O_CREAT);
    ASSERT_EQ(created.error, 0);
    auto entry = created.as<fuse_entry_out>();
    fuse_open_out opened;
    std::memcpy(&opened, created.payload.data() + sizeof entry, sizeof opened);
    for (int i = 0; i < 5; ++i) EXPECT_EQ(guest_->write(opened.fh, 0, "some text").error, 0);
    EXPECT_EQ(guest_->set_size(entry.nodeid, 3).error, 0);
    EXPECT_EQ(guest_->rename(FUSE_ROOT_ID, "file", FUSE_ROOT_ID, "moved").error, 0);
    EXPECT_EQ(guest_->ask(FUSE_UNLINK, FUSE_ROOT_ID, FuseGuest::name("moved")).error, 0);
    EXPECT_EQ(guest_->make_folder(FUSE_ROOT_ID, "folder").error, 0);
    EXPECT_EQ(guest_->ask(FUSE_RMDIR, FUSE_ROOT_ID, FuseGuest::name("folder")).error, 0);
    if (round % 2 == 0) settle(*watch_);
  }
  std::filesystem::create_directory(grant_ / "end");
  expect({Kind::appeared, ObjectKind::folder, "end", ""});
}

// Also what it is not clear of who did it, since the guest changes the same file; and nothing is gathered or
// put off meanwhile, since it is told before the question is answered.
TEST_F(WatchedReader, WhatWasChangedBeforeIsToldFirst) {
  write("file", "text");
  boot(Mode::rw);
  look(FUSE_ROOT_ID, "nothing");
  auto node = look(FUSE_ROOT_ID, "file").nodeid;
  auto handle = guest_->handle(node, O_RDWR);
  for (int round = 0; round < 100; ++round) {
    SCOPED_TRACE(round);
    EXPECT_EQ(guest_->write(handle, 0, "by the guest").error, 0);
    { std::ofstream(grant_ / "file", std::ios::app) << "by the host"; }
    settle(*watch_);
    // More than once when somebody looked in between.
    auto told = told_.rest();
    ASSERT_FALSE(told.empty());
    for (const auto& change : told)
      EXPECT_EQ(change, (HostChange{Kind::content, ObjectKind::file, "file", ""}));
    write("new", "");
    std::filesystem::rename(grant_ / "new", grant_ / "other");
    std::filesystem::remove(grant_ / "other");
    settle(*watch_);
    told = told_.rest();
    ASSERT_FALSE(told.empty());
    EXPECT_EQ(told.back(), (HostChange{Kind::vanished, ObjectKind::file, "other", ""}));
  }
  // A reader that is gone answers nobody, and nobody waits for it.
  reader_.reset();
  settle(*watch_);
}

// Who lists a folder is told what happens from then on: the answer waits until the host watches it, and other
// requests do not.
TEST_F(WatchedReader, AFolderIsOpenedWhenItIsWatched) {
  std::filesystem::create_directory(grant_ / "folder");
  auto pair = socket_pair(SOCK_SEQPACKET);
  UniqueFd events(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  ASSERT_TRUE(pair && events);
  reader_arguments_ = {"--watch"};
  reader_descriptors_ = {{pair->second.get(), reader_fd::watch}, {events.get(), reader_fd::events}};
  ReaderTest::boot(Mode::ro);
  const int host = pair->first.get();
  // The host's side by hand: takes what it is asked for, answers later.
  auto next_asked = [&] {
    std::array<std::byte, max_watch_message_bytes> buffer;
    auto received = receive_with_descriptors(host, buffer);
    EXPECT_TRUE(received && received->descriptors.size() == 1);
    auto message = received ? parse_watch_message(std::span(buffer).first(received->size))
                            : Result<WatchMessage>(fail(received.error()));
    EXPECT_TRUE(message && message->kind == WatchMessage::Kind::watch);
    return message ? message->number : 0;
  };
  auto answer = [&](std::uint64_t number, std::int64_t watch) {
    WatchWord bytes{WatchWord::Kind::answer, number, static_cast<decltype(WatchWord::watch)>(watch)};
    EXPECT_EQ(send(host, &bytes, sizeof bytes, 0), static_cast<ssize_t>(sizeof bytes));
  };
  auto folder = guest_->node("folder");
  EXPECT_EQ(next_asked(), std::uint64_t{FUSE_ROOT_ID});
  answer(FUSE_ROOT_ID, -EACCES);
  auto opening =
      guest_->submit(FuseGuest::request(FUSE_OPENDIR, folder, testing::bytes_of(fuse_open_in{})), 256);
  EXPECT_EQ(next_asked(), folder);
  EXPECT_EQ(guest_->attributes(folder).error, 0);
  EXPECT_FALSE(guest_->is_answered(opening));
  // What is looked up meanwhile is not remembered: nobody would tell that it is so no more.
  auto nothing = guest_->lookup(folder, "nothing").as<fuse_entry_out>();
  EXPECT_EQ(nothing.entry_valid + nothing.entry_valid_nsec, 0u);
  answer(folder, 1);
  auto opened = guest_->wait(opening);
  ASSERT_TRUE(opened.answered);
  EXPECT_EQ(opened.error, 0);
  EXPECT_EQ(opened.as<fuse_open_out>().open_flags, std::uint32_t{FOPEN_CACHE_DIR});
  EXPECT_EQ(guest_->lookup(folder, "nothing").as<fuse_entry_out>().entry_valid, 30u);
}

// A listing may be kept where changes are told, and only what was listed since the watch began and no event
// was lost.
TEST_F(WatchedReader, WhatWasListedMayBeKept) {
  boot(Mode::ro);
  auto opened = [&] {
    return guest_->open(FUSE_ROOT_ID, O_RDONLY, FUSE_OPENDIR).as<fuse_open_out>().open_flags;
  };
  EXPECT_EQ(opened(), std::uint32_t{FOPEN_CACHE_DIR});
  EXPECT_EQ(opened(), std::uint32_t{FOPEN_CACHE_DIR | FOPEN_KEEP_CACHE});
  guest_->init();  // a guest that starts over
  EXPECT_EQ(opened(), std::uint32_t{FOPEN_CACHE_DIR});
}

// Between an announcement's request and its answer the guest's kernel has the old file for the name: whoever
// opens it then is sent to look again.
TEST_F(WatchedReader, WhatIsAnnouncedToBeReplacedIsLookedForAgain) {
  write("file", "old");
  write("other", "new");
  boot(Mode::ro);
  auto old_node = look(FUSE_ROOT_ID, "file").nodeid, new_node = look(FUSE_ROOT_ID, "other").nodeid;
  std::filesystem::rename(grant_ / "other", grant_ / "file");
  guest_->group = announcing_group;
  EXPECT_EQ(guest_->rename(FUSE_ROOT_ID, "other", FUSE_ROOT_ID, "file").error, 0);
  guest_->group = 0;
  EXPECT_EQ(guest_->open(old_node, O_RDONLY).error, ESTALE);
  EXPECT_EQ(guest_->node("file"), new_node);
  EXPECT_EQ(guest_->open(new_node, O_RDONLY).error, 0);
}

// A guest that is short of memory forgets a file before the events of what it did to it are looked at.
TEST_F(WatchedReader, WhatTheGuestChangesAndForgetsIsNot) {
  boot(Mode::rw);
  look(FUSE_ROOT_ID, "nothing");
  for (int i = 0; i < 50; ++i) {
    auto created = guest_->create(FUSE_ROOT_ID, "file" + std::to_string(i), O_RDWR | O_CREAT);
    ASSERT_EQ(created.error, 0);
    auto entry = created.as<fuse_entry_out>();
    fuse_open_out opened;
    std::memcpy(&opened, created.payload.data() + sizeof entry, sizeof opened);
    EXPECT_EQ(guest_->write(opened.fh, 0, "some text").error, 0);
    EXPECT_EQ(guest_->set_size(entry.nodeid, 3).error, 0);
    guest_->release(opened.fh);
    guest_->forget(entry.nodeid);
  }
  std::filesystem::create_directory(grant_ / "end");
  expect({Kind::appeared, ObjectKind::folder, "end", ""});
}

// In every mode: what is announced changes nothing on the host, whoever announces it.
TEST_F(WatchedReader, AnnouncementsTouchNothing) {
  for (Mode mode : {Mode::ro, Mode::rw}) {
    SCOPED_TRACE(to_string(mode));
    write("file", "text");
    std::filesystem::create_directories(grant_ / "folder/below");
    ReaderTest::boot(mode);
    auto node = guest_->node("file"), folder = guest_->node("folder");
    auto handle = mode == Mode::ro ? 0 : guest_->handle(node, O_RDWR);
    for (auto group : {announcing_group, announcing_folder_group}) {
      guest_->group = group;
      EXPECT_EQ(guest_->lookup(FUSE_ROOT_ID, "file").as<fuse_entry_out>().nodeid, 0u) << "as it was before";
      EXPECT_NE(guest_->lookup(FUSE_ROOT_ID, "nothing").as<fuse_entry_out>().nodeid, 0u);
      EXPECT_EQ(guest_
                    ->ask(FUSE_MKNOD, FUSE_ROOT_ID,
                          testing::bytes_of(fuse_mknod_in{S_IFREG | 0644, 0, 0, 0}) + FuseGuest::name("none"))
                    .error,
                ENOENT);
      EXPECT_EQ(guest_->ask(FUSE_UNLINK, FUSE_ROOT_ID, FuseGuest::name("file")).error, 0);
      EXPECT_EQ(guest_->ask(FUSE_RMDIR, folder, FuseGuest::name("below")).error, 0);
      EXPECT_EQ(guest_->rename(FUSE_ROOT_ID, "folder", FUSE_ROOT_ID, "elsewhere").error, 0);
      EXPECT_EQ(guest_->set_size(node, 0).error, 0);
      EXPECT_EQ(guest_->open(node, O_WRONLY | O_TRUNC).as<fuse_open_out>().fh, 0u);
      EXPECT_EQ(guest_->create(FUSE_ROOT_ID, "made", O_RDWR | O_CREAT).error, EPERM);
      EXPECT_EQ(guest_->write(handle, 0, "TEXT").error, EPERM);
      EXPECT_EQ(guest_->link(node, FUSE_ROOT_ID, "second").error, EPERM);
      // Hidden names are not there, before and after.
      EXPECT_EQ(guest_->lookup(FUSE_ROOT_ID, ".env").as<fuse_entry_out>().nodeid, 0u);
    }
    guest_->group = 0;
    std::ifstream in(grant_ / "file");
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), "text");
    EXPECT_TRUE(std::filesystem::exists(grant_ / "folder/below"));
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(grant_), {}), 2);
    EXPECT_NE(guest_->node("file"), 0u);
  }
}

// A kernel takes the attributes in some answers for newer than all it knows. So an announcement never says
// something of a file that the guest may have open, unless it is so.
TEST_F(WatchedReader, AnnouncementsSayNothingOldOfAFile) {
  write("file", "old text");
  write("listed", "listed text");
  boot(Mode::ro);
  auto known = guest_->node("file"), listed = guest_->list(FUSE_ROOT_ID, FUSE_READDIRPLUS).at("listed");
  constexpr std::uint64_t means_nothing = 1ull << 63;
  auto announced = [&](std::uint32_t opcode, const std::string& arguments) {
    guest_->group = announcing_group;
    auto reply = guest_->ask(opcode, FUSE_ROOT_ID, arguments);
    guest_->group = 0;
    EXPECT_EQ(reply.error, 0);
    auto entry = reply.as<fuse_entry_out>();
    EXPECT_EQ(entry.entry_valid + entry.entry_valid_nsec + entry.attr_valid + entry.attr_valid_nsec, 0u);
    return entry;
  };
  // What appeared is there, and nothing is said of it.
  write("new", "some text");
  auto appeared = announced(
      FUSE_MKNOD, testing::bytes_of(fuse_mknod_in{S_IFREG | 0644, 0, 0, 0}) + FuseGuest::name("new"));
  EXPECT_GE(appeared.nodeid, means_nothing);
  EXPECT_NE(guest_->node("new"), appeared.nodeid);
  std::filesystem::create_directory(grant_ / "folder");
  EXPECT_GE(
      announced(FUSE_MKDIR, testing::bytes_of(fuse_mkdir_in{0755, 0}) + FuseGuest::name("folder")).nodeid,
      means_nothing);
  std::filesystem::create_symlink("x", grant_ / "link");
  EXPECT_GE(announced(FUSE_SYMLINK, FuseGuest::name("link") + FuseGuest::name("-")).nodeid, means_nothing);
  // Of what was replaced: what it is, where that can be known.
  for (const char* name : {"file", "listed"}) {
    write("new", "replaced it");
    std::filesystem::rename(grant_ / "new", grant_ / name);
  }
  auto before = announced(FUSE_LOOKUP, FuseGuest::name("file"));
  EXPECT_EQ(before.nodeid, known);
  EXPECT_EQ(before.attr.size, 8u);
  before = announced(FUSE_LOOKUP, FuseGuest::name("listed"));
  EXPECT_NE(before.nodeid, listed);
  EXPECT_GE(before.nodeid, means_nothing);
}

}  // namespace
}  // namespace anchorhold::mounts
