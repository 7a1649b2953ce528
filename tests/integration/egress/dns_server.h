// A small authoritative name server, on UDP and TCP, whose answers a test sets.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"

namespace anchorhold::testing {

class DnsServer {
 public:
  explicit DnsServer(std::string address);
  ~DnsServer();
  const std::string& address() const { return address_; }

  struct Name {
    std::vector<std::string> addresses{};  // of both families
    std::string alias{};                   // CNAME; then addresses are those of the alias
    bool broken = false;                   // SERVFAIL
    bool silent = false;                   // never answered
    std::vector<std::string> next{};       // addresses from the second question for A on
  };
  void set_name(const std::string& name, Name what);
  void set(const std::string& name, std::vector<std::string> addresses) {
    set_name(name, Name{.addresses = std::move(addresses)});
  }
  // How often this name was asked for, for A.
  int asked(const std::string& name);
  // Every name that was asked for, in order.
  std::vector<std::string> questions();

 private:
  void run();
  std::string answer(const std::string& query);

  std::string address_;
  UniqueFd socket_, stop_;
  std::mutex mutex_;
  std::map<std::string, Name> names_;
  std::map<std::string, int> asked_;
  std::vector<std::string> questions_;
  std::thread thread_;
};

}  // namespace anchorhold::testing
