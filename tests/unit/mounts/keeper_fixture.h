// A real keeper process over a folder of its own, and short ways to ask it.
#pragma once

#include <chrono>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "base/fd.h"
#include "base/files.h"
#include "base/process.h"
#include "mounts/keeper_client.h"
#include "mounts/keeper_protocol.h"
#include "mounts/mode.h"
#include "mounts/programs.h"
#include "mounts/report.h"

namespace anchorhold::mounts::testing {

inline constexpr std::chrono::seconds patience{60};

inline void write_text(const std::filesystem::path& path, std::string_view text) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
  ASSERT_TRUE(out.good()) << path;
}

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class KeeperProcess {
 public:
  struct Options {
    Mode mode = Mode::rw;
    int clients = 2;
    std::vector<std::string> arguments;
  };

  static std::unique_ptr<KeeperProcess> start(const std::filesystem::path& grant,
                                              const std::filesystem::path& ledger, const Options& options) {
    auto keeper = std::make_unique<KeeperProcess>();
    UniqueFd root(open(grant.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    EXPECT_TRUE(root) << grant;
    auto reports = socket_pair(SOCK_SEQPACKET);
    keeper->reports = std::move(reports->first);
    SpawnSpec spec;
    spec.argv = {std::string(ANCHORHOLD_PROGRAM_DIR) + "/anchorhold-keeper",
                 "--name",
                 "test",
                 "--mode",
                 std::string(to_string(options.mode)),
                 "--ledger",
                 ledger.string(),
                 "--clients",
                 std::to_string(options.clients)};
    spec.argv.insert(spec.argv.end(), options.arguments.begin(), options.arguments.end());
    spec.descriptors = {{2, 2}, {root.get(), keeper_fd::root}, {reports->second.get(), keeper_fd::reports}};
    std::vector<UniqueFd> theirs;
    for (int i = 0; i < options.clients; ++i) {
      auto pair = socket_pair(SOCK_SEQPACKET);
      keeper->sockets.push_back(std::move(pair->first));
      theirs.push_back(std::move(pair->second));
      spec.descriptors.push_back({theirs.back().get(), keeper_fd::first_client + i});
    }
    auto child = Child::spawn(spec);
    EXPECT_TRUE(child) << child.error().message;
    if (!child) return nullptr;
    keeper->child = std::make_unique<Child>(std::move(*child));
    return keeper;
  }

  // The next report; nothing when the process is gone.
  std::optional<Report> next_report() {
    auto report = receive_report(reports.get());
    return report ? *report : std::nullopt;
  }

  UniqueFd reports;
  std::vector<UniqueFd> sockets;
  std::unique_ptr<Child> child;
};

class KeeperTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = TemporaryDirectory::create("anchorhold-keeper-test");
    ASSERT_TRUE(made);
    directory_ = std::make_unique<TemporaryDirectory>(std::move(*made));
    grant_ = directory_->path() / "grant";
    ledger_ = directory_->path() / "ledger";
    outside_ = directory_->path() / "outside";
    for (const auto& folder : {grant_, ledger_, outside_})
      ASSERT_TRUE(std::filesystem::create_directory(folder));
    // Until start() worked, every answer is EIO.
    client_ = std::make_unique<KeeperClient>(UniqueFd());
  }

  void TearDown() override {
    client_.reset();
    keeper_.reset();
  }

  // What the test puts into the grant before this is pre-existing.
  void start(Mode mode, std::vector<std::string> arguments = {}) {
    client_ = std::make_unique<KeeperClient>(UniqueFd());
    keeper_.reset();
    keeper_ = KeeperProcess::start(grant_, ledger_,
                                   {.mode = mode, .clients = 2, .arguments = std::move(arguments)});
    ASSERT_TRUE(keeper_);
    auto ready = keeper_->next_report();
    ASSERT_TRUE(ready);
    ASSERT_EQ(ready->kind, ReportKind::ready) << ready->reason;
    client_ = std::make_unique<KeeperClient>(std::move(keeper_->sockets[0]));
  }

  // An O_PATH descriptor, as the reader has them.
  UniqueFd at(const std::string& path = "") const { return at_path(grant_ / path); }
  static UniqueFd at_path(const std::filesystem::path& path) {
    UniqueFd fd(open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    EXPECT_TRUE(fd) << path;
    return fd;
  }

  KeeperAnswer ask(const RequestHeader& request, std::vector<int> descriptors,
                   std::string_view payload = {}) {
    return client_->ask(request, descriptors, payload);
  }

  KeeperAnswer open_write(const std::string& path, std::uint32_t flags = 0) {
    auto request = make_request(Verb::open_for_write);
    request.flags = flags;
    return ask(request, {at(path).get()});
  }
  KeeperAnswer create(const std::string& folder, std::string_view name,
                      std::uint32_t flags = open_flag::exclusive, std::uint32_t mode = 0644) {
    auto request = make_request(Verb::create, name);
    request.flags = flags;
    request.mode = mode;
    return ask(request, {at(folder).get()});
  }
  // A file of the session's own.
  void create_with(const std::string& folder, std::string_view name, std::string_view text) {
    auto made = create(folder, name);
    ASSERT_EQ(made.error, 0) << name;
    ASSERT_TRUE(write_all(made.descriptor.get(), std::as_bytes(std::span(text))));
  }
  KeeperAnswer mkdir(const std::string& folder, std::string_view name, std::uint32_t mode = 0755) {
    auto request = make_request(Verb::make_directory, name);
    request.mode = mode;
    return ask(request, {at(folder).get()});
  }
  KeeperAnswer symlink(const std::string& folder, std::string_view name, std::string_view target) {
    return ask(make_request(Verb::make_symlink, name), {at(folder).get()}, target);
  }
  KeeperAnswer link(const std::string& file, const std::string& folder, std::string_view name) {
    return ask(make_request(Verb::link, name), {at(file).get(), at(folder).get()});
  }
  KeeperAnswer unlink(const std::string& folder, std::string_view name) {
    return ask(make_request(Verb::unlink, name), {at(folder).get()});
  }
  KeeperAnswer rmdir(const std::string& folder, std::string_view name) {
    return ask(make_request(Verb::remove_directory, name), {at(folder).get()});
  }
  KeeperAnswer rename(const std::string& from, std::string_view name, const std::string& to,
                      std::string_view new_name, std::uint32_t flags = 0) {
    auto request = make_request(Verb::rename, name, new_name);
    request.flags = flags;
    return ask(request, {at(from).get(), at(to).get()});
  }
  KeeperAnswer chmod(const std::string& path, std::uint32_t mode) {
    auto request = make_request(Verb::set_attributes);
    request.valid = valid_flag::mode;
    request.mode = mode;
    return ask(request, {at(path).get()});
  }
  KeeperAnswer truncate(int file, std::uint64_t size) {
    auto request = make_request(Verb::truncate);
    request.size = size;
    return ask(request, {file});
  }
  KeeperAnswer allocate(int file, std::uint32_t flags, std::uint64_t offset, std::uint64_t size) {
    auto request = make_request(Verb::allocate);
    request.flags = flags;
    request.offset = offset;
    request.size = size;
    return ask(request, {file});
  }
  KeeperAnswer set_xattr(const std::string& path, std::string_view name, std::string_view value) {
    return ask(make_request(Verb::set_xattr, name), {at(path).get()}, value);
  }
  KeeperNumbers numbers() { return ask(make_request(Verb::statistics), {}).numbers; }

  // Every kept content, by the text.
  std::multimap<std::string, std::string> kept() const {
    std::multimap<std::string, std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(ledger_ / "kept"))
      if (entry.is_regular_file()) found.emplace(read_text(entry.path()), entry.path().filename());
    return found;
  }
  bool is_kept(const std::string& text) const { return kept().contains(text); }

  // Skips reports of other kinds.
  Report expect_report(ReportKind kind) {
    while (auto report = keeper_->next_report())
      if (report->kind == kind) return *report;
    ADD_FAILURE() << "the keeper ended without a report of kind " << to_string(kind);
    return {};
  }

  std::unique_ptr<TemporaryDirectory> directory_;
  std::filesystem::path grant_, ledger_, outside_;
  std::unique_ptr<KeeperProcess> keeper_;
  std::unique_ptr<KeeperClient> client_;
};

}  // namespace anchorhold::mounts::testing
