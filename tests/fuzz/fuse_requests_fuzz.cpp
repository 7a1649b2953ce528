// A guest that says anything it likes: a series of FUSE requests against a real folder, through the
// dispatcher, with a keeper that grants everything. Node ids and handles that were given out can be named, so
// that requests get somewhere.
//
// The input is a series of records: operation, node (an index of those given out, or 255: as in the bytes),
// flags, room / 32, length of the arguments (two bytes, little endian), the arguments. Flags: 1 the arguments
// begin with a handle given out, 2 the header's length lies, 4 the request lies in pieces, 8 there is no room
// for an answer, 16 it is an announcement.
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <sys/socket.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "base/files.h"
#include "base/guest_numbers.h"
#include "mounts/keeper_client.h"
#include "reader/dispatcher.h"

namespace {

using namespace anchorhold;
using namespace anchorhold::mounts;

// Says yes to all it is asked, and hands out the one writable file.
void grant_everything(int socket, std::string file) {
  std::vector<std::byte> buffer(sizeof(RequestHeader) + max_payload_bytes);
  for (;;) {
    auto received = receive_with_descriptors(socket, buffer);
    if (!received || received->size == 0) return;
    auto request = parse_request(std::span(buffer).first(received->size), received->descriptors.size());
    if (!request) std::abort();  // the reader never asks what is no request
    Reply reply{};
    reply.magic = keeper_magic;
    reply.id = request->header.id;
    UniqueFd fd;
    std::vector<int> descriptors;
    if (request->header.verb == Verb::create || request->header.verb == Verb::open_for_write) {
      fd.reset(open(file.c_str(), O_RDWR | O_CLOEXEC));
      descriptors = {fd.get()};
      reply.descriptors = 1;
    }
    if (!send_with_descriptors(socket, std::as_bytes(std::span(&reply, 1)), descriptors)) return;
  }
}

struct World {
  World()
      : directory(*TemporaryDirectory::create("anchorhold-fuzz-fuse")),
        reports(*socket_pair(SOCK_SEQPACKET)) {
    auto root = directory.path() / "grant";
    std::filesystem::create_directories(root / "folder" / "deeper");
    for (const char* name : {"file", "folder/one", "folder/deeper/two", ".env"})
      std::ofstream(root / name) << "content of " << name;
    std::filesystem::create_symlink("file", root / "link");
    (void)mkfifo((root / "fifo").c_str(), 0600);
    auto sockets = *socket_pair(SOCK_SEQPACKET);
    theirs = std::move(sockets.second);
    keeper_thread = std::thread(grant_everything, theirs.get(), (root / "file").string());
    keeper.emplace(std::move(sockets.first));
    reporter.emplace(std::move(reports.first));
    notices.emplace(*reporter);
    FileSystemSpec spec;
    spec.root.reset(open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    spec.own_descriptors.reset(open("/proc/self/fd", O_PATH | O_DIRECTORY | O_CLOEXEC));
    spec.keeper = &*keeper;
    spec.nodes = {.nodes = 64, .descriptors = 4};
    spec.handles = 16;
    files = *FileSystem::create(std::move(spec), *notices);
    dispatcher.emplace(*files, Owners(1234, {1234}), *notices);
  }
  ~World() {
    keeper.reset();
    keeper_thread.join();
  }
  TemporaryDirectory directory;
  std::pair<UniqueFd, UniqueFd> reports;
  UniqueFd theirs;
  std::thread keeper_thread;
  std::optional<KeeperClient> keeper;
  std::optional<Reporter> reporter;
  std::optional<Notices> notices;
  std::unique_ptr<FileSystem> files;
  std::optional<Dispatcher> dispatcher;
  Scratch scratch;
};

struct Record {
  std::uint8_t operation, node, flags, room;
  std::uint16_t size;
};

class Guest {
 public:
  explicit Guest(World& world) : world_(world) {
    fuse_init_in in{};
    in.major = 7;
    in.minor = 31;
    send(FUSE_INIT, 0, std::string(reinterpret_cast<const char*>(&in), sizeof in), {}, 128);
  }

  // False: the device ended.
  bool send(std::uint32_t operation, std::uint64_t node, std::string arguments, Record record,
            std::size_t room) {
    fuse_in_header header{};
    header.len = static_cast<std::uint32_t>(sizeof header + arguments.size());
    if (record.flags & 2) header.len += record.room;
    header.opcode = operation;
    header.nodeid = node;
    if (record.flags & 16) header.gid = announcing_group + record.flags % 2;
    std::vector<char> in(sizeof header + arguments.size()), out(room);
    std::memcpy(in.data(), &header, sizeof header);
    std::copy(arguments.begin(), arguments.end(), in.begin() + sizeof header);
    std::vector<iovec> readable, writable;
    std::size_t first = record.flags & 4 ? in.size() / 3 : in.size();
    readable.push_back({in.data(), first});
    if (first < in.size()) readable.push_back({in.data() + first, in.size() - first});
    if (room > 0) writable.push_back({out.data(), room});
    RequestBuffers buffers{readable, in.size(), writable, room};
    auto written = world_.dispatcher->serve(buffers, world_.scratch);
    if (!written) return false;
    if (!*written || **written > room) std::abort();
    learn(operation, out, **written);
    return true;
  }

  std::uint64_t node(std::uint8_t index) const { return index < nodes_.size() ? nodes_[index] : index; }
  std::uint64_t handle(std::uint8_t index) const {
    return handles_.empty() ? 0 : handles_[index % handles_.size()];
  }

 private:
  void learn(std::uint32_t operation, const std::vector<char>& out, std::uint32_t written) {
    fuse_out_header header;
    if (written <= sizeof header) return;
    const char* payload = out.data() + sizeof header;
    std::uint64_t value;
    if (operation == FUSE_LOOKUP || operation == FUSE_CREATE || operation == FUSE_MKDIR) {
      std::memcpy(&value, payload, sizeof value);
      nodes_.push_back(value);
    }
    if (operation == FUSE_CREATE) payload += sizeof(fuse_entry_out);
    if (operation == FUSE_CREATE || operation == FUSE_OPEN || operation == FUSE_OPENDIR) {
      std::memcpy(&value, payload, sizeof value);
      handles_.push_back(value);
    }
  }
  World& world_;
  std::vector<std::uint64_t> nodes_{FUSE_ROOT_ID};
  std::vector<std::uint64_t> handles_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static World world;
  Guest guest(world);
  for (int count = 0; count < 64 && size >= 6; ++count) {
    Record record{data[0], data[1], data[2], data[3], static_cast<std::uint16_t>(data[4] | data[5] << 8)};
    data += 6;
    size -= 6;
    std::size_t length = std::min<std::size_t>(record.size, size);
    std::string arguments(reinterpret_cast<const char*>(data), length);
    data += length;
    size -= length;
    if ((record.flags & 1) && arguments.size() >= 8) {
      std::uint64_t handle = guest.handle(static_cast<std::uint8_t>(arguments[0]));
      std::memcpy(arguments.data(), &handle, sizeof handle);
    }
    std::size_t room = record.flags & 8 ? 0 : 16 + record.room * 32u;
    if (!guest.send(record.operation, guest.node(record.node), std::move(arguments), record, room)) break;
  }
  return 0;
}
