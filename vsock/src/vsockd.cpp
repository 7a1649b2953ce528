#include "vsockd.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <fmt/format.h>
#include <malloc.h>
#include <string_view>
#include <sys/socket.h>
#include <unistd.h>

#include "base/seal.h"
#include "control_protocol.h"
#include "vsock/stream_device.h"

namespace anchorhold::vsock {
namespace {

Result<std::uint32_t> number(std::string_view option, const char* text) {
  std::uint32_t value = 0;
  std::string_view digits = text ? text : "";
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size())
    return fail(ErrorCode::invalid_argument, fmt::format("{} needs a number", option));
  return value;
}

}  // namespace

Result<VsockdArguments> parse_vsockd_arguments(int argc, char** argv) {
  VsockdArguments arguments;
  for (int i = 1; i < argc; ++i) {
    std::string_view option = argv[i];
    if (option == "--allow-weak") {
      arguments.allow_weak = true;
    } else if (option == "--cid") {
      arguments.guest_cid = ANCHORHOLD_TRY(number(option, argv[++i]));
    } else if (option == "--control-fd") {
      arguments.control_fd = static_cast<int>(ANCHORHOLD_TRY(number(option, argv[++i])));
    } else if (option == "--listener-fd") {
      arguments.listener_fd = static_cast<int>(ANCHORHOLD_TRY(number(option, argv[++i])));
    } else {
      return fail(ErrorCode::invalid_argument, fmt::format("unknown option {}", option),
                  "anchorhold starts this program itself");
    }
    if (i >= argc) break;
  }
  if (arguments.guest_cid == 0 || arguments.control_fd < 3 || arguments.listener_fd < 3)
    return fail(ErrorCode::invalid_argument, "--cid, --control-fd and --listener-fd are needed",
                "anchorhold starts this program itself");
  return arguments;
}

Result<int> seal_vsockd(const VsockdArguments& arguments) {
  constexpr std::uint64_t all_bits = ~std::uint64_t{0};
  StreamDeviceLimits limits;
  SealPolicy policy;
  policy.syscalls = base_syscalls();
  policy.syscalls.push_back({"accept4", {}});
  policy.syscalls.push_back({"socketpair", {{0, all_bits, AF_UNIX}}});
  policy.syscalls.push_back({"setsockopt", {{1, all_bits, SOL_SOCKET}, {2, all_bits, SO_SNDBUF}}});
  policy.kept_descriptors = {arguments.control_fd, arguments.listener_fd};
  policy.allow_weak = arguments.allow_weak;
  // Guest memory is shared and does not count as data; what counts are the streams' backlogs and our own
  // small state.
  policy.limits.push_back({RLIMIT_CORE, 0});
  policy.limits.push_back({RLIMIT_FSIZE, 0});
#ifndef ANCHORHOLD_SANITIZED
  policy.limits.push_back({RLIMIT_DATA, limits.buffers() + (64u << 20)});
#endif
  rlimit descriptors{};
  if (getrlimit(RLIMIT_NOFILE, &descriptors) != 0) return fail_errno(errno, "getrlimit");
  policy.limits.push_back(
      {RLIMIT_NOFILE, std::min<std::uint64_t>(descriptors.rlim_max, 2 * limits.streams() + 64)});
  auto report = ANCHORHOLD_TRY(seal(policy));
  return report.landlock_abi;
}

Status serve_vsock(const VsockdArguments& arguments, int landlock_version) {
  std::signal(SIGPIPE, SIG_IGN);
  // Buffers of streams go back to the system when they are given up.
  (void)mallopt(M_MMAP_THRESHOLD, 64 << 10);
  auto loop = ANCHORHOLD_TRY(EventLoop::create());
  ControlMessage sealed;
  sealed.type = ControlMessage::Type::sealed;
  sealed.values[0] = static_cast<std::uint64_t>(landlock_version);
  ANCHORHOLD_CHECK(send_control(arguments.control_fd, sealed));
  auto device =
      ANCHORHOLD_TRY(StreamDevice::create(*loop, UniqueFd(arguments.control_fd), arguments.guest_cid));
  UniqueFd listener(arguments.listener_fd);
  EventLoop::Watch listening;
  listening = ANCHORHOLD_TRY(loop->watch(listener.get(), ready::readable, [&](std::uint32_t) {
    UniqueFd front_end(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!front_end) {
      if (errno != ECONNABORTED && errno != EINTR && errno != EAGAIN)
        loop->stop(fail_errno(errno, "accepting the front end"));
      return;
    }
    // There is one front end in a device's life: nobody else can connect after it.
    listening = {};
    listener.reset();
    if (auto status = device->attach(std::move(front_end)); !status) loop->stop(std::move(status));
  }));
  Status cause = loop->run();
  device->say_end(cause);
  return cause;
}

}  // namespace anchorhold::vsock
