// A real reader process, with a real keeper where changes are allowed, and a guest that speaks FUSE to it
// through rings in shared memory, without a virtual machine.
#pragma once

#include <linux/fuse.h>
#include <map>
#include <set>
#include <sys/un.h>

#include "front_end.h"
#include "keeper_fixture.h"

namespace anchorhold::mounts::testing {

using vsock::testing::FrontEnd;

template <typename T>
std::string bytes_of(const T& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

// The driver of a guest. Requests are bytes, so that a test can send what no kernel would.
class FuseGuest {
 public:
  static constexpr unsigned urgent = 0, requests = 1;
  static constexpr unsigned slots = 24;
  static constexpr std::size_t slot_bytes = 0x28000;  // 160 KiB each way

  struct Reply {
    bool answered =
        false;      // false: the device closed the connection, or gave the chain back without an answer
    int error = 0;  // errno value
    std::string payload;
    template <typename T>
    T as() const {
      T value{};
      EXPECT_GE(payload.size(), sizeof value);
      payload.copy(reinterpret_cast<char*>(&value), sizeof value);
      return value;
    }
  };

  explicit FuseGuest(UniqueFd connection) : front_end(std::move(connection)) {
    front_end.negotiate();
    for (unsigned slot = 0; slot < slots; ++slot) free_.insert(slot);
  }

  static std::string request(std::uint32_t opcode, std::uint64_t node, std::string_view arguments,
                             std::uint64_t unique = 1) {
    fuse_in_header header{};
    header.len = static_cast<std::uint32_t>(sizeof header + arguments.size());
    header.opcode = opcode;
    header.unique = unique;
    header.nodeid = node;
    return bytes_of(header).append(arguments);
  }

  // Puts a request on a ring as it is; wait() has the answer.
  unsigned submit(std::string_view bytes, std::size_t room, unsigned ring = requests) {
    unsigned slot = *free_.begin();
    free_.erase(free_.begin());
    std::size_t in = 0x100000 + slot * slot_bytes, out = 0x800000 + slot * slot_bytes;
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(front_end.memory()) + in);
    std::memset(front_end.memory() + out, 0, std::min<std::size_t>(room, slot_bytes));
    auto head = static_cast<std::uint16_t>(slot * 2);
    auto flags = static_cast<std::uint16_t>(room > 0 ? vsock::testing::flag_next : 0);
    front_end.descriptor(ring, head) = {FrontEnd::guest_base + in, static_cast<std::uint32_t>(bytes.size()),
                                        flags, static_cast<std::uint16_t>(head + 1)};
    front_end.descriptor(ring, head + 1u) = {FrontEnd::guest_base + out, static_cast<std::uint32_t>(room),
                                             vsock::testing::flag_write, 0};
    front_end.offer(ring, head);
    return slot;
  }

  Reply wait(unsigned slot, unsigned ring = requests) {
    while (!collect(ring) || !done_[ring].count(slot)) {
      if (done_[ring].count(slot)) break;
      if (!front_end.wait_used(ring, seen_[ring])) return {};
    }
    std::uint32_t length = done_[ring][slot];
    done_[ring].erase(slot);
    free_.insert(slot);
    Reply reply;
    if (length < sizeof(fuse_out_header)) return reply;
    const char* out = reinterpret_cast<const char*>(front_end.memory()) + 0x800000 + slot * slot_bytes;
    fuse_out_header header;
    std::memcpy(&header, out, sizeof header);
    EXPECT_EQ(header.len, length);
    reply.answered = true;
    reply.error = -header.error;
    reply.payload.assign(out + sizeof header, length - sizeof header);
    return reply;
  }

  bool is_answered(unsigned slot, unsigned ring = requests) {
    collect(ring);
    return done_[ring].count(slot) > 0;
  }

  Reply send(std::string_view bytes, std::size_t room = 4096, unsigned ring = requests) {
    return wait(submit(bytes, room, ring), ring);
  }

  Reply ask(std::uint32_t opcode, std::uint64_t node, std::string_view arguments = {},
            std::size_t room = 4096) {
    auto bytes = request(opcode, node, arguments);
    std::memcpy(bytes.data() + offsetof(fuse_in_header, gid), &group, sizeof group);
    return send(bytes, room);
  }

  Reply init(std::uint32_t minor = 36, std::uint32_t flags = ~0u, std::uint32_t flags2 = 0) {
    fuse_init_in in{};
    in.major = 7;
    in.minor = minor;
    in.max_readahead = 1u << 20;
    in.flags = flags;
    in.flags2 = flags2;
    return ask(FUSE_INIT, 0, bytes_of(in));
  }

  static std::string name(std::string_view text) { return std::string(text).append(1, '\0'); }

  Reply lookup(std::uint64_t parent, std::string_view text) { return ask(FUSE_LOOKUP, parent, name(text)); }
  // The node at a path below the root; 0 when there is none.
  std::uint64_t node(std::string_view path) {
    std::uint64_t at = FUSE_ROOT_ID;
    while (!path.empty()) {
      auto part = path.substr(0, path.find('/'));
      auto reply = lookup(at, part);
      if (!reply.answered || reply.error != 0) return 0;
      at = reply.as<fuse_entry_out>().nodeid;
      path.remove_prefix(std::min(path.size(), part.size() + 1));
    }
    return at;
  }
  Reply attributes(std::uint64_t node) { return ask(FUSE_GETATTR, node, bytes_of(fuse_getattr_in{})); }
  Reply open(std::uint64_t node, std::uint32_t flags, std::uint32_t opcode = FUSE_OPEN) {
    fuse_open_in in{};
    in.flags = flags;
    return ask(opcode, node, bytes_of(in));
  }
  std::uint64_t handle(std::uint64_t node, std::uint32_t flags, std::uint32_t opcode = FUSE_OPEN) {
    auto reply = open(node, flags, opcode);
    EXPECT_EQ(reply.error, 0);
    return reply.error ? 0 : reply.as<fuse_open_out>().fh;
  }
  void release(std::uint64_t handle) {
    fuse_release_in in{};
    in.fh = handle;
    EXPECT_EQ(ask(FUSE_RELEASE, 0, bytes_of(in)).error, 0);
  }
  static std::string read_arguments(std::uint64_t handle, std::uint64_t offset, std::uint32_t size) {
    fuse_read_in in{};
    in.fh = handle;
    in.offset = offset;
    in.size = size;
    return bytes_of(in);
  }
  Reply read(std::uint64_t handle, std::uint64_t offset, std::uint32_t size) {
    return ask(FUSE_READ, 0, read_arguments(handle, offset, size), sizeof(fuse_out_header) + size);
  }
  Reply write(std::uint64_t handle, std::uint64_t offset, std::string_view data, std::uint32_t open_flags = 0,
              std::uint32_t write_flags = 0) {
    fuse_write_in in{};
    in.fh = handle;
    in.offset = offset;
    in.size = static_cast<std::uint32_t>(data.size());
    in.flags = open_flags;
    in.write_flags = write_flags;
    return ask(FUSE_WRITE, 0, bytes_of(in).append(data));
  }
  Reply create(std::uint64_t parent, std::string_view text, std::uint32_t flags, std::uint32_t mode = 0644) {
    fuse_create_in in{};
    in.flags = flags;
    in.mode = mode | S_IFREG;
    return ask(FUSE_CREATE, parent, bytes_of(in) + name(text));
  }
  Reply make_folder(std::uint64_t parent, std::string_view text, std::uint32_t mode = 0755) {
    fuse_mkdir_in in{};
    in.mode = mode;
    return ask(FUSE_MKDIR, parent, bytes_of(in) + name(text));
  }
  Reply make_node(std::uint64_t parent, std::string_view text, std::uint32_t mode, std::uint32_t device = 0) {
    fuse_mknod_in in{};
    in.mode = mode;
    in.rdev = device;
    return ask(FUSE_MKNOD, parent, bytes_of(in) + name(text));
  }
  Reply rename(std::uint64_t parent, std::string_view text, std::uint64_t to, std::string_view new_text,
               std::uint32_t flags = 0) {
    fuse_rename2_in in{};
    in.newdir = to;
    in.flags = flags;
    return ask(FUSE_RENAME2, parent, bytes_of(in) + name(text) + name(new_text));
  }
  Reply link(std::uint64_t node, std::uint64_t parent, std::string_view text) {
    fuse_link_in in{};
    in.oldnodeid = node;
    return ask(FUSE_LINK, parent, bytes_of(in) + name(text));
  }
  Reply set_size(std::uint64_t node, std::uint64_t size) {
    fuse_setattr_in in{};
    in.valid = FATTR_SIZE;
    in.size = size;
    return ask(FUSE_SETATTR, node, bytes_of(in));
  }
  Reply get_xattr(std::uint64_t node, std::string_view text, std::uint32_t size) {
    fuse_getxattr_in in{};
    in.size = size;
    return ask(FUSE_GETXATTR, node, bytes_of(in) + name(text));
  }
  // A forget has no answer; the chain comes back empty.
  void forget(std::uint64_t node, std::uint64_t lookups = 1) {
    fuse_forget_in in{};
    in.nlookup = lookups;
    EXPECT_FALSE(send(request(FUSE_FORGET, node, bytes_of(in)), 0, urgent).answered);
  }
  // Names of a whole folder, by READDIR or READDIRPLUS, in pages of the given size.
  std::map<std::string, std::uint64_t> list(std::uint64_t node, std::uint32_t opcode,
                                            std::uint32_t page = 4096);

  FrontEnd front_end;
  std::uint32_t group = 0;  // of those who ask

 private:
  bool collect(unsigned ring) {
    bool any = false;
    while (seen_[ring] != front_end.used_index(ring)) {
      const auto* element = &front_end.at<std::uint32_t>(FrontEnd::ring_offset(ring) + 0x2004 +
                                                         8 * (seen_[ring] % FrontEnd::entries));
      done_[ring][element[0] / 2] = element[1];
      ++seen_[ring];
      any = true;
    }
    return any;
  }
  std::set<unsigned> free_;
  std::map<unsigned, std::uint32_t> done_[2];
  std::uint16_t seen_[2] = {};
};

inline std::map<std::string, std::uint64_t> FuseGuest::list(std::uint64_t folder, std::uint32_t opcode,
                                                            std::uint32_t page) {
  std::map<std::string, std::uint64_t> names;
  auto open_handle = handle(folder, 0, FUSE_OPENDIR);
  for (std::uint64_t position = 0;;) {
    auto reply =
        ask(opcode, folder, read_arguments(open_handle, position, page), sizeof(fuse_out_header) + page);
    EXPECT_EQ(reply.error, 0);
    if (reply.error != 0 || reply.payload.empty()) break;
    for (std::size_t at = 0; at < reply.payload.size();) {
      std::uint64_t id = 0;
      if (opcode == FUSE_READDIRPLUS) {
        fuse_entry_out entry;
        std::memcpy(&entry, reply.payload.data() + at, sizeof entry);
        id = entry.nodeid;
        at += sizeof entry;
      }
      fuse_dirent dirent;
      std::memcpy(&dirent, reply.payload.data() + at, FUSE_NAME_OFFSET);
      std::string text(reply.payload, at + FUSE_NAME_OFFSET, dirent.namelen);
      EXPECT_TRUE(names.emplace(text, id).second) << text << " is listed twice";
      position = dirent.off;
      at += FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + dirent.namelen);
    }
  }
  fuse_release_in release{};
  release.fh = open_handle;
  EXPECT_EQ(ask(FUSE_RELEASEDIR, folder, bytes_of(release)).error, 0);
  return names;
}

