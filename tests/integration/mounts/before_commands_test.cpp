// What was changed on the host before a command was started is what the command sees, however shortly before:
// what the guest remembers of names, listings, sizes and contents is put right first.
#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <map>
#include <set>
#include <signal.h>

#include "coherence.h"

namespace anchorhold::mounts {
namespace {

namespace fs = std::filesystem;

// A folder of the host, what is in it, and what a command of the guest has to say of it.
class Folder {
 public:
  Folder(const fs::path& path, std::string guest_path, const FileAccess& tool)
      : path_(path), guest_path_(std::move(guest_path)), tool_(tool) {
    fs::create_directories(path_ / "below");
  }

  static constexpr std::array<const char*, 5> names = {"a", "b", "c", "below/d", "below/e"};

  // All that may be remembered of it: listings, what is there and what is not, and what it holds up to which
  // size. By programs that start fast: a slow one gives the guest time to learn of changes by itself.
  std::vector<std::string> list() const { return {"ls", guest_path_, guest_path_ + "/below"}; }
  std::string listed() const {
    std::set<std::string> top{"below"}, below;
    for (const auto& [name, text] : texts_)
      name.starts_with("below/") ? below.insert(name.substr(6)) : top.insert(name);
    return fmt::format("{0}:\n{1}\n\n{0}/below:\n{2}{3}", guest_path_, fmt::join(top, "\n"),
                       fmt::join(below, "\n"), below.empty() ? "" : "\n");
  }
  std::vector<std::string> read() const {
    std::vector<std::string> command{"cat"};
    for (const std::string name : names) command.push_back(guest_path_ + "/" + name);
    return command;
  }
  std::string texts() const {
    std::string texts;
    for (const std::string name : names) {
      auto found = texts_.find(name);
      texts += found != texts_.end()
                   ? found->second
                   : fmt::format("cat: {}/{}: No such file or directory\n", guest_path_, name);
    }
    return texts;
  }

  // One change, by a program of the host or by the session's file tool.
  void change(unsigned random) {
    const std::string name = names[random % std::size(names)], other = names[random / 8 % std::size(names)];
    const std::string text = fmt::format("text {:08x}\n", random);
    const bool is_there = texts_.contains(name);
    switch (random / 64 % 8) {
      case 0:
      case 1:
        EXPECT_TRUE(tool_.write(guest_path_ + "/" + name, texts_[name] = text));
        return;
      case 2:
        return replace(path_ / name, texts_[name] = text);
      case 3:  // longer, shorter or of the same size
        return write_in_place(path_ / name, texts_[name] = std::string(1 + random % 40, 'w') + "\n");
      case 4:
        std::ofstream(path_ / name, std::ios::app) << text;
        texts_[name] += text;
        return;
      case 5:
        if (!is_there || name == other) return;
        fs::rename(path_ / name, path_ / other);
        texts_[other] = texts_[name];
        texts_.erase(name);
        return;
      default:
        fs::remove(path_ / name);
        texts_.erase(name);
    }
  }
  // By the guest itself: while that is news, it is not clear who changed the file next.
  std::vector<std::string> own(unsigned random) {
    const std::string name = names[random % std::size(names)], path = guest_path_ + "/" + name;
    if (random / 8 % 3 == 0) {
      texts_.erase(name);
      return {"rm", "-f", path};
    }
    texts_[name] = fmt::format("own {:08x}\n", random);
    return {"sh", "-c", fmt::format("echo own {:08x} > {}", random, path)};
  }
  // Much that is to be told first.
  void much(int round) {
    for (int i = 0; i < 30; ++i) write_in_place(path_ / fmt::format(".file{}", i), std::to_string(round));
  }

 private:
  const fs::path path_;
  const std::string guest_path_;
  const FileAccess& tool_;
  std::map<std::string, std::string> texts_;
};

// In the same folder and beside it, for as long as it lives: programs of the guest that make and remove
// files, so that most of what is reported is the guest's own, and some of it not clearly so.
constexpr const char* builder = R"sh(
mkdir -p "$0" && cd "$0" && for ((i = 0; ; ++i)); do
  for name in one two three four; do echo "$i $name" > $name.o.tmp; echo more >> $name.o.tmp; mv $name.o.tmp $name.o; done
  cat *.o > whole; rm -f *.o
done
)sh";

TEST_F(Coherence, ACommandSeesWhatWasChangedBeforeItStarted) {
  Folder folder(guest_->folder("commands") / "here", "/mnt/commands/here", guest_->session().files());
  std::vector<ExecId> builders;
  std::uint32_t state = 1;
  auto random = [&state] { return (state = state * 1664525 + 1013904223) >> 8; };
  int stale = 0;
  constexpr int rounds = 300, quiet = 220;
  for (int round = 0; round < rounds; ++round) {
    if (round == quiet)
      for (const char* place : {"/mnt/commands/built", "/mnt/commands/here/below/.built"}) {
        session::BackgroundSpec spec;
        spec.exec.argv = {"bash", "-c", builder, place};
        auto started = guest_->session().start_background(guest_->guest(), spec);
        ASSERT_TRUE(started && !started->failed);
        builders.push_back(started->id);
      }
    auto number = random();
    if (round % 4 == 0) {
      EXPECT_EQ(guest_->command(folder.own(number)).output, "");
      folder.change(number);  // the same file
    }
    if (round % 4 == 1) folder.much(round);
    for (int changes = round % 3; changes >= 0; --changes) folder.change(random());
    const bool lists = round % 2 == 0;
    const auto wanted = lists ? folder.listed() : folder.texts();
    const auto said = guest_->command(lists ? folder.list() : folder.read());
    if (said.output == wanted) continue;
    if (++stale <= 5) ADD_FAILURE() << "round " << round << ":\n" << said.output << "instead of\n" << wanted;
  }
  EXPECT_EQ(stale, 0) << "of " << rounds << " commands saw what was before";
  for (const auto& id : builders) EXPECT_TRUE(guest_->client().kill_background(id, /*forget=*/true));
}

// It can hold up a command for a while, and no longer.
TEST_F(Coherence, AReaderThatAnswersNothingHoldsUpNoCommandForEver) {
  auto readers = anchorhold::testing::children_named(getpid(), "anchorhold-fsd");
  ASSERT_EQ(readers.size(), 4u);
  for (pid_t reader : readers) ASSERT_EQ(kill(reader, SIGSTOP), 0);
  auto said = guest_->command({"echo", "started"}, "/");
  for (pid_t reader : readers) ASSERT_EQ(kill(reader, SIGCONT), 0);
  EXPECT_EQ(said.output, "started\n");
  EXPECT_EQ(guest_->command({"ls", "/mnt/read"}).status, 0);
}

}  // namespace
}  // namespace anchorhold::mounts
