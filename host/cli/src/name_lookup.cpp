#include "name_lookup.h"

#include <algorithm>
#include <arpa/nameser.h>
#include <array>
#include <cstring>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <resolv.h>
#include <sys/socket.h>

namespace anchorhold::cli {
namespace {

using policy::Address;

struct CloseResolver {
  void operator()(res_state state) const { res_nclose(state); }
};

std::optional<Address> address_of(const unsigned char* bytes, std::size_t size) {
  if (size == 4) {
    std::array<std::uint8_t, 4> four{};
    std::memcpy(four.data(), bytes, size);
    return Address::v4(four);
  }
  std::array<std::uint8_t, 16> sixteen{};
  if (size != sixteen.size()) return std::nullopt;
  std::memcpy(sixteen.data(), bytes, size);
  return Address::v6(sixteen);
}

// One question of one type (RFC 1035); aliases in the answer are followed by the nameserver.
Status ask(res_state state, const std::string& name, ns_type type, std::vector<Address>& into) {
  std::vector<unsigned char> answer(65536);
  int size = res_nquery(state, name.c_str(), ns_c_in, type, answer.data(), static_cast<int>(answer.size()));
  if (size < 0) {
    if (state->res_h_errno == HOST_NOT_FOUND || state->res_h_errno == NO_DATA) return {};
    return fail(ErrorCode::unavailable, fmt::format("no nameserver answers for {}", name));
  }
  ns_msg message;
  if (ns_initparse(answer.data(), std::min(size, static_cast<int>(answer.size())), &message) != 0)
    return fail(ErrorCode::unavailable, fmt::format("a nameserver answers nonsense for {}", name));
  for (int i = 0; i < ns_msg_count(message, ns_s_an); ++i) {
    ns_rr record;
    if (ns_parserr(&message, ns_s_an, i, &record) != 0 || ns_rr_type(record) != type) continue;
    auto address = address_of(ns_rr_rdata(record), ns_rr_rdlen(record));
    if (!address)
      return fail(ErrorCode::permission_denied,
                  fmt::format("{} leads to an address that hides an IPv4 address in an IPv6 one", name));
    into.push_back(*address);
  }
  return {};
}

}  // namespace

Result<std::vector<Address>> look_up(const std::string& name) {
  auto memory = std::make_unique<std::remove_pointer_t<res_state>>();
  std::memset(memory.get(), 0, sizeof *memory);
  if (res_ninit(memory.get()) != 0) return fail(ErrorCode::unavailable, "the resolver cannot be used");
  std::unique_ptr<std::remove_pointer_t<res_state>, CloseResolver> state(memory.get());
  std::vector<Address> all;
  ANCHORHOLD_CHECK(ask(state.get(), name, ns_t_a, all));
  ANCHORHOLD_CHECK(ask(state.get(), name, ns_t_aaaa, all));
  if (all.empty()) return fail(ErrorCode::not_found, fmt::format("{} has no address", name));
  return all;
}

std::vector<Address> own_addresses() {
  std::vector<Address> all;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return all;
  for (auto* each = list; each; each = each->ifa_next) {
    if (!each->ifa_addr) continue;
    std::optional<Address> address;
    if (each->ifa_addr->sa_family == AF_INET) {
      auto& in = reinterpret_cast<sockaddr_in*>(each->ifa_addr)->sin_addr;
      address = address_of(reinterpret_cast<const unsigned char*>(&in), sizeof in);
    } else if (each->ifa_addr->sa_family == AF_INET6) {
      auto& in = reinterpret_cast<sockaddr_in6*>(each->ifa_addr)->sin6_addr;
      address = address_of(reinterpret_cast<const unsigned char*>(&in), sizeof in);
    }
    if (address) all.push_back(*address);
  }
  freeifaddrs(list);
  return all;
}

}  // namespace anchorhold::cli
