// As many connections of one guest as there may be, and more: every part that holds them stays small, the
// guest is told when there are too many, and everything else goes on.
#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <iostream>
#include <thread>

#include "cli_fixture.h"
#include "process_facts.h"

namespace anchorhold::cli {
namespace {

using ::testing::HasSubstr;

constexpr long wanted = 10'000, most_allowed = 12'000, kept_aside = 400;

// Without what it shares: the memory of the guest.
long own_kib(pid_t pid) {
  return anchorhold::testing::status_kib(pid, "RssAnon:");
}

// How many descriptors the process may have: it says for itself how many it can get.
long descriptors_of(pid_t pid) {
  std::ifstream limits("/proc/" + std::to_string(pid) + "/limits");
  const std::string name = "Max open files";
  for (std::string line; std::getline(limits, line);)
    if (line.starts_with(name)) return std::stol(line.substr(name.size()));
  return 0;
}

const char* const rules = R"([egress]
default = "deny"
[[egress.rule]]
host = "44.128.0.2"
ports = [9000]
action = "allow"
tunnel_only = true
[[egress.rule]]
host = "44.128.0.2"
ports = [80]
action = "allow"
)";

class CrowdTest : public CliTest {
 protected:
  // Waits until the process is about as small again; how much larger it is when it is not.
  static long larger_by_kib(pid_t pid, long at_rest, long most) {
    long larger = 0;
    for (auto end = std::chrono::steady_clock::now() + patience; std::chrono::steady_clock::now() < end;
         std::this_thread::sleep_for(std::chrono::milliseconds(100))) {
      larger = own_kib(pid) - at_rest;
      if (larger < most) break;
    }
    return larger;
  }
};

TEST_F(CrowdTest, TenThousandConnectionsAreCarriedAndWhatIsTooManyIsToldSo) {
  ANCHORHOLD_NEEDS_IMAGE();
  ANCHORHOLD_NEEDS_NETWORK();
  write_text(home() / "config/anchorhold/config.toml", rules);
  auto running =
      start_in_bed({program(), "run", "--image", image_, "--user", "root", "--cpus", "2", "--memory", "2G",
                    "--ro", source("clients/guest"), "--", "python3", "/mnt/guest/crowd.py"},
                   {}, "clients/crowd_bed");
  auto await = [&](const std::string& name) { running.read_until("now " + name + "\n"); };
  await("at rest");
  ASSERT_FALSE(HasFailure()) << running.finish().err;
  const pid_t egress = process_named("anchorhold-egressd"), vsock = process_named("anchorhold-vsockd");
  ASSERT_GT(egress, 0);
  ASSERT_GT(vsock, 0);
  // A connection is two descriptors of the egress process.
  const long bound = std::min(most_allowed, (descriptors_of(egress) - kept_aside) / 2);
  ASSERT_GT(bound, 500);
  const long count = std::min(wanted, (bound - 200) / 50 * 50);
  if (count < wanted)
    std::cerr << "NOT " << wanted << " connections at once but " << count << ": a process may have "
              << descriptors_of(egress) << " descriptors here, which leaves room for " << bound
              << " connections\n";
  const long egress_at_rest = own_kib(egress), vsock_at_rest = own_kib(vsock);
  running.write_input(fmt::format("{} {}\n", count, bound - count + 100));
  await("crowded");
  const long of_egress = (own_kib(egress) - egress_at_rest) * 1024 / count;
  const long of_vsock = (own_kib(vsock) - vsock_at_rest) * 1024 / count;
  std::cout << count << " connections at once; of each anchorhold-egressd holds " << of_egress
            << " bytes, anchorhold-vsockd " << of_vsock << "\n";
#ifndef ANCHORHOLD_SANITIZED
  EXPECT_LT(of_egress, 16 * 1024);
  EXPECT_LT(of_vsock, 1024);
#endif
  running.write_input("\n");
  await("full");
  running.write_input("\n");
  await("empty");
#ifndef ANCHORHOLD_SANITIZED
  EXPECT_LT(larger_by_kib(vsock, vsock_at_rest, 2 << 10), 2 << 10);
#endif
  // Boost.Asio keeps what it has for each descriptor, for the next ones, and with it the pages around: no
  // bound is promised here.
  std::cout << "after they closed anchorhold-egressd holds " << own_kib(egress) - egress_at_rest
            << " KiB more than at rest\n";
  running.write_input("\n");
  running.close_input();
  auto outcome = running.finish();
  ASSERT_EQ(outcome.status, 0) << outcome.out << outcome.err;
  std::cout << outcome.out;
  const long left = bound - (bound + 99) / 100;
  for (const std::string& line :
       {fmt::format("carried {} ", count),
        fmt::format("refused after {} with HTTP/1.1 503 Service Unavailable", bound),
        fmt::format("x-anchorhold-reason: the guest opened more connections than {}", bound),
        std::string("and the agent's: HTTP/1.1 503"), std::string("a command: runs"),
        fmt::format("still carried {} of {}\n", left, left),
        std::string("after some were closed: hello from outside"),
        std::string("after all were closed: hello from outside")})
    EXPECT_THAT(outcome.out, HasSubstr(line));
  EXPECT_THAT(run({"events", "list", "--name", "anchorhold.egress.deny", "--json"}).out,
              HasSubstr(fmt::format("more connections than {}", bound)));
}

}  // namespace
}  // namespace anchorhold::cli
