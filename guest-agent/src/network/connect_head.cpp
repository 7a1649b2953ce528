#include "connect_head.h"

#include <algorithm>
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include "dns_answer.h"

namespace anchorhold::guest {
namespace {

constexpr unsigned char socks_no_method = 0xff, socks_no_command = 7, socks_no_address = 8;

unsigned char byte_at(std::string_view bytes, std::size_t at) {
  return static_cast<unsigned char>(bytes[at]);
}

SocksRequest refuse(unsigned char code) {
  return {SocksRequest::Kind::refused, 0, {}, socks_reply(code)};
}

SocksRequest read_greeting(std::string_view bytes) {
  if (bytes.size() < 2 || bytes.size() < 2u + byte_at(bytes, 1)) return {};
  std::size_t used = 2u + byte_at(bytes, 1);
  if (bytes.substr(2, used - 2).find('\0') == bytes.npos)
    return {SocksRequest::Kind::refused, used, {}, {'\x05', static_cast<char>(socks_no_method)}};
  return {SocksRequest::Kind::greeted, used, {}, {}};
}

}  // namespace

std::optional<std::string> target_of(std::uint32_t address, std::uint16_t port, const FindName& find_name) {
  if (is_synthetic(address)) {
    auto name = find_name(address);
    if (!name) return std::nullopt;
    return fmt::format("{}:{}", *name, port);
  }
  return fmt::format("{}.{}.{}.{}:{}", address >> 24, address >> 16 & 255, address >> 8 & 255, address & 255,
                     port);
}

std::optional<std::string> target_of(const Address6& address, std::uint16_t port, const FindName& find_name) {
  if (auto inside = inside_synthetic6(address)) {
    auto name = find_name(*inside);
    if (!name) return std::nullopt;
    return fmt::format("{}:{}", *name, port);
  }
  char text[INET6_ADDRSTRLEN];
  inet_ntop(AF_INET6, address.data(), text, sizeof text);
  return fmt::format("[{}]:{}", text, port);
}

std::string connect_request(std::string_view target) {
  return fmt::format("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", target);
}

ConnectReply read_connect_reply(std::string_view bytes) {
  constexpr std::string_view version = "HTTP/1.1 ";
  if (bytes.substr(0, version.size()) != version.substr(0, bytes.size()))
    return {ConnectReply::Kind::broken, 0};
  std::size_t end = bytes.find("\r\n\r\n");
  if (end == bytes.npos)
    return {bytes.size() >= max_head_bytes ? ConnectReply::Kind::broken : ConnectReply::Kind::incomplete, 0};
  bool open = bytes[version.size()] == '2';
  return {open ? ConnectReply::Kind::open : ConnectReply::Kind::refused, end + 4};
}

SocksRequest read_socks(std::string_view bytes, bool greeted, const FindName& find_name) {
  if (!bytes.empty() && bytes[0] != '\x05') return refuse(socks_failed);
  if (!greeted) return read_greeting(bytes);
  if (bytes.size() < 5) return {};
  if (bytes[1] != '\x01') return refuse(socks_no_command);
  std::size_t host_bytes = 4;
  switch (bytes[3]) {
    case '\x01':
      break;
    case '\x03':
      host_bytes = 1u + byte_at(bytes, 4);
      break;
    case '\x04':
      host_bytes = 16;
      break;
    default:
      return refuse(socks_no_address);
  }
  const std::size_t used = 4 + host_bytes + 2;
  if (bytes.size() < used) return {};
  std::string_view host = bytes.substr(4, host_bytes);
  const auto port = static_cast<std::uint16_t>(byte_at(bytes, used - 2) << 8 | byte_at(bytes, used - 1));
  SocksRequest request{SocksRequest::Kind::connect, used, {}, {}};
  if (bytes[3] == '\x01') {
    std::uint32_t address = 0;
    for (char c : host) address = address << 8 | static_cast<unsigned char>(c);
    auto target = target_of(address, port, find_name);
    if (!target) return refuse(socks_failed);
    request.target = std::move(*target);
  } else if (bytes[3] == '\x04') {
    Address6 address{};
    std::copy(host.begin(), host.end(), address.begin());
    auto target = target_of(address, port, find_name);
    if (!target) return refuse(socks_failed);
    request.target = std::move(*target);
  } else {
    std::string name = host_name(host.substr(1));
    if (name.empty()) return refuse(socks_failed);
    request.target = fmt::format("{}:{}", name, port);
  }
  return request;
}

std::string socks_reply(unsigned char code) {
  return {'\x05', static_cast<char>(code), '\x00', '\x01', 0, 0, 0, 0, 0, 0};
}

}  // namespace anchorhold::guest
