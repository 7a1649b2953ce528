// A folder of any shape, and a session that does anything to it: through a real keeper, from one seed.
#pragma once

#include <gmock/gmock.h>
#include <random>

#include "keeper_fixture.h"
#include "tree_snapshot.h"

namespace anchorhold::mounts::testing {

class RandomSessionTest : public KeeperTest {
 protected:
  void SetUp() override {
    KeeperTest::SetUp();
    random_.seed(seed());
  }
  static std::uint64_t seed() {
    const char* given = getenv("ANCHORHOLD_TEST_SEED");
    static const std::uint64_t chosen = given ? std::strtoull(given, nullptr, 10) : std::random_device()();
    return chosen;
  }
  void begin_round(std::uint64_t round) {
    random_.seed(seed() + round * 7919);
    std::filesystem::remove_all(directory_->path() / "grant");
    std::filesystem::remove_all(directory_->path() / "ledger");
    std::filesystem::remove_all(directory_->path() / "outside");
    for (const auto& folder : {grant_, ledger_, outside_}) std::filesystem::create_directory(folder);
  }

  std::size_t any(std::size_t below) { return below == 0 ? 0 : random_() % below; }
  bool chance(unsigned percent) { return any(100) < percent; }
  std::string bytes() {
    std::string text(chance(20) ? 5000 + any(200'000) : any(60), '\0');
    for (auto& c : text) c = static_cast<char>('a' + any(26));
    return text;
  }
  void fill(int file) {
    std::string text = bytes();
    (void)write_all(file, std::as_bytes(std::span(text)));
  }
  std::string new_name() { return std::string(1, static_cast<char>('a' + any(8))) + std::to_string(any(3)); }

  // Everything in the grant; folders only on demand.
  std::vector<std::string> entries(bool folders_only = false) {
    std::vector<std::string> found;
    if (folders_only) found.push_back("");
    for (const auto& entry : std::filesystem::recursive_directory_iterator(grant_))
      if (!folders_only || (entry.is_directory() && !entry.is_symlink()))
        found.push_back(entry.path().lexically_relative(grant_).string());
    std::sort(found.begin(), found.end());
    return found;
  }
  std::string any_of(const std::vector<std::string>& all) { return all.empty() ? "" : all[any(all.size())]; }
  static std::string above(const std::string& path) {
    auto slash = path.rfind('/');
    return slash == std::string::npos ? "" : path.substr(0, slash);
  }
  static std::string last(const std::string& path) { return path.substr(path.rfind('/') + 1); }

  void age(const std::filesystem::path& path) {
    timespec times[2] = {
        {static_cast<time_t>(1'000'000'000 + any(500'000'000)), static_cast<long>(any(1'000'000'000))},
        {static_cast<time_t>(1'000'000'000 + any(500'000'000)), static_cast<long>(any(1'000'000'000))}};
    ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW), 0) << path;
  }

  // What is there before the session.
  void make_tree(std::size_t size) {
    namespace fs = std::filesystem;
    for (std::size_t i = 0; i < size; ++i) {
      fs::path folder = grant_ / any_of(entries(true));
      fs::path path = folder / new_name();
      if (fs::exists(fs::symlink_status(path))) continue;
      if (chance(25)) {
        fs::create_directory(path);
        ::chmod(path.c_str(), chance(50) ? 0755 : 0700 | static_cast<mode_t>(any(8)));
      } else if (chance(12)) {
        fs::create_symlink(chance(50) ? "../somewhere" : "/etc/passwd", path);
      } else if (chance(5)) {
        ASSERT_EQ(mknod(path.c_str(), (chance(50) ? S_IFIFO : S_IFSOCK) | 0640, 0), 0) << path;
      } else if (chance(12) && !files().empty()) {
        link(grant_ / any_of(files()), path);
      } else {
        write_text(path, bytes());
        ::chmod(path.c_str(), 0600 | static_cast<mode_t>(any(0200)));
        if (chance(20)) ::setxattr(path.c_str(), "user.before", "value", 5, 0);
        if (chance(10)) fs::create_hard_link(path, outside_ / std::to_string(i));
      }
    }
    // From the bottom up, so that no folder's times change after they were set.
    auto all = entries();
    for (auto at = all.rbegin(); at != all.rend(); ++at) age(grant_ / *at);
    age(grant_);
  }
  std::vector<std::string> files() {
    std::vector<std::string> found;
    for (const auto& path : entries())
      if (std::filesystem::is_regular_file(std::filesystem::symlink_status(grant_ / path)))
        found.push_back(path);
    return found;
  }
  static void link(const std::filesystem::path& from, const std::filesystem::path& to) {
    std::error_code ignored;
    std::filesystem::create_hard_link(from, to, ignored);
  }

  // One thing a session may do; the keeper may refuse it.
  void act() {
    std::string path = any_of(entries()), folder = any_of(entries(true)), name = new_name();
    if (path.empty()) path = "nothing";
    // Several clients of a folder do not see each other's last moment.
    UniqueFd object(open((grant_ / path).c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    switch (any(14)) {
      case 0:
      case 1: {
        auto made = create(folder, name, open_flag::exclusive | open_flag::read_too,
                           0600 | static_cast<unsigned>(any(0200)));
        if (made.error == 0) fill(made.descriptor.get());
        break;
      }
      case 2:
        mkdir(folder, name);
        break;
      case 3:
        symlink(folder, name, chance(50) ? "target" : "../../out");
        break;
      case 4:
        if (object) ask(make_request(Verb::link, name), {object.get(), at(folder).get()});
        break;
      case 5:
        if (object) ask(make_request(Verb::unlink, last(path)), {at(above(path)).get()});
        break;
      case 6:
        remove_all(path);
        break;
      case 7:
      case 8:
        rename(above(path), last(path), folder, name, chance(20) ? rename_flag::exchange : 0);
        break;
      case 9: {
        // As editors save: a new file takes the place of the old one.
        auto made = create(above(path), "save.tmp");
        if (made.error == 0) fill(made.descriptor.get());
        rename(above(path), "save.tmp", above(path), last(path));
        break;
      }
      case 10:
      case 11: {
        if (!object) break;
        auto request = make_request(Verb::open_for_write);
        request.flags = chance(30) ? open_flag::truncate : chance(30) ? open_flag::append : 0;
        auto opened = ask(request, {object.get()});
        if (opened.error == 0) fill(opened.descriptor.get());
        break;
      }
      case 12:
        if (object && chance(50)) {
          auto request = make_request(Verb::truncate);
          request.size = any(9000);
          ask(request, {object.get()});
        } else if (object) {
          ask(make_request(chance(60) ? Verb::set_xattr : Verb::remove_xattr,
                           chance(50) ? "user.before" : "user.new"),
              {object.get()}, "v");
        }
        break;
      default: {
        if (!object) break;
        auto request = make_request(Verb::set_attributes);
        request.valid = chance(50) ? valid_flag::mode : valid_flag::modify_time;
        if (request.valid == valid_flag::mode)
          request.mode = 0700 | static_cast<unsigned>(any(64));
        else
          request.modify_time = {static_cast<std::int64_t>(any(2'000'000'000)), 5, 0};
        ask(request, {object.get()});
      }
    }
  }
  void remove_all(const std::string& path) {
    namespace fs = std::filesystem;
    if (!fs::is_directory(fs::symlink_status(grant_ / path))) return;
    std::vector<std::string> below;
    for (const auto& entry : fs::recursive_directory_iterator(grant_ / path))
      below.push_back(entry.path().lexically_relative(grant_).string());
    std::sort(below.rbegin(), below.rend());
    below.push_back(path);
    for (const auto& each : below) {
      bool folder = fs::is_directory(fs::symlink_status(grant_ / each));
      ask(make_request(folder ? Verb::remove_directory : Verb::unlink, last(each)), {at(above(each)).get()});
    }
  }
  void end_keeper() {
    client_ = std::make_unique<KeeperClient>(UniqueFd());
    keeper_->sockets.clear();
    auto status = keeper_->child->wait(patience);
    ASSERT_TRUE(status);
    EXPECT_TRUE(status->ok()) << to_string(*status);
  }

  std::mt19937_64 random_;
};

}  // namespace anchorhold::mounts::testing
