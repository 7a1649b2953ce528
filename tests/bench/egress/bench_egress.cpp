// What the egress process costs, against proxies that people use, on the same servers in one run. Streams of
// a guest are given to the process as the session gives them; the others are reached over TCP. Usage:
// bench_egress [seconds per figure]
#include <algorithm>
#include <arpa/inet.h>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <netinet/tcp.h>
#include <sstream>
#include <sys/resource.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "base/files.h"
#include "base/process.h"
#include "egress/door.h"
#include "guest_figures.h"
#include "network.h"
#include "site.h"

using namespace anchorhold;
using namespace anchorhold::testing;
using Clock = std::chrono::steady_clock;

namespace {

constexpr int clients = 16;
const std::string raw = "44.128.1.1:9000", secure = "44.128.1.2:443";
std::chrono::milliseconds run_time(3000);

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

using Open = std::function<Wire()>;

Wire dial(std::uint16_t port) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(port);
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int one = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&where), sizeof where) != 0) return Wire(UniqueFd());
  return Wire(std::move(fd));
}

// A server itself, without a proxy.
Wire dial_site(const std::string& destination) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto colon = destination.find(':');
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(static_cast<std::uint16_t>(std::stoi(destination.substr(colon + 1))));
  inet_pton(AF_INET, destination.substr(0, colon).c_str(), &where.sin_addr);
  int one = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&where), sizeof where) != 0) return Wire(UniqueFd());
  return Wire(std::move(fd));
}

Wire own_of(egress::Door& door) {
  auto [ours, theirs] = *socket_pair(SOCK_STREAM);
  (void)door.adopt(std::move(theirs));
  return Wire(std::move(ours));
}

bool through(Wire& wire, const std::string& destination) {
  wire.write("CONNECT " + destination + " HTTP/1.1\r\nHost: " + destination + "\r\n\r\n");
  std::string answer = wire.read_until("\r\n\r\n");
  return answer.size() > 9 && answer.substr(9, 3) == "200";
}

// Runs `step` on as many threads as there are clients, and gives what it counts for each second.
double rate(const std::function<std::function<double()>()>& make_step, int threads = clients) {
  std::atomic<bool> over{false};
  std::vector<double> counted(static_cast<std::size_t>(threads), 0);
  std::vector<std::thread> running;
  auto begin = Clock::now();
  for (int i = 0; i < threads; ++i)
    running.emplace_back([&, i] {
      auto step = make_step();
      while (!over) {
        double count = step();
        if (count <= 0) break;
        counted[static_cast<std::size_t>(i)] += count;
      }
    });
  std::this_thread::sleep_for(run_time);
  over = true;
  for (auto& thread : running) thread.join();
  double total = 0;
  for (double count : counted) total += count;
  return total / std::chrono::duration<double>(Clock::now() - begin).count();
}

double connections(const Open& open) {
  return rate([&] {
    return [&] {
      Wire wire = open();
      if (!through(wire, raw)) return 0.0;
      wire.write("p");
      return wire.read_exactly(4) == "pong" ? 1.0 : 0.0;
    };
  });
}

double round_trips(const Open& open) {
  return rate([&] {
    auto wire = std::make_shared<Wire>(open());
    bool ready = through(*wire, raw);
    return [wire, ready] {
      if (!ready) return 0.0;
      wire->write("p");
      return wire->read_exactly(4) == "pong" ? 1.0 : 0.0;
    };
  });
}

