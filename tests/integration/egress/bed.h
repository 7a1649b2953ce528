// Everything around the egress process that a test needs: a private network, a name server, an authority that
// servers are vouched for by, a door with a policy, and a log of what it recorded.
#pragma once

#include <condition_variable>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/files.h"
#include "dns_server.h"
#include "egress/door.h"
#include "network.h"
#include "site.h"

namespace anchorhold::testing {

inline const std::string session_token = "anchorhold-session-0123456789abcdef";

class RecordingSink : public events::EventSink {
 public:
  Status record(events::Event event) override;
  // Waits for an event of this name whose text form holds this; nothing after a generous time.
  std::optional<events::Event> wait_for(std::string_view name, std::string_view text = {});
  std::vector<std::string> all();
  int count(std::string_view name);
  void refuse_from_now_on();
  static std::string text_of(const events::Event& event);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<events::Event> events_;
  bool refusing_ = false;
};

policy::EgressRule rule(const std::string& host, policy::EgressAction action = policy::EgressAction::allow,
                        std::vector<std::uint16_t> ports = {443, 80});
// An inspecting one, by a header that nobody sends.
policy::EgressRule opened(const std::string& host, std::vector<std::uint16_t> ports = {443, 80});

// What servers count, and a test waits for.
class Counter {
 public:
  void add();
  // False after a generous time.
  bool wait_for(int count);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
};

// Skips the test when there is no private network.
class EgressBed : public ::testing::Test {
 protected:
  void SetUp() override;
  // The specification that start() takes; tests change it before.
  egress::DoorSpec& spec() { return spec_; }
  egress::DoorHost& host() { return host_; }
  void allow(policy::EgressRule rule) { spec_.policy.rules.user.push_back(std::move(rule)); }
  void start();
  egress::Door& door() { return *door_; }
  void stop() { door_.reset(); }

  // A connection of the guest.
  Wire open();
  // Through CONNECT; what the proxy said is in `answer`.
  Wire connect(const std::string& destination, std::string* answer = nullptr);
  // CONNECT refused: the status and reason.
  std::string refused_connect(const std::string& destination);

  DnsServer& dns() { return *dns_; }
  TestAuthority& authority() { return authority_; }
  SSL_CTX* tls(const std::string& name, std::vector<std::string> protocols = {"http/1.1"}) {
    return authority_.context_for({.name = name}, std::move(protocols));
  }
  RecordingSink& sink() { return sink_; }
  std::filesystem::path file(const std::string& name, const std::string& text);

 private:
  TestAuthority authority_;
  RecordingSink sink_;
  std::optional<TemporaryDirectory> folder_;
  std::unique_ptr<DnsServer> dns_;
  egress::DoorSpec spec_;
  egress::DoorHost host_;
  std::unique_ptr<egress::Door> door_;
};

}  // namespace anchorhold::testing