class ReaderProcess {
 public:
  // Ready and sealed when it returns; nullptr (with a failed expectation) otherwise.
  static std::unique_ptr<ReaderProcess> start(const std::filesystem::path& grant,
                                              const std::filesystem::path& folder, Mode mode, int keeper,
                                              std::vector<std::string> arguments = {},
                                              const std::vector<PassedDescriptor>& more = {}) {
    auto reader = std::make_unique<ReaderProcess>();
    UniqueFd root(open(grant.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    reader->socket_path = folder / "reader.socket";
    std::filesystem::remove(reader->socket_path);
    UniqueFd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    reader->socket_path.string().copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(listen(listener.get(), 1), 0);
    auto reports = socket_pair(SOCK_SEQPACKET);
    reader->reports = std::move(reports->first);
    SpawnSpec spec;
    spec.argv = {std::string(ANCHORHOLD_PROGRAM_DIR) + "/anchorhold-fsd", "--name", "test", "--mode",
                 std::string(to_string(mode))};
    spec.argv.insert(spec.argv.end(), arguments.begin(), arguments.end());
    spec.descriptors = {{2, 2},
                        {listener.get(), reader_fd::listener},
                        {root.get(), reader_fd::root},
                        {reports->second.get(), reader_fd::reports}};
    if (keeper >= 0) spec.descriptors.push_back({keeper, reader_fd::keeper});
    spec.descriptors.insert(spec.descriptors.end(), more.begin(), more.end());
    auto child = Child::spawn(spec);
    EXPECT_TRUE(child) << child.error().message;
    if (!child) return nullptr;
    reader->child = std::make_unique<Child>(std::move(*child));
    reports->second.reset();
    auto ready = reader->next_report();
    EXPECT_TRUE(ready && ready->kind == ReportKind::ready) << (ready ? ready->reason : "the reader is gone");
    return reader;
  }

  std::optional<Report> next_report() {
    auto report = receive_report(reports.get());
    return report ? *report : std::nullopt;
  }

  std::filesystem::path socket_path;
  UniqueFd reports;
  std::unique_ptr<Child> child;
};

class ReaderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = TemporaryDirectory::create("anchorhold-reader-test");
    ASSERT_TRUE(made);
    directory_ = std::make_unique<TemporaryDirectory>(std::move(*made));
    grant_ = directory_->path() / "grant";
    for (const char* name : {"grant", "ledger", "outside"})
      ASSERT_TRUE(std::filesystem::create_directory(directory_->path() / name));
  }

