// Whatever a client sends: first the message alone, then carried out by a keeper on a small folder, in both
// modes. The first byte of the input picks the mode and the descriptors that come with the message; nothing
// outside may ever change.
#include <cstdint>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"
#include "keeper.h"
#include "mounts/keeper_protocol.h"

namespace {

namespace fs = std::filesystem;
using namespace anchorhold;
using namespace anchorhold::mounts;

// A folder and its two keepers, made anew when it has been changed often enough to be full of leftovers.
class World {
 public:
  World() {
    auto base = directory_.path();
    for (auto folder : {"grant", "grant/folder", "outside", "ledger-rw", "ledger-no-delete"})
      fs::create_directory(base / folder);
    for (auto file : {"grant/file", "grant/.env", "outside/victim"}) std::ofstream(base / file) << "content";
    fs::create_directory_symlink(base / "outside", base / "grant/link");
    auto null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    reporter_ = std::make_unique<Reporter>(UniqueFd(null));
    rw_ = make(Mode::rw, "ledger-rw");
    no_delete_ = make(Mode::rw_no_delete, "ledger-no-delete");
  }

  Keeper& keeper(bool no_delete) { return no_delete ? *no_delete_ : *rw_; }
  UniqueFd descriptor(unsigned which) {
    const char* const paths[] = {"grant",      "grant/folder", "grant/file",     "grant/link",
                                 "grant/.env", "outside",      "outside/victim", "."};
    return UniqueFd(open((directory_.path() / paths[which % 8]).c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  }
  void check() {
    std::ifstream in(directory_.path() / "outside/victim");
    std::string text(std::istreambuf_iterator<char>(in), {});
    if (text != "content" || std::distance(fs::directory_iterator(directory_.path() / "outside"), {}) != 1)
      std::abort();
    std::ifstream hidden(directory_.path() / "grant/.env");
    if (std::string(std::istreambuf_iterator<char>(hidden), {}) != "content") std::abort();
  }

 private:
  std::unique_ptr<Keeper> make(Mode mode, const char* ledger_folder) {
    auto tree = Tree::open(descriptor(0), HiddenNames::standard(), std::nullopt);
    auto ledger = Ledger::open(directory_.path() / ledger_folder, {}, tree ? tree->root() : -1);
    if (!tree || !ledger) std::abort();
    // The guard would soon refuse everything.
    KeeperLimits limits;
    limits.bulk.changes = 0;
    return std::make_unique<Keeper>(mode, std::move(*tree), std::move(*ledger), *reporter_, limits);
  }

  TemporaryDirectory directory_ = *TemporaryDirectory::create("anchorhold-keeper-fuzz");
  std::unique_ptr<Reporter> reporter_;
  std::unique_ptr<Keeper> rw_, no_delete_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static std::unique_ptr<World> world;
  static int uses = 0;
  if (size < 1) return 0;
  auto message = std::as_bytes(std::span(data + 1, size - 1));
  for (std::size_t count = 0; count <= max_request_descriptors; ++count) {
    auto request = parse_request(message, count);
    if (!request) continue;
    // A file of the greatest size would only test the disk.
    if (request->header.size > (1u << 20) || request->header.offset > (1u << 20)) continue;
    if (!world || ++uses % 2000 == 0) world = std::make_unique<World>();
    std::vector<UniqueFd> descriptors;
    for (std::size_t i = 0; i < count; ++i) {
      descriptors.push_back(world->descriptor((data[0] >> (1 + 3 * i)) & 7u));
      if (!descriptors.back()) return 0;
    }
    auto answer = world->keeper(data[0] & 1).handle(*request, descriptors);
    if (answer.reply.id != request->header.id || (answer.reply.error != 0 && answer.descriptor)) std::abort();
    world->check();
  }
  return 0;
}
