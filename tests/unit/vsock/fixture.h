// A real anchorhold-vsockd with the test as its host and as its front end and guest.
#pragma once

#include <condition_variable>
#include <deque>
#include <gtest/gtest.h>
#include <memory>
#include <mutex>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/files.h"
#include "base/seal.h"
#include "front_end.h"
#include "vsock/device.h"

namespace anchorhold::vsock::testing {

inline Result<std::unique_ptr<VsockDevice>> start_device(const std::filesystem::path& socket,
                                                         VsockDeviceCallbacks callbacks = {}) {
  VsockDeviceSpec spec;
  spec.socket_path = socket;
  spec.program = std::filesystem::path(ANCHORHOLD_PROGRAM_DIR) / "anchorhold-vsockd";
  spec.allow_weak = landlock_abi() == 0;
  return VsockDevice::start(spec, std::move(callbacks));
}

// Values handed from the device's thread to the test.
template <typename T>
class Mailbox {
 public:
  void put(T value) {
    std::lock_guard lock(mutex_);
    values_.push_back(std::move(value));
    changed_.notify_all();
  }
  std::optional<T> take(Milliseconds limit = patience) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, limit, [this] { return !values_.empty(); })) return std::nullopt;
    std::optional<T> value(std::move(values_.front()));
    values_.pop_front();
    return value;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<T> values_;
};

class WithDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    auto folder = TemporaryDirectory::create();
    ASSERT_TRUE(folder) << folder.error().message;
    folder_.emplace(std::move(*folder));
    VsockDeviceCallbacks callbacks;
    callbacks.refused = [this](std::uint32_t port, std::uint64_t times) { refused_.put({port, times}); };
    callbacks.violated = [this](std::uint32_t, std::string what) { violated_.put(std::move(what)); };
    callbacks.ended = [this](Error cause) { ended_.put(std::move(cause)); };
    auto device = start_device(folder_->path() / "v", std::move(callbacks));
    ASSERT_TRUE(device) << device.error().message;
    device_ = std::move(*device);
  }
  void TearDown() override { device_.reset(); }

  void connect(bool event_index = true) {
    front_end_ = std::make_unique<FrontEnd>((folder_->path() / "v").string());
    front_end_->negotiate(event_index);
    driver_ = std::make_unique<GuestDriver>(*front_end_);
  }
  void listen(std::uint32_t port) {
    auto status = device_->listen(port, [this](UniqueFd stream) { accepted_.put(std::move(stream)); });
    ASSERT_TRUE(status) << status.error().message;
  }
  // A stream the guest dialled, and the host's end of it.
  struct Pair {
    GuestStream guest;
    UniqueFd host;
  };
  std::optional<Pair> guest_dials(std::uint32_t guest_port, std::uint32_t host_port) {
    GuestStream stream{*driver_, guest_port, host_port};
    stream.say(1);
    if (!stream.pump([&] { return stream.established || stream.reset; }) || stream.reset) return std::nullopt;
    auto host = accepted_.take();
    if (!host) return std::nullopt;
    return Pair{std::move(stream), std::move(*host)};
  }
  // The same the other way.
  std::optional<Pair> host_dials(std::uint32_t guest_port) {
    Mailbox<UniqueFd> streams;
    device_->dial(guest_port, patience,
                  [&](Result<UniqueFd> stream) { streams.put(stream ? std::move(*stream) : UniqueFd()); });
    std::optional<GuestStream> guest;
    while (auto next = driver_->receive()) {
      if (next->packet.operation != 1 || next->packet.destination_port != guest_port) continue;
      guest.emplace(GuestStream{*driver_, guest_port, next->packet.source_port});
      guest->handle(*next);
      break;
    }
    auto host = streams.take();
    if (!guest || !host || !*host) return std::nullopt;
    return Pair{std::move(*guest), std::move(*host)};
  }
  std::string cause() {
    auto error = ended_.take();
    return error ? error->message : "the device did not end";
  }

  std::optional<TemporaryDirectory> folder_;
  Mailbox<UniqueFd> accepted_;
  Mailbox<std::pair<std::uint32_t, std::uint64_t>> refused_;
  Mailbox<std::string> violated_;
  Mailbox<Error> ended_;
  std::unique_ptr<VsockDevice> device_;
  std::unique_ptr<FrontEnd> front_end_;
  std::unique_ptr<GuestDriver> driver_;
};

// A cheap hash of a byte stream, order included (FNV-1a).
struct Hash {
  std::uint64_t value = 14695981039346656037ull;
  void add(std::span<const std::byte> bytes) {
    for (auto b : bytes) value = (value ^ static_cast<std::uint64_t>(b)) * 1099511628211ull;
  }
};
// Bytes whose every position differs from its neighbours' pattern.
inline void fill(std::span<std::byte> bytes, std::uint64_t seed) {
  for (auto& b : bytes) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    b = static_cast<std::byte>(seed >> 56);
  }
}
inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}
inline std::string text_of(std::span<const std::byte> bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}
// Reads until `count` bytes came, or the end.
inline std::string read_text(int fd, std::size_t count) {
  std::string text(count, '\0');
  auto got = read_full(fd, std::as_writable_bytes(std::span(text)));
  text.resize(got ? *got : 0);
  return text;
}

}  // namespace anchorhold::vsock::testing