// The median of one client's round trips, in microseconds.
double latency(const std::function<bool()>& round_trip) {
  std::vector<double> times;
  for (auto end = Clock::now() + run_time; Clock::now() < end;) {
    auto begin = Clock::now();
    if (!round_trip()) return -1;
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

double tunnel_latency(const Open& open, bool direct) {
  Wire wire = open();
  if (!direct && !through(wire, raw)) return -1;
  return latency([&] { return wire.write("p") && wire.read_exactly(4) == "pong"; });
}

// Requests that have a connection through the proxy already, as HTTP in TLS.
double opened_latency(const Open& open, const std::string& trust, bool direct) {
  Wire wire = open();
  if (!direct && !through(wire, secure)) return -1;
  if (!wire.connect_tls(trust, "").empty()) return -1;
  return latency([&] {
    return wire.write("GET / HTTP/1.1\r\nHost: 44.128.1.2\r\n\r\n") &&
           wire.read_until("small body").ends_with("small body");
  });
}

// With TLS from both sides and one request each.
double opened_connections(const Open& open, const std::string& trust) {
  return rate([&] {
    return [&] {
      Wire wire = open();
      if (!through(wire, secure) || !wire.connect_tls(trust, "").empty()) return 0.0;
      wire.write("GET / HTTP/1.1\r\nHost: 44.128.1.2\r\n\r\n");
      return wire.read_until("small body").ends_with("small body") ? 1.0 : 0.0;
    };
  });
}

// Requests to a proxy, http://.
double plain_requests(const Open& open) {
  return rate([&] {
    auto wire = std::make_shared<Wire>(open());
    return [wire] {
      if (!wire->write("GET http://44.128.1.3/ HTTP/1.1\r\nHost: 44.128.1.3\r\n\r\n")) return 0.0;
      std::string head = wire->read_until("small body");
      return head.starts_with("HTTP/1.1 200") && head.ends_with("small body") ? 1.0 : 0.0;
    };
  });
}

double tunnelled(const Open& open) {
  return rate(
      [&] {
        auto wire = std::make_shared<Wire>(open());
        bool ready = through(*wire, raw) && wire->write("s");
        return [wire, ready] {
          if (!ready) return 0.0;
          return static_cast<double>(wire->read_some().size()) / (1 << 20);
        };
      },
      2);
}

double opened(const Open& open, const std::string& trust, const char* path, double unit, int threads) {
  return rate(
      [&, path, unit] {
        auto wire = std::make_shared<Wire>(open());
        bool ready = through(*wire, secure) && wire->connect_tls(trust, "").empty();
        std::string request = std::string("GET ") + path + " HTTP/1.1\r\nHost: 44.128.1.2\r\n\r\n";
        return [wire, ready, request, unit] {
          if (!ready || !wire->write(request)) return 0.0;
          std::string head = wire->read_until("\r\n\r\n");
          auto length = field_of(head, "content-length");
          if (length.empty()) return 0.0;
          std::size_t left = std::stoul(length), size = left;
          while (left > 0) {
            std::string part = wire->read_some();
            if (part.empty()) return 0.0;
            left -= std::min(left, part.size());
          }
          return unit > 0 ? static_cast<double>(size) / unit : 1.0;
        };
      },
      threads);
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

long resident_kib(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmRSS:")) return std::atol(line.c_str() + 6);
  return 0;
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

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  if (argc > 1) run_time = std::chrono::milliseconds(static_cast<int>(std::atof(argv[1]) * 1000));
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  prepare_private_network();
  if (!no_private_network().empty()) return std::printf("%s\n", no_private_network().c_str()), 77;
  auto folder = *TemporaryDirectory::create("egress-bench");
  auto path = [&](const char* name) { return (folder.path() / name).string(); };
  TestAuthority authority;
  (void)write_file_atomic(path("ca.pem"), authority.pem());
  Site raw_site("44.128.1.1", 9000, serve_raw);
  Site plain_site("44.128.1.3", 80, serve_http);
  Site secure_site("44.128.1.2", 443, serve_http,
                   authority.context_for({.name = "44.128.1.2"}, {"http/1.1"}));

  CountingSink sink;
  egress::DoorSpec spec;
  spec.session_token = "a-token-of-the-session";
  spec.program = std::filesystem::path(ANCHORHOLD_PROGRAM_DIR) / "anchorhold-egressd";
  spec.trust.system = false;
  spec.trust.extra_ca = {path("ca.pem")};
  policy::EgressRule tunnel, inspect;
  tunnel.host = *policy::HostPattern::parse("44.128.1.1");
  tunnel.ports = {9000};
  tunnel.action = inspect.action = policy::EgressAction::allow;
  tunnel.tunnel_only = true;
  inspect.host = *policy::HostPattern::parse("44.128.1.2");
  inspect.deny_headers = {"x-never-sent"};
  policy::EgressRule plain = inspect;
  plain.host = *policy::HostPattern::parse("44.128.1.3");
  plain.deny_headers.clear();
  spec.policy.rules.user = {tunnel, inspect, plain};
  egress::DoorHost host;
  host.sink = &sink;
  auto door = egress::Door::start(spec, host);
  if (!door) return std::printf("%s\n", door.error().message.c_str()), 1;
  Open own = [&] { return own_of(**door); };

  (void)write_file_atomic(
      path("squid.conf"),
      "http_port 127.0.0.1:3128\nhttp_access allow all\ncache deny all\naccess_log none\n"
      "cache_log /dev/null\npid_filename none\nvisible_hostname bench\npinger_enable off\n"
      "cache_effective_user proxy\ncoredump_dir /tmp\nmax_filedescriptors 8192\n",
      0644);
  (void)write_file_atomic(path("tinyproxy.conf"),
                          "Port 8888\nListen 127.0.0.1\nMaxClients 1000\nLogLevel Error\nTimeout 600\n",
                          0644);
  std::vector<Other> others;
  others.push_back({"squid", {"/usr/sbin/squid", "-N", "-f", path("squid.conf")}, 3128, {}});
  others.push_back({"tinyproxy", {"/usr/bin/tinyproxy", "-d", "-c", path("tinyproxy.conf")}, 8888, {}});
  Other mitm{"mitmproxy",
             {"/usr/bin/mitmdump", "-q", "--listen-host", "127.0.0.1", "--listen-port", "8889",
              "--ssl-insecure", "--set", "confdir=" + path("mitm")},
             8889,
             {}};

  std::map<std::string, Open> tunnels{{"egressd", own}};
  for (Other& other : others)
    if (begin(other)) tunnels[other.name] = [port = other.port] { return dial(port); };
  std::map<std::string, pid_t> pids{{"egressd", (*door)->pid()}};
  for (Other& other : others)
    if (other.child) pids[other.name] = other.child->pid();
  // On a machine that does other things as well, what the processors were used for says more than the time.
  std::map<std::string, double> figures, cost;
  auto measure = [&](const std::string& name, const std::function<double()>& figure, double per) {
    double before = cpu_seconds(pids[name]);
    auto begin = Clock::now();
    figures[name] = figure();
    double count = figures[name] * std::chrono::duration<double>(Clock::now() - begin).count();
    cost[name] = count > 0 ? (cpu_seconds(pids[name]) - before) * 1e6 / count * per : 0;
  };
  for (const auto& [name, open] : tunnels)
    measure(
        name, [&] { return connections(open); }, 1);
  print("tunnelled connections", figures, "/s");
  print_cost(cost, "us of its processor time each");
  for (const auto& [name, open] : tunnels)
    measure(
        name, [&] { return round_trips(open); }, 1);
  print("tunnelled round trips", figures, "/s");
  print_cost(cost, "us of its processor time each");
  for (const auto& [name, open] : tunnels)
    measure(
        name, [&] { return tunnelled(open); }, 1);
  print("tunnelled bytes", figures, "MiB/s");
  print_cost(cost, "us of its processor time a MiB");
  double direct = tunnel_latency([] { return dial_site(raw); }, true);
  for (const auto& [name, open] : tunnels) figures[name] = tunnel_latency(open, false) - direct;
  print_cost(figures, "us added to a round trip in a tunnel");
  for (const auto& [name, open] : tunnels)
    measure(
        name, [&] { return plain_requests(open); }, 1);
  print("http:// requests", figures, "/s");
  for (Other& other : others) other.child.reset();

  figures.clear();
  std::string ca = (*door)->ca_certificate_pem(), mitm_ca;
  std::map<std::string, double> bytes, dialled, added;
  direct = opened_latency([] { return dial_site(secure); }, authority.pem(), true);
  auto measure_opened = [&](const std::string& name, const Open& open, const std::string& trust) {
    figures[name] = opened(open, trust, "/", 0, clients);
    bytes[name] = opened(open, trust, "/big", 1 << 20, 2);
    dialled[name] = opened_connections(open, trust);
    added[name] = opened_latency(open, trust, false) - direct;
  };
  measure_opened("egressd", own, ca);
  if (begin(mitm)) {
    auto text = read_file(path("mitm/mitmproxy-ca-cert.pem"), 1 << 20);
    Open open = [] { return dial(8889); };
    if (text) measure_opened("mitmproxy", open, *text);
    mitm.child.reset();
  }
  print("opened requests", figures, "/s");
  print("opened bytes", bytes, "MiB/s");
  print("opened connections", dialled, "/s");
  print_cost(added, "us added to a request in an opened connection");

  // In a process that has not been busy: what a burst leaves behind is given back later.
  auto fresh = egress::Door::start(spec, host);
  if (!fresh) return 1;
  auto idle = [&](int count, bool tls) {
    Open open = [&] { return own_of(**fresh); };
    std::string fresh_ca = (*fresh)->ca_certificate_pem();
    std::vector<Wire> wires;
    long before = 0;
    // The first ones pay for what is made once.
    for (int i = 0; i < count + 50; ++i) {
      if (i == 50) before = resident_kib((*fresh)->pid());
      wires.push_back(open());
      if (!through(wires.back(), tls ? secure : raw)) return -1.0;
      if (tls && !wires.back().connect_tls(fresh_ca, "").empty()) return -1.0;
    }
    return static_cast<double>(resident_kib((*fresh)->pid()) - before) / count;
  };
  double tunnelled_kib = idle(1000, false);
  std::printf("memory of an idle connection  tunnelled %.1f KiB  opened %.1f KiB\n", tunnelled_kib,
              idle(500, true));
  print_guest_figures(**door, raw, serve_raw);
  return 0;
}
