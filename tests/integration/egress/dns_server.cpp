#include "dns_server.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdexcept>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

namespace anchorhold::testing {
namespace {

constexpr int type_a = 1, type_cname = 5, type_aaaa = 28;

void add16(std::string& out, unsigned value) {
  out += static_cast<char>(value >> 8);
  out += static_cast<char>(value);
}

std::string encoded(const std::string& name) {
  std::string out;
  for (std::size_t begin = 0; begin < name.size();) {
    auto end = std::min(name.find('.', begin), name.size());
    out += static_cast<char>(end - begin);
    out += name.substr(begin, end - begin);
    begin = end + 1;
  }
  return out += '\0';
}

void add_record(std::string& out, const std::string& name, int type, const std::string& data) {
  out += encoded(name);
  add16(out, static_cast<unsigned>(type));
  add16(out, 1);
  out += std::string(3, '\0') + '\x01';  // one second
  add16(out, static_cast<unsigned>(data.size()));
  out += data;
}

}  // namespace

DnsServer::DnsServer(std::string address) : address_(std::move(address)) {
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(53);
  inet_pton(AF_INET, address_.c_str(), &where.sin_addr);
  socket_.reset(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  stop_.reset(eventfd(0, EFD_CLOEXEC));
  if (bind(socket_.get(), reinterpret_cast<sockaddr*>(&where), sizeof where) != 0)
    throw std::runtime_error("the name server cannot have " + address_);
  thread_ = std::thread([this] { run(); });
}

DnsServer::~DnsServer() {
  std::uint64_t one = 1;
  (void)!write(stop_.get(), &one, sizeof one);
  thread_.join();
}

void DnsServer::set_name(const std::string& name, Name what) {
  std::lock_guard lock(mutex_);
  names_[name] = std::move(what);
}

int DnsServer::asked(const std::string& name) {
  std::lock_guard lock(mutex_);
  return asked_[name];
}

std::vector<std::string> DnsServer::questions() {
  std::lock_guard lock(mutex_);
  return questions_;
}

void DnsServer::run() {
  for (;;) {
    pollfd entries[] = {{stop_.get(), POLLIN, 0}, {socket_.get(), POLLIN, 0}};
    if (poll(entries, 2, -1) < 0) continue;
    if (entries[0].revents) return;
    char buffer[1500];
    sockaddr_storage from{};
    socklen_t size = sizeof from;
    ssize_t count =
        recvfrom(socket_.get(), buffer, sizeof buffer, 0, reinterpret_cast<sockaddr*>(&from), &size);
    if (count < 12) continue;
    std::string reply = answer({buffer, static_cast<std::size_t>(count)});
    if (!reply.empty())
      sendto(socket_.get(), reply.data(), reply.size(), 0, reinterpret_cast<sockaddr*>(&from), size);
  }
}

std::string DnsServer::answer(const std::string& query) {
  std::string name;
  std::size_t at = 12;
  while (at < query.size() && query[at] != 0) {
    auto size = static_cast<unsigned char>(query[at]);
    if (!name.empty()) name += '.';
    name += query.substr(at + 1, size);
    at += 1u + size;
  }
  if (at + 5 > query.size()) return {};
  int type = static_cast<unsigned char>(query[at + 2]);
  std::string question = query.substr(12, at + 5 - 12);
  std::lock_guard lock(mutex_);
  questions_.push_back(name);
  int times = type == type_a ? asked_[name]++ : 0;
  auto found = names_.find(name);
  bool known = found != names_.end();
  if (known && found->second.silent) return {};
  int code = !known ? 3 : found->second.broken ? 2 : 0;
  std::string records;
  unsigned count = 0;
  std::string owner = name;
  while (code == 0 && !found->second.alias.empty()) {
    const std::string& alias = found->second.alias;
    add_record(records, owner, type_cname, encoded(alias));
    ++count;
    owner = alias;
    found = names_.find(alias);
    if (found == names_.end() || count > 16) break;
  }
  if (code == 0 && found != names_.end()) {
    const Name& what = found->second;
    for (const std::string& address : times > 0 && !what.next.empty() ? what.next : what.addresses) {
      bool v6 = address.find(':') != std::string::npos;
      if (v6 != (type == type_aaaa) || (type != type_a && type != type_aaaa)) continue;
      std::string data(v6 ? 16 : 4, '\0');
      inet_pton(v6 ? AF_INET6 : AF_INET, address.c_str(), data.data());
      add_record(records, owner, type, data);
      ++count;
    }
  }
  std::string reply = query.substr(0, 2);
  add16(reply, 0x8580u | static_cast<unsigned>(code));
  add16(reply, 1);
  add16(reply, count);
  add16(reply, 0);
  add16(reply, 0);
  return reply + question + records;
}

}  // namespace anchorhold::testing
