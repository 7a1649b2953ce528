#include "egressd_program.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <fmt/format.h>
#include <linux/capability.h>
#include <locale.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <sodium.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

#include "authority.h"
#include "base/seal.h"
#include "egress/control.h"
#include "proxy.h"

namespace anchorhold::egress {
namespace {

constexpr std::uint64_t all_bits = ~std::uint64_t{0};
// Two descriptors a connection, and as many again while connections are dialled.
constexpr rlim_t enough_descriptors = 1u << 16;
// More than processors: what each does is mostly the kernel's work of waking others.
constexpr unsigned relay_threads_per_processor = 4, most_relay_threads = 8;

Result<int> number(std::string_view option, const char* text) {
  int value = 0;
  std::string_view digits = text ? text : "";
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size() || value <= 0)
    return fail(ErrorCode::invalid_argument, fmt::format("{} needs a number", option));
  return value;
}

Status drop_capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[2]{};
  if (syscall(SYS_capset, &header, none) != 0) return fail_errno(errno, "capset");
  return {};
}

// Root may have more descriptors than it was given, as long as it has its capabilities; nobody else.
rlim_t raise_descriptors() {
  rlimit given{};
  if (getrlimit(RLIMIT_NOFILE, &given) != 0) return 0;
  const rlimit wanted{enough_descriptors, enough_descriptors};
  if (given.rlim_max < enough_descriptors && setrlimit(RLIMIT_NOFILE, &wanted) == 0)
    return enough_descriptors;
  return std::min(given.rlim_max, enough_descriptors);
}

// Sockets of the internet, TCP and UDP, to connect with; none to listen on, and none of any other kind.
void add_socket_rules(SealPolicy& policy) {
  for (std::uint64_t family : {AF_INET, AF_INET6})
    for (std::uint64_t type : {SOCK_STREAM, SOCK_DGRAM})
      policy.syscalls.push_back({"socket", {{0, all_bits, family}, {1, 0xf, type}}});
  allow(policy, {"connect", "setsockopt", "getsockname", "getpeername", "send", "recv"});
  // Boost.Asio sets descriptors to non-blocking with it.
  policy.syscalls.push_back({"ioctl", {{1, all_bits, 0x5421}}});  // FIONBIO
}

Result<int> seal_process(const EgressdArguments& arguments, const OwnAddresses& own,
                         std::vector<int> loop_descriptors) {
  SealPolicy policy;
  policy.syscalls = base_syscalls();
  add_socket_rules(policy);
  policy.may_connect = true;
  policy.allow_weak = arguments.allow_weak;
  policy.kept_descriptors = std::move(loop_descriptors);
  policy.kept_descriptors.push_back(egressd_fd::control);
  for (int fd : own.descriptors()) policy.kept_descriptors.push_back(fd);
  policy.limits = {{RLIMIT_CORE, 0}, {RLIMIT_FSIZE, 0}};
#ifndef ANCHORHOLD_SANITIZED
  policy.limits.push_back({RLIMIT_DATA, 2ull << 30});
#endif
  policy.limits.push_back({RLIMIT_NOFILE, raise_descriptors()});
  ANCHORHOLD_CHECK(drop_capabilities());
  return ANCHORHOLD_TRY(seal(policy)).landlock_abi;
}

// Whatever a library reads from files when it is first used, it reads now.
Status warm_up(const Authority& authority) {
  unsigned char byte;
  if (sodium_init() < 0 || RAND_bytes(&byte, 1) != 1)
    return fail(ErrorCode::internal, "the libraries for cryptography did not start");
  ANCHORHOLD_TRY(client_context(authority.certificate_pem()));
  return {};
}

// The descriptors that the event loop holds for itself.
std::vector<int> open_descriptors() {
  std::vector<int> open;
  for (int fd = 3; fd < 64; ++fd)
    if (fcntl(fd, F_GETFD) >= 0) open.push_back(fd);
  return open;
}

}  // namespace

Result<EgressdArguments> parse_egressd_arguments(int argc, char** argv) {
  EgressdArguments arguments;
  for (int i = 1; i < argc; ++i) {
    std::string_view option = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : nullptr;
    if (option == "--allow-weak") {
      arguments.allow_weak = true;
      continue;
    }
    if (option == "--dns-timeout-ms")
      arguments.dns_timeout = std::chrono::milliseconds(ANCHORHOLD_TRY(number(option, value)));
    else if (option == "--dns-attempts")
      arguments.dns_attempts = ANCHORHOLD_TRY(number(option, value));
    else
      return fail(ErrorCode::invalid_argument, fmt::format("unknown option {}", option),
                  "anchorhold starts this program itself");
    ++i;
  }
  return arguments;
}

Status run_egressd(const EgressdArguments& arguments) {
  std::signal(SIGPIPE, SIG_IGN);
  std::vector<int> before = open_descriptors();
  if (before != std::vector<int>{egressd_fd::control})
    return fail(ErrorCode::failed_precondition, "this program is started by anchorhold, not by people");
  asio::io_context loop(1);
  auto resolver = ANCHORHOLD_TRY(Resolver::create(loop, arguments.dns_timeout, arguments.dns_attempts));
  auto own = ANCHORHOLD_TRY(OwnAddresses::open());
  auto authority = ANCHORHOLD_TRY(Authority::create());
  ANCHORHOLD_CHECK(warm_up(*authority));
  // The loop's own descriptors are made when it is first used.
  asio::steady_timer first(loop, std::chrono::seconds(0));
  first.async_wait([](boost::system::error_code) {});
  loop.run();
  loop.restart();
  const unsigned relay_threads =
      std::clamp(relay_threads_per_processor * std::thread::hardware_concurrency(), 1u, most_relay_threads);
  int landlock_version = ANCHORHOLD_TRY(seal_process(arguments, own, open_descriptors()));
  Proxy proxy(loop, UniqueFd(egressd_fd::control), std::move(resolver), std::move(own), std::move(authority),
              relay_threads);
  Status ended;
  asio::co_spawn(loop, proxy.serve(landlock_version), [&](std::exception_ptr error, Status status) {
    if (error) std::rethrow_exception(error);
    ended = std::move(status);
    loop.stop();
  });
  loop.run();
  // Connections end with the process, without a word: nothing of the loop runs any more.
  _exit(!ended && ended.error().code == ErrorCode::unavailable ? 0 : 2);
}

}  // namespace anchorhold::egress
