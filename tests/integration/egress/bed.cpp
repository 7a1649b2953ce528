#include "bed.h"

#include <chrono>
#include <sys/socket.h>

namespace anchorhold::testing {
namespace {

constexpr std::chrono::seconds event_limit(30);

}  // namespace

std::string RecordingSink::text_of(const events::Event& event) {
  std::string text(event.name().text);
  for (const auto& [key, value] : event.attributes()) {
    text += " " + key + "=";
    if (const auto* words = std::get_if<std::string>(&value)) text += *words;
    if (const auto* number = std::get_if<std::int64_t>(&value)) text += std::to_string(*number);
    if (const auto* flag = std::get_if<bool>(&value)) text += *flag ? "true" : "false";
  }
  return text;
}

Status RecordingSink::record(events::Event event) {
  std::lock_guard lock(mutex_);
  if (refusing_) return fail(ErrorCode::resource_exhausted, "the disk is full");
  events_.push_back(std::move(event));
  changed_.notify_all();
  return {};
}

std::optional<events::Event> RecordingSink::wait_for(std::string_view name, std::string_view text) {
  std::unique_lock lock(mutex_);
  std::optional<events::Event> found;
  changed_.wait_for(lock, event_limit, [&] {
    for (const auto& event : events_)
      if (event.name().text == name && text_of(event).find(text) != std::string::npos) found = event;
    return found.has_value();
  });
  return found;
}

std::vector<std::string> RecordingSink::all() {
  std::lock_guard lock(mutex_);
  std::vector<std::string> texts;
  for (const auto& event : events_) texts.push_back(text_of(event));
  return texts;
}

int RecordingSink::count(std::string_view name) {
  std::lock_guard lock(mutex_);
  int count = 0;
  for (const auto& event : events_) count += event.name().text == name ? 1 : 0;
  return count;
}

void RecordingSink::refuse_from_now_on() {
  std::lock_guard lock(mutex_);
  refusing_ = true;
}

void Counter::add() {
  std::lock_guard lock(mutex_);
  ++count_;
  changed_.notify_all();
}

bool Counter::wait_for(int count) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, event_limit, [&] { return count_ >= count; });
}

policy::EgressRule rule(const std::string& host, policy::EgressAction action,
                        std::vector<std::uint16_t> ports) {
  policy::EgressRule made;
  made.host = *policy::HostPattern::parse(host);
  made.ports = std::move(ports);
  made.action = action;
  made.source = "test";
  return made;
}

policy::EgressRule opened(const std::string& host, std::vector<std::uint16_t> ports) {
  auto made = rule(host, policy::EgressAction::allow, std::move(ports));
  made.deny_headers = {"x-never-sent"};
  return made;
}

void EgressBed::SetUp() {
  if (!no_private_network().empty()) GTEST_SKIP() << no_private_network();
  folder_ = *TemporaryDirectory::create("egress");
  dns_ = std::make_unique<DnsServer>("44.128.0.53");
  spec_.session_token = session_token;
  spec_.resolver.servers = {"44.128.0.53"};
  spec_.trust.system = false;
  spec_.trust.extra_ca = {file("ca.pem", authority_.pem())};
  spec_.program = std::filesystem::path(ANCHORHOLD_PROGRAM_DIR) / "anchorhold-egressd";
  host_.sink = &sink_;
}

std::filesystem::path EgressBed::file(const std::string& name, const std::string& text) {
  auto path = folder_->path() / name;
  EXPECT_TRUE(write_file_atomic(path, text).has_value());
  return path;
}

void EgressBed::start() {
  auto door = egress::Door::start(spec_, host_);
  ASSERT_TRUE(door.has_value()) << door.error().message;
  door_ = std::move(*door);
}

Wire EgressBed::open() {
  auto [ours, theirs] = *socket_pair(SOCK_STREAM);
  auto adopted = door_->adopt(std::move(theirs));
  EXPECT_TRUE(adopted.has_value()) << adopted.error().message;
  return Wire(std::move(ours));
}

Wire EgressBed::connect(const std::string& destination, std::string* answer) {
  Wire wire = open();
  wire.write("CONNECT " + destination + " HTTP/1.1\r\nHost: " + destination + "\r\n\r\n");
  std::string said = wire.read_until("\r\n\r\n");
  if (answer)
    *answer = said;
  else
    EXPECT_TRUE(said.starts_with("HTTP/1.1 200 ")) << said;
  return wire;
}

std::string EgressBed::refused_connect(const std::string& destination) {
  std::string answer;
  Wire wire = connect(destination, &answer);
  std::string body = wire.read_all();
  EXPECT_FALSE(answer.starts_with("HTTP/1.1 200")) << destination;
  EXPECT_FALSE(field_of(answer, "x-anchorhold-reason").empty()) << answer;
  EXPECT_THAT(body, ::testing::HasSubstr("\"reason\""));
  return answer.substr(9, 3) + " " + field_of(answer, "x-anchorhold-reason");
}

}  // namespace anchorhold::testing
