#include "measures.h"

#include <algorithm>
#include <arpa/inet.h>
#include <atomic>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <thread>
#include <vector>

namespace anchorhold::testing {

std::chrono::milliseconds run_time(3000);

namespace {

constexpr int clients = 16;
using Clock = std::chrono::steady_clock;

Wire dial_address(const sockaddr_in& where) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  int one = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&where), sizeof where) != 0)
    return Wire(UniqueFd());
  return Wire(std::move(fd));
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

}  // namespace

Wire dial(std::uint16_t port) {
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(port);
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return dial_address(where);
}

Wire dial_site(const std::string& destination) {
  const auto colon = destination.find(':');
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(static_cast<std::uint16_t>(std::stoi(destination.substr(colon + 1))));
  inet_pton(AF_INET, destination.substr(0, colon).c_str(), &where.sin_addr);
  return dial_address(where);
}

bool through(Wire& wire, const std::string& destination) {
  wire.write("CONNECT " + destination + " HTTP/1.1\r\nHost: " + destination + "\r\n\r\n");
  std::string answer = wire.read_until("\r\n\r\n");
  return answer.size() > 9 && answer.substr(9, 3) == "200";
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

double tunnel_latency(const Open& open, bool direct) {
  Wire wire = open();
  if (!direct && !through(wire, raw)) return -1;
  return latency([&] { return wire.write("p") && wire.read_exactly(4) == "pong"; });
}

double opened_latency(const Open& open, const std::string& trust, bool direct) {
  Wire wire = open();
  if (!direct && !through(wire, secure)) return -1;
  if (!wire.connect_tls(trust, "").empty()) return -1;
  return latency([&] {
    return wire.write("GET / HTTP/1.1\r\nHost: 44.128.1.2\r\n\r\n") &&
           wire.read_until("small body").ends_with("small body");
  });
}

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

namespace {

// Counts responses, or bytes in this unit.
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

}  // namespace

double opened_requests(const Open& open, const std::string& trust) {
  return opened(open, trust, "/", 0, clients);
}

double opened_bytes(const Open& open, const std::string& trust) {
  return opened(open, trust, "/big", 1 << 20, 2);
}

}  // namespace anchorhold::testing
