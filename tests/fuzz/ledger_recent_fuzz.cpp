// What a ledger finds in its file of latest entries after a crash: half-written, of another version, or made
// up by somebody who knows its check sum. It is parsed, becomes rows, and the session is looked at; nothing
// in the granted folder or beside it may change by that. The first byte of the input says whether the rest is
// the file as it is, or the fields of entries that are written as the keeper writes them, with some bytes cut
// off.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <unistd.h>

#include "base/files.h"
#include "book.h"
#include "ledger.h"
#include "ledger_recent.h"

namespace {

namespace fs = std::filesystem;
using namespace anchorhold;
using namespace anchorhold::mounts;

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  bool empty() const { return size_ == 0; }
  template <typename T>
  T take() {
    T value{};
    std::size_t bytes = std::min(sizeof value, size_);
    std::memcpy(&value, data_, bytes);
    skip(bytes);
    return value;
  }
  std::string text() {
    std::size_t bytes = std::min<std::size_t>(take<std::uint8_t>(), size_);
    std::string taken(reinterpret_cast<const char*>(data_), bytes);
    skip(bytes);
    return taken;
  }
  std::string rest() const { return {reinterpret_cast<const char*>(data_), size_}; }

 private:
  void skip(std::size_t bytes) {
    data_ += bytes;
    size_ -= bytes;
  }
  const std::uint8_t* data_;
  std::size_t size_;
};

std::string text_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class World {
 public:
  World() {
    for (auto folder : {"grant", "grant/folder", "outside", "ledger"}) fs::create_directory(base_ / folder);
    for (auto file : {"grant/file", "grant/folder/file", "outside/file"})
      std::ofstream(base_ / file) << "content";
    root_ = UniqueFd(open((base_ / "grant").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  }

  // The folder's own identity at times, so that an announcement in it can be believed.
  Identity identity(std::uint8_t which) const {
    const char* const paths[] = {"grant", "grant/folder", "grant/file", "outside"};
    UniqueFd fd(open((base_ / paths[which % 4]).c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    auto attributes = attributes_of(fd.get());
    return attributes ? identity_of(*attributes, generation_of(fd.get())) : Identity{};
  }

  void write_as_it_is(const std::string& bytes) {
    std::ofstream(base_ / "ledger/recent", std::ios::binary | std::ios::trunc) << bytes;
  }

  void write_entries(Input& input) {
    std::size_t cut = input.take<std::uint8_t>();
    fs::remove(base_ / "ledger/recent");
    {
      RecentBatch before;
      auto recent = Recent::open(base_ / "ledger", before);
      if (!recent || recent->begin(input.take<std::uint64_t>()) != 0) std::abort();
      for (int i = 0; i < 20 && !input.empty(); ++i)
        if (recent->append(entry(input)) != 0) std::abort();
    }
    auto bytes = text_of(base_ / "ledger/recent");
    bytes.resize(bytes.size() - std::min(cut, bytes.size()));
    write_as_it_is(bytes);
  }

  void recover_and_look() {
    auto parsed = parse_recent(text_of(base_ / "ledger/recent"));
    if (const auto* announced = parsed.announced();
        announced && announced->name.find('/') != std::string::npos)
      std::abort();
    if (auto book = Book::open(base_ / "ledger", database::Database::Mode::read_write))
      (void)book->objects(0);
    // Opened twice: what the first leaves is what the second finds.
    for (int time = 0; time < 2; ++time)
      if (auto ledger = Ledger::open(base_ / "ledger", {}, root_.get()); !ledger) break;
    if (auto book = Book::open(base_ / "ledger", database::Database::Mode::read_only)) (void)book->objects(0);
    for (auto file : {"grant/file", "grant/folder/file", "outside/file"})
      if (text_of(base_ / file) != "content") std::abort();
    auto names = [&](const char* folder) {
      return std::distance(fs::directory_iterator(base_ / folder), {});
    };
    if (names("grant") != 2 || names("outside") != 1 || names("grant/folder") != 1) std::abort();
  }

 private:
  RecentEntry entry(Input& input) {
    RecentEntry entry;
    auto kind = input.take<std::uint8_t>();
    entry.kind = static_cast<RecentEntry::Kind>(kind % 8);
    entry.epoch = input.take<std::int8_t>();
    entry.time_ns = input.take<std::int64_t>();
    entry.id = kind & 0x80 ? input.take<std::int64_t>() : input.take<std::int8_t>();
    entry.identity = identity(kind >> 4);
    if (kind & 0x08) entry.identity.inode = input.take<std::uint64_t>();
    entry.mode = input.take<std::uint32_t>();
    entry.links = input.take<std::uint8_t>();
    entry.size = input.take<std::uint64_t>();
    entry.access_time = {input.take<std::int64_t>(), input.take<std::uint32_t>(), 0};
    entry.modify_time = {input.take<std::int64_t>(), input.take<std::uint32_t>(), 0};
    entry.path = input.text();
    entry.name = input.text();
    return entry;
  }

  TemporaryDirectory directory_ = *TemporaryDirectory::create("anchorhold-recent-fuzz");
  fs::path base_ = directory_.path();
  UniqueFd root_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static std::unique_ptr<World> world;
  static int uses = 0;
  if (size < 1) return 0;
  Input input(data + 1, size - 1);
  if (data[0] & 1) {
    // A ledger that has taken much is slow, and one that took a great batch takes no other.
    if (!world || ++uses % 50 == 0) world = std::make_unique<World>();
    world->write_entries(input);
    world->recover_and_look();
    return 0;
  }
  (void)parse_recent(input.rest());
  if (data[0] & 2) {
    if (!world || ++uses % 50 == 0) world = std::make_unique<World>();
    world->write_as_it_is(input.rest());
    world->recover_and_look();
  }
  return 0;
}
