// Requests that no kernel sends: the device ends with the true cause, and nothing but the device.
#include "reader_fixture.h"

namespace anchorhold::mounts {
namespace {

using testing::bytes_of;
using testing::FrontEnd;
using testing::FuseGuest;
using testing::patience;
using testing::ReaderTest;
using testing::write_text;

class ReaderMalformed : public ReaderTest {
 protected:
  // The process is gone with the status of a client's fault, after one report that says why.
  void expect_end(std::string_view cause) {
    auto report = report_of(ReportKind::fatal);
    ASSERT_TRUE(report);
    EXPECT_NE(report->reason.find(cause), std::string::npos) << report->reason;
    auto status = reader_->child->wait(patience);
    ASSERT_TRUE(status);
    EXPECT_EQ(status->signal, 0);
    EXPECT_EQ(status->code, 2);
    EXPECT_TRUE(guest_->front_end.closed());
  }
};

struct BadRequest {
  const char* name;
  std::string bytes;
  std::size_t room;
  const char* cause;
};

std::string with_length(std::string bytes, std::uint32_t length) {
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes;
}

std::vector<BadRequest> bad_requests() {
  fuse_write_in write{};
  write.size = 1000;
  fuse_read_in read{};
  read.size = 1u << 30;
  fuse_batch_forget_in batch{};
  batch.count = 0xffffffff;
  struct {
    std::uint32_t size = 0xffffffff, flags = 0;
  } xattr;
  auto request = [](std::uint32_t opcode, std::string_view arguments) {
    return FuseGuest::request(opcode, 1, arguments);
  };
  return {
      {"nothing", "", 4096, ""},
      {"half a header", std::string(20, '\0'), 4096, "shorter than its header"},
      {"longer than it is", with_length(request(FUSE_GETATTR, std::string(16, '\0')), 4000), 4096,
       "it says 4000 bytes"},
      {"shorter than it is", with_length(request(FUSE_GETATTR, std::string(16, '\0')), 40), 4096,
       "it says 40 bytes"},
      {"length zero", with_length(request(FUSE_GETATTR, std::string(16, '\0')), 0), 4096, "it says 0 bytes"},
      {"arguments missing", request(FUSE_GETATTR, "xx"), 4096, "FUSE_GETATTR: shorter than its arguments"},
      {"no room for the answer", request(FUSE_GETATTR, std::string(16, '\0')), 20, "no room for the answer"},
      {"no room at all", request(FUSE_LOOKUP, FuseGuest::name("x")), 0, "no room for the answer"},
      {"a name without an end", request(FUSE_LOOKUP, "endless"), 4096, "FUSE_LOOKUP: a name without an end"},
      {"no name", request(FUSE_UNLINK, ""), 4096, "FUSE_UNLINK: a name without an end"},
      {"one name of two", request(FUSE_SYMLINK, FuseGuest::name("x")), 4096,
       "FUSE_SYMLINK: a name without an end"},
      {"less data than it says", request(FUSE_WRITE, bytes_of(write) + "short"), 4096,
       "FUSE_WRITE: less data than it says"},
      {"a read without room", request(FUSE_READ, bytes_of(read)), 4096,
       "FUSE_READ: it asks for more than it has room for"},
      {"a listing without room", request(FUSE_READDIRPLUS, bytes_of(read)), 4096,
       "FUSE_READDIRPLUS: it asks for more"},
      {"a count that lies", request(FUSE_BATCH_FORGET, bytes_of(batch) + std::string(64, '\0')), 0,
       "fewer entries than it says"},
      {"a value that lies", request(FUSE_SETXATTR, bytes_of(xattr) + FuseGuest::name("user.x") + "v"), 4096,
       "a value shorter than it says"},
      {"longer than any request", request(FUSE_LOOKUP, std::string(150000, 'x')), 4096, "too long"},
      {"operation zero", request(0, ""), 4096, "no such operation"},
      {"another device's operation", request(CUSE_INIT, std::string(64, '\0')), 4096, "no such operation"},
  };
}

TEST_F(ReaderMalformed, EachEndsTheDeviceWithItsCause) {
  for (const auto& bad : bad_requests()) {
    SCOPED_TRACE(bad.name);
    boot(Mode::ro);
    guest_->submit(bad.bytes, bad.room);
    expect_end(bad.cause);
    if (HasFatalFailure()) return;
  }
}

TEST_F(ReaderMalformed, ARequestBeforeTheFirst) {
  start(Mode::ro);
  guest_->submit(FuseGuest::request(FUSE_GETATTR, 1, std::string(16, '\0')), 4096);
  expect_end("it came before FUSE_INIT");
}

TEST_F(ReaderMalformed, ManyAtOnceEndItOnce) {
  boot(Mode::ro);
  for (int i = 0; i < 20; ++i) guest_->submit(FuseGuest::request(FUSE_LOOKUP, 1, "endless"), 4096);
  expect_end("a name without an end");
}

TEST_F(ReaderMalformed, ChainsOutsideMemoryEndIt) {
  boot(Mode::ro);
  auto& front_end = guest_->front_end;
  front_end.descriptor(FuseGuest::requests, 100) = {FrontEnd::guest_base + FrontEnd::memory_size - 16, 4096,
                                                    0, 0};
  front_end.offer(FuseGuest::requests, 100);
  expect_end("");
}

TEST_F(ReaderMalformed, ChainsThatRunInACircleEndIt) {
  boot(Mode::ro);
  auto& front_end = guest_->front_end;
  front_end.descriptor(FuseGuest::requests, 100) = {FrontEnd::guest_base + 0x100000, 16,
                                                    vsock::testing::flag_next, 101};
  front_end.descriptor(FuseGuest::requests, 101) = {FrontEnd::guest_base + 0x100000, 16,
                                                    vsock::testing::flag_next, 100};
  front_end.offer(FuseGuest::requests, 100);
  expect_end("");
}

// Odd, but not wrong: a guest may cut its buffers wherever it likes.
TEST_F(ReaderMalformed, HeadersMayLieInPieces) {
  write_text(grant_ / "file", "x");
  boot(Mode::ro);
  auto& front_end = guest_->front_end;
  auto bytes = FuseGuest::request(FUSE_LOOKUP, 1, FuseGuest::name("file"), 77);
  constexpr std::size_t in = 0x700000, out = 0x710000;
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(front_end.memory()) + in);
  // One byte a descriptor on the way in, and seven pieces on the way out.
  std::uint16_t index = 50;
  for (std::size_t i = 0; i < bytes.size(); ++i, ++index)
    front_end.descriptor(FuseGuest::requests, index) = {
        FrontEnd::guest_base + in + i, 1, vsock::testing::flag_next, static_cast<std::uint16_t>(index + 1)};
  for (int i = 0; i < 7; ++i, ++index) {
    auto flags =
        static_cast<std::uint16_t>(vsock::testing::flag_write | (i < 6 ? vsock::testing::flag_next : 0));
    front_end.descriptor(FuseGuest::requests, index) = {
        FrontEnd::guest_base + out + static_cast<std::size_t>(i) * 100, i < 6 ? 9u : 2000u, flags,
        static_cast<std::uint16_t>(index + 1)};
  }
  auto seen = front_end.used_index(FuseGuest::requests);
  front_end.offer(FuseGuest::requests, 50);
  ASSERT_TRUE(front_end.wait_used(FuseGuest::requests, seen));
  std::string answer;
  for (std::size_t i = 0; i < 6; ++i)
    answer.append(reinterpret_cast<char*>(front_end.memory()) + out + i * 100, 9);
  answer.append(reinterpret_cast<char*>(front_end.memory()) + out + 600, 200);
  fuse_out_header header;
  std::memcpy(&header, answer.data(), sizeof header);
  EXPECT_EQ(header.error, 0);
  EXPECT_EQ(header.unique, 77u);
  EXPECT_EQ(header.len, sizeof header + sizeof(fuse_entry_out));
}

TEST_F(ReaderMalformed, UnknownNodesAndHandlesAreRefusedAndNoMore) {
  boot(Mode::rw);
  constexpr std::uint64_t unknown = 0xdeadbeefcafe;
  EXPECT_EQ(guest_->attributes(unknown).error, ESTALE);
  EXPECT_EQ(guest_->lookup(unknown, "x").error, ESTALE);
  EXPECT_EQ(guest_->open(unknown, O_RDONLY).error, ESTALE);
  EXPECT_EQ(guest_->make_folder(unknown, "x").error, ESTALE);
  EXPECT_EQ(guest_->rename(FUSE_ROOT_ID, "x", unknown, "y").error, ESTALE);
  EXPECT_EQ(guest_->link(unknown, FUSE_ROOT_ID, "x").error, ESTALE);
  EXPECT_EQ(guest_->read(unknown, 0, 16).error, EBADF);
  EXPECT_EQ(guest_->write(unknown, 0, "x").error, EBADF);
  EXPECT_EQ(guest_->attributes(0).error, ESTALE);
  guest_->forget(unknown, ~0ull);
  EXPECT_EQ(guest_->attributes(FUSE_ROOT_ID).error, 0);
}

TEST_F(ReaderMalformed, TheFrontEndMayGoAtAnyTime) {
  boot(Mode::ro);
  guest_.reset();
  auto status = reader_->child->wait(patience);
  ASSERT_TRUE(status);
  EXPECT_TRUE(status->ok()) << to_string(*status);
}

TEST_F(ReaderMalformed, TheHostMayGoBeforeAnybodyComes) {
  reader_ = testing::ReaderProcess::start(grant_, directory_->path(), Mode::ro, -1);
  ASSERT_TRUE(reader_);
  reader_->reports.reset();
  auto status = reader_->child->wait(patience);
  ASSERT_TRUE(status);
  EXPECT_TRUE(status->ok()) << to_string(*status);
}

}  // namespace
}  // namespace anchorhold::mounts
