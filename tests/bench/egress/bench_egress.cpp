// What the egress process costs, against proxies that people use, on the same servers in one run. Streams of
// a guest are given to the process as the session gives them; the others are reached over TCP. Usage:
// bench_egress [seconds per figure]
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <list>
#include <map>
#include <memory>
#include <sstream>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "base/files.h"
#include "base/process.h"
#include "egress/door.h"
#include "guest_figures.h"
#include "http2_peer.h"
#include "measures.h"
#include "network.h"
#include "process_facts.h"

using namespace anchorhold;
using namespace anchorhold::testing;
using Clock = std::chrono::steady_clock;

namespace {

class CountingSink : public events::EventSink {
 public:
  Status record(events::Event) override { return {}; }
};

// Answers "p" with 4 bytes, "s" with bytes for ever, and the end after "k" with 4 bytes.
void serve_raw(Wire& wire) {
  static const std::string block(1u << 20, 'b');
  for (std::string said; !(said = wire.read_some()).empty();) {
    if (said[0] == 's')
      while (wire.write(block)) {
      }
    else if (said[0] == 'k') {
      while (!wire.read_some().empty()) {
      }
      wire.write("pong");
      return;
    } else
      wire.write("pong");
  }
}

void serve_http(Wire& wire) {
  static const std::string large(4u << 20, 'b');
  for (;;) {
    std::string head = wire.read_until("\r\n\r\n");
    if (!head.ends_with("\r\n\r\n")) return;
    bool big = head.starts_with("GET /big");
    const std::string body = big ? "" : "hello, small body";
    std::string size = std::to_string(big ? large.size() : body.size());
    if (!wire.write("HTTP/1.1 200 OK\r\nContent-Length: " + size + "\r\n\r\n" + body)) return;
    if (big && !wire.write(large)) return;
  }
}

Wire own_of(egress::Door& door) {
  auto [ours, theirs] = *socket_pair(SOCK_STREAM);
  (void)door.adopt(std::move(theirs));
  return Wire(std::move(ours));
}

// What a process has used of the processors.
double cpu_seconds(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  std::istringstream fields(text.substr(std::min(text.size(), text.rfind(')') + 1)));
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;
  double user = 0, system = 0;
  fields >> user >> system;
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

void print(const char* what, const std::map<std::string, double>& figures, const char* unit) {
  std::printf("%-28s", what);
  double own = 0, best = 0;
  for (const auto& [name, figure] : figures) {
    std::printf("  %s %.0f", name.c_str(), figure);
    if (name == "egressd")
      own = figure;
    else
      best = std::max(best, figure);
  }
  std::printf(" %s", unit);
  if (best > 0) std::printf("  (%.2fx the best other)", own / best);
  std::printf("\n");
  std::fflush(stdout);
}

void print_cost(const std::map<std::string, double>& figures, const char* what) {
  std::printf("%28s", "");
  for (const auto& [name, figure] : figures) std::printf("  %s %.1f", name.c_str(), figure);
  std::printf(" %s\n", what);
  std::fflush(stdout);
}

// A proxy of somebody else, when it is installed.
struct Other {
  std::string name;
  std::vector<std::string> argv;
  std::uint16_t port;
  std::optional<Child> child;
};

bool begin(Other& other) {
  if (access(other.argv[0].c_str(), X_OK) != 0) return false;
  SpawnSpec spawn;
  spawn.argv = other.argv;
  auto child = Child::spawn(spawn);
  if (!child) return false;
  other.child.emplace(std::move(*child));
  for (int i = 0; i < 600 && other.child->pid() > 0; ++i) {
    Wire wire = dial(other.port);
    if (wire.fd() >= 0) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return false;
}

// The sites, and the egress process that leads to them.
class Bench {
 public:
  Bench()
      : raw_site_("44.128.1.1", 9000, serve_raw),
        plain_site_("44.128.1.3", 80, serve_http),
        secure_site_("44.128.1.2", 443, serve_http,
                     authority_.context_for({.name = "44.128.1.2"}, {"http/1.1"})),
        newer_site_(
            "44.128.1.4", 443, [this](Wire& wire) { serve_http2(wire); },
            authority_.context_for({.name = "44.128.1.4"}, {"h2"})) {
    (void)write_file_atomic(path("ca.pem"), authority_.pem());
    spec_.session_token = "a-token-of-the-session";
    spec_.program = std::filesystem::path(ANCHORHOLD_PROGRAM_DIR) / "anchorhold-egressd";
    spec_.trust.system = false;
    spec_.trust.extra_ca = {path("ca.pem")};
    policy::EgressRule tunnel, inspect;
    tunnel.host = *policy::HostPattern::parse("44.128.1.1");
    tunnel.ports = {9000};
    tunnel.action = inspect.action = policy::EgressAction::allow;
    tunnel.tunnel_only = true;
    inspect.host = *policy::HostPattern::parse("44.128.1.2");
    inspect.deny_headers = {"x-never-sent"};
    policy::EgressRule plain_rule = inspect;
    plain_rule.host = *policy::HostPattern::parse("44.128.1.3");
    plain_rule.deny_headers.clear();
    policy::EgressRule newer_rule = inspect;
    newer_rule.host = *policy::HostPattern::parse("44.128.1.4");
    spec_.policy.rules.user = {tunnel, inspect, plain_rule, newer_rule};
    host_.sink = &sink_;
  }
  std::unique_ptr<egress::Door> start() {
    auto door = egress::Door::start(spec_, host_);
    if (door) return std::move(*door);
    std::printf("%s\n", door.error().message.c_str());
    std::exit(1);
  }
  std::string path(const char* name) { return (folder_.path() / name).string(); }
  const std::string& trust() { return authority_.pem(); }
  // Connections of HTTP/2 that were let go of.
  int let_go() const { return let_go_; }

 private:
  void serve_http2(Wire& wire) {
    Http2Peer peer(wire, true);
    peer.serve([](const Http2Message&) {
      Http2Message message;
      message.fields = {{":status", "200"}};
      message.body = "hello, small body";
      return message;
    });
    ++let_go_;
  }

  std::atomic<int> let_go_{0};
  TemporaryDirectory folder_ = *TemporaryDirectory::create("egress-bench");
  TestAuthority authority_;
  Site raw_site_, plain_site_, secure_site_, newer_site_;
  CountingSink sink_;
  egress::DoorSpec spec_;
  egress::DoorHost host_;
};

// Those that pass bytes on.
std::vector<Other> others_of(Bench& bench) {
  (void)write_file_atomic(
      bench.path("squid.conf"),
      "http_port 127.0.0.1:3128\nhttp_access allow all\ncache deny all\naccess_log none\n"
      "cache_log /dev/null\npid_filename none\nvisible_hostname bench\npinger_enable off\n"
      "cache_effective_user proxy\ncoredump_dir /tmp\nmax_filedescriptors 8192\n",
      0644);
  (void)write_file_atomic(bench.path("tinyproxy.conf"),
                          "Port 8888\nListen 127.0.0.1\nMaxClients 1000\nLogLevel Error\nTimeout 600\n",
                          0644);
  std::vector<Other> others;
  others.push_back({"squid", {"/usr/sbin/squid", "-N", "-f", bench.path("squid.conf")}, 3128, {}});
  others.push_back({"tinyproxy", {"/usr/bin/tinyproxy", "-d", "-c", bench.path("tinyproxy.conf")}, 8888, {}});
  return others;
}

void measure_tunnels(Bench& bench, egress::Door& door) {
  std::vector<Other> others = others_of(bench);
  std::map<std::string, Open> tunnels{{"egressd", [&] { return own_of(door); }}};
  std::map<std::string, pid_t> pids{{"egressd", door.pid()}};
  for (Other& other : others) {
    if (!begin(other)) {
      std::printf("%s could not be started: it is not measured\n", other.argv[0].c_str());
      continue;
    }
    tunnels[other.name] = [port = other.port] { return dial(port); };
    pids[other.name] = other.child->pid();
  }
  // On a machine that does other things as well, what the processors were used for says more than the time.
  std::map<std::string, double> figures, cost;
  auto measure = [&](double (*figure)(const Open&)) {
    for (const auto& [name, open] : tunnels) {
      const double before = cpu_seconds(pids[name]);
      const auto begin = Clock::now();
      figures[name] = figure(open);
      const double count = figures[name] * std::chrono::duration<double>(Clock::now() - begin).count();
      cost[name] = count > 0 ? (cpu_seconds(pids[name]) - before) * 1e6 / count : 0;
    }
  };
  measure(connections);
  print("tunnelled connections", figures, "/s");
  print_cost(cost, "us of its processor time each");
  measure(round_trips);
  print("tunnelled round trips", figures, "/s");
  print_cost(cost, "us of its processor time each");
  measure(tunnelled);
  print("tunnelled bytes", figures, "MiB/s");
  print_cost(cost, "us of its processor time a MiB");
  const double direct = tunnel_latency([] { return dial_site(raw); }, true);
  for (const auto& [name, open] : tunnels) figures[name] = tunnel_latency(open, false) - direct;
  print_cost(figures, "us added to a round trip in a tunnel");
  measure(plain_requests);
  print("http:// requests", figures, "/s");
}

void measure_opened(Bench& bench, egress::Door& door) {
  std::map<std::string, double> requests, bytes, dialled, added;
  const double direct = opened_latency([] { return dial_site(secure); }, bench.trust(), true);
  auto measure = [&](const std::string& name, const Open& open, const std::string& trust) {
    requests[name] = opened_requests(open, trust);
    bytes[name] = opened_bytes(open, trust);
    dialled[name] = opened_connections(open, trust);
    added[name] = opened_latency(open, trust, false) - direct;
  };
  measure(
      "egressd", [&] { return own_of(door); }, door.ca_certificate_pem());
  Other mitm{"mitmproxy",
             {"/usr/bin/mitmdump", "-q", "--listen-host", "127.0.0.1", "--listen-port", "8889",
              "--ssl-insecure", "--set", "confdir=" + bench.path("mitm")},
             8889,
             {}};
  auto text = begin(mitm) ? read_file(bench.path("mitm/mitmproxy-ca-cert.pem"), 1 << 20)
                          : Result<std::string>(std::string());
  if (text && !text->empty())
    measure(
        "mitmproxy", [] { return dial(8889); }, *text);
  else
    std::printf("%s could not be started: it is not measured\n", mitm.argv[0].c_str());
  print("opened requests", requests, "/s");
  print("opened bytes", bytes, "MiB/s");
  print("opened connections", dialled, "/s");
  print_cost(added, "us added to a request in an opened connection");
}

// In a process that has not been busy: what a burst leaves behind is given back later.
void measure_memory(Bench& bench) {
  auto door = bench.start();
  const std::string ca = door->ca_certificate_pem();
  auto idle = [&](int count, bool tls) {
    std::vector<Wire> wires;
    long before = 0;
    // The first ones pay for what is made once.
    for (int i = 0; i < count + 50; ++i) {
      if (i == 50) before = status_kib(door->pid(), "VmRSS:");
      wires.push_back(own_of(*door));
      if (!through(wires.back(), tls ? secure : raw)) return -1.0;
      if (tls && !wires.back().connect_tls(ca, "").empty()) return -1.0;
    }
    return static_cast<double>(status_kib(door->pid(), "VmRSS:") - before) / count;
  };
  const double tunnelled_kib = idle(1000, false);
  std::printf("memory of an idle connection  tunnelled %.1f KiB  opened %.1f KiB\n", tunnelled_kib,
              idle(500, true));
  std::fflush(stdout);
}

// Connections of HTTP/2 that have served a request: while their server is kept, and after.
void measure_memory_of_http2(Bench& bench) {
  auto door = bench.start();
  const std::string ca = door->ca_certificate_pem();
  constexpr int count = 500, first_ones = 50;
  std::list<Wire> wires;
  std::list<Http2Peer> peers;
  long before = 0;
  auto each = [&] { return static_cast<double>(status_kib(door->pid(), "VmRSS:") - before) / count; };
  for (int i = 0; i < count + first_ones; ++i) {
    if (i == first_ones) before = status_kib(door->pid(), "VmRSS:");
    Wire& wire = wires.emplace_back(own_of(*door));
    if (!through(wire, newer) || !wire.connect_tls(ca, "", {"h2"}).empty()) return;
    Http2Peer& peer = peers.emplace_back(wire, false);
    auto id = peer.request(
        {{":method", "GET"}, {":scheme", "https"}, {":authority", "44.128.1.4"}, {":path", "/"}});
    if (peer.response(id).body.empty()) return;
  }
  const double kept = each();
  for (int i = 0; i < 6000 && bench.let_go() < count + first_ones; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  // What they held is given back to the system a moment later.
  std::this_thread::sleep_for(std::chrono::seconds(1));
  std::printf("                              HTTP/2 %.1f KiB, and %.1f while its server is kept\n", each(),
              kept);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  if (argc > 1) run_time = std::chrono::milliseconds(static_cast<int>(std::atof(argv[1]) * 1000));
  raise_descriptor_limit();
  prepare_private_network();
  if (!no_private_network().empty()) return std::printf("%s\n", no_private_network().c_str()), 77;
  Bench bench;
  auto door = bench.start();
  measure_tunnels(bench, *door);
  measure_opened(bench, *door);
  measure_memory(bench);
  measure_memory_of_http2(bench);
  print_guest_figures(*door, raw, serve_raw);
  return 0;
}
