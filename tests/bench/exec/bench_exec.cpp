// What a command costs beyond the bare stream: exec of `true` against an echo, and throughput both ways
// against a plain vsock stream, in one real guest (ANCHORHOLD_TEST_IMAGE names its image).
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <functional>
#include <stdexcept>
#include <sys/socket.h>
#include <vector>

#include "base/files.h"
#include "guest_harness.h"
#include "mounts/grant.h"

using namespace anchorhold;
using namespace anchorhold::session;

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::uint64_t bulk = 128u << 20;

template <typename T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

double seconds(const std::function<void()>& work) {
  auto begin = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double median_us(int times, const std::function<void()>& work) {
  std::vector<double> all;
  for (int i = 0; i < times; ++i) all.push_back(seconds(work) * 1e6);
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}

ExecStatus run(GuestClient& client, std::vector<std::string> argv, std::string_view input = {},
               std::uint64_t* bytes = nullptr) {
  ExecSpec spec;
  spec.argv = std::move(argv);
  auto status = must(client.run(spec,
                                {[bytes](std::string_view text) {
                                   if (bytes != nullptr) *bytes += text.size();
                                 },
                                 {}},
                                input));
  if (!status.ok()) throw std::runtime_error(to_string(status));
  return status;
}

// As the session starts commands: after the guest has learnt of what was changed in the granted folders.
void run_by_session(anchorhold::testing::RealGuest& guest, std::vector<std::string> argv) {
  ExecSpec spec;
  spec.argv = std::move(argv);
  spec.working_directory = "/";
  auto exec = must(guest.session().start_exec(guest.guest(), spec));
  while (must(exec->read(OutputStream::standard_output))) {
  }
  if (auto status = must(exec->wait()); !status.ok()) throw std::runtime_error(to_string(status));
}

void install_peer(GuestClient& client) {
  std::string program = must(read_file(ANCHORHOLD_BENCH_PEER, 64u << 20));
  run(client, {"sh", "-c", "cat > /tmp/peer && chmod 755 /tmp/peer"}, program);
  ExecSpec spec;
  spec.argv = {"/tmp/peer"};
  auto start = must(client.start_background({spec, {}}));
  must(client.poll_output(start.id, OutputStream::standard_output, 0, 64, std::chrono::minutes(1)));
}

void compare(const char* what, double ours, double bare, const char* unit) {
  fmt::print("{:<34} {:>10.1f} {:<6} bare stream {:>10.1f} {:<6} ratio {:.2f}\n", what, ours, unit, bare,
             unit, ours / bare);
}

}  // namespace

// The argument is the guest's count of processors (2).
int main(int argc, char** argv) try {
  if (auto why = anchorhold::testing::RealGuest::why_not(); !why.empty()) throw std::runtime_error(why);
  anchorhold::testing::RealGuestOptions options;
  if (argc > 1) options.cpus = static_cast<unsigned>(std::atoi(argv[1]));
  auto folders = must(TemporaryDirectory::create("anchorhold-bench-exec"));
  auto rules = must(mounts::GrantRules::current());
  for (const char* name : {"one", "two", "three"}) {
    std::filesystem::create_directory(folders.path() / name);
    options.grants.push_back(
        must(mounts::resolve_grant(folders.path() / name, mounts::Mode::rw, options.grants, rules)));
  }
  auto guest = must(anchorhold::testing::RealGuest::boot(std::move(options)));
  auto& client = guest->client();
  install_peer(client);

  UniqueFd echo = must(guest->device().dial(7000, std::chrono::minutes(1)));
  std::byte message[64] = {};
  double echo_us = median_us(1000, [&] {
    must(write_all(echo.get(), message));
    must(read_full(echo.get(), message));
  });
  double call_us = median_us(500, [&] { must(client.list_execs()); });
  double true_us = median_us(100, [&] { run(client, {"/bin/true"}); });
  run(client, {"sh", "-c", "ls /mnt/*"});  // so that they are watched
  double session_us = median_us(100, [&] { run_by_session(*guest, {"/bin/true"}); });
  int file = 0;
  double changed_us = median_us(100, [&] {
    UniqueFd made(creat((folders.path() / "one" / std::to_string(++file)).c_str(), 0644));
    run_by_session(*guest, {"/bin/true"});
  });
  double inside_us = seconds([&] {
                       run(client, {"bash", "-c", "for i in {1..100}; do /bin/true; done"});
                     }) *
                     1e6 / 100;
  compare("a call (list of commands)", call_us, echo_us, "us");
  compare("exec of true", true_us, echo_us, "us");
  compare("the same by the session, 3 folders", session_us, echo_us, "us");
  compare("the same after a file was made", changed_us, echo_us, "us");
  fmt::print("{:<34} {:>10.1f} us     (what bash in the guest needs to start and end it)\n", "", inside_us);

  double take_seconds = seconds([&] {
    UniqueFd stream = must(guest->device().dial(7001, std::chrono::minutes(1)));
    std::vector<std::byte> piece(64 << 10);
    for (std::uint64_t sent = 0; sent < bulk; sent += piece.size()) must(write_all(stream.get(), piece));
    shutdown(stream.get(), SHUT_WR);
    must(read_full(stream.get(), std::span(piece).first(1)));
  });
  double give_seconds = seconds([&] {
    UniqueFd stream = must(guest->device().dial(7002, std::chrono::minutes(1)));
    must(write_all(stream.get(), std::as_bytes(std::span(&bulk, 1))));
    std::vector<std::byte> piece(64 << 10);
    for (std::uint64_t got = 0; got < bulk;) got += must(read_full(stream.get(), piece));
  });
  std::string input(bulk, 'i');
  double input_seconds = seconds([&] { run(client, {"sh", "-c", "cat > /dev/null"}, input); });
  std::uint64_t got = 0;
  double output_seconds = seconds([&] {
    run(client, {"head", "-c", std::to_string(bulk), "/dev/zero"}, {}, &got);
  });
  if (got != bulk) throw std::runtime_error("bytes were lost");
  auto rate = [](double time) { return static_cast<double>(bulk) / (1 << 20) / time; };
  compare("output of a command", rate(output_seconds), rate(give_seconds), "MiB/s");
  compare("input of a command", rate(input_seconds), rate(take_seconds), "MiB/s");
  auto statistics = must(client.statistics());
  fmt::print("agent in the guest: {} resident, {} threads\n", to_string(statistics.agent_memory),
             statistics.agent_threads);
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "bench_exec: {}\n", error.what());
  return 1;
}