  void start(Mode mode, std::vector<std::string> arguments = {}) {
    guest_.reset();
    reader_.reset();
    keeper_.reset();
    int socket = -1;
    if (mode != Mode::ro) {
      auto of_keeper = arguments;
      of_keeper.insert(of_keeper.end(), keeper_arguments_.begin(), keeper_arguments_.end());
      keeper_ = KeeperProcess::start(grant_, directory_->path() / "ledger",
                                     {.mode = mode, .clients = 1, .arguments = of_keeper});
      ASSERT_TRUE(keeper_);
      auto ready = keeper_->next_report();
      ASSERT_TRUE(ready && ready->kind == ReportKind::ready);
      socket = keeper_->sockets[0].get();
    }
    auto of_reader = arguments;
    for (const auto& argument : reader_arguments_) of_reader.push_back(argument);
    reader_ = ReaderProcess::start(grant_, directory_->path(), mode, socket, of_reader, reader_descriptors_);
    ASSERT_TRUE(reader_);
    if (keeper_) keeper_->sockets.clear();
    guest_ = std::make_unique<FuseGuest>(connect());
  }
  // And the first request of a guest.
  void boot(Mode mode, std::vector<std::string> arguments = {}) {
    start(mode, std::move(arguments));
    auto reply = guest_->init();
    ASSERT_TRUE(reply.answered);
    ASSERT_EQ(reply.error, 0);
  }

  UniqueFd connect() {
    UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    reader_->socket_path.string().copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return fd;
  }

  // The next report of this kind; skips others.
  std::optional<Report> report_of(ReportKind kind) {
    while (auto report = reader_->next_report())
      if (report->kind == kind) return report;
    return std::nullopt;
  }

  std::unique_ptr<TemporaryDirectory> directory_;
  std::filesystem::path grant_;
  std::vector<std::string> reader_arguments_, keeper_arguments_;  // of one alone
  std::vector<PassedDescriptor> reader_descriptors_;
  std::unique_ptr<KeeperProcess> keeper_;
  std::unique_ptr<ReaderProcess> reader_;
  std::unique_ptr<FuseGuest> guest_;
};

}  // namespace anchorhold::mounts::testing
