#include "own_addresses.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

namespace anchorhold::egress {
namespace {

void take_address(const nlmsghdr* header, std::vector<policy::Address>& addresses) {
  auto* message = static_cast<const ifaddrmsg*>(NLMSG_DATA(header));
  auto size = static_cast<int>(IFA_PAYLOAD(header));
  for (auto* attribute = IFA_RTA(message); RTA_OK(attribute, size); attribute = RTA_NEXT(attribute, size)) {
    if (attribute->rta_type != IFA_LOCAL && attribute->rta_type != IFA_ADDRESS) continue;
    if (message->ifa_family == AF_INET && RTA_PAYLOAD(attribute) == 4) {
      // Of a point-to-point link, the address of the other end is not ours.
      if (attribute->rta_type != IFA_LOCAL) continue;
      std::array<std::uint8_t, 4> bytes;
      std::memcpy(bytes.data(), RTA_DATA(attribute), bytes.size());
      addresses.push_back(policy::Address::v4(bytes));
    } else if (message->ifa_family == AF_INET6 && RTA_PAYLOAD(attribute) == 16) {
      std::array<std::uint8_t, 16> bytes;
      std::memcpy(bytes.data(), RTA_DATA(attribute), bytes.size());
      if (auto address = policy::Address::v6(bytes)) addresses.push_back(*address);
    }
  }
}

}  // namespace

Result<OwnAddresses> OwnAddresses::open() {
  auto make = [](unsigned groups) -> Result<UniqueFd> {
    UniqueFd fd(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
    sockaddr_nl address{};
    address.nl_family = AF_NETLINK;
    address.nl_groups = groups;
    if (!fd || bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
      return fail_errno(errno, "the addresses of this host");
    return fd;
  };
  auto questions = ANCHORHOLD_TRY(make(0));
  auto changes = ANCHORHOLD_TRY(make(RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR));
  return OwnAddresses(std::move(questions), std::move(changes));
}

bool OwnAddresses::changed() {
  alignas(nlmsghdr) std::array<char, 8192> buffer;
  bool any = false;
  for (;;) {
    ssize_t size = recv(changes_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return any;
    any = true;  // also when messages were lost (ENOBUFS)
    if (size == 0) return any;
  }
}

Result<std::vector<policy::Address>> OwnAddresses::current() {
  if (!changed() && known_) return addresses_;
  known_ = false;
  addresses_ = ANCHORHOLD_TRY(read_all());
  known_ = true;
  return addresses_;
}

Result<std::vector<policy::Address>> OwnAddresses::read_all() {
  struct {
    nlmsghdr header;
    ifaddrmsg message;
  } request{};
  request.header.nlmsg_len = NLMSG_LENGTH(sizeof request.message);
  request.header.nlmsg_type = RTM_GETADDR;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  request.header.nlmsg_seq = ++sequence_;
  request.message.ifa_family = AF_UNSPEC;
  if (send(questions_.get(), &request, request.header.nlmsg_len, MSG_NOSIGNAL) < 0)
    return fail_errno(errno, "the addresses of this host");
  std::vector<policy::Address> addresses;
  alignas(nlmsghdr) std::array<char, 32 * 1024> buffer;
  for (;;) {
    // The kernel answers within the call that asked.
    ssize_t size = recv(questions_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return fail_errno(size < 0 ? errno : EIO, "the addresses of this host");
    auto left = static_cast<unsigned>(size);
    for (auto* header = reinterpret_cast<nlmsghdr*>(buffer.data()); NLMSG_OK(header, left);
         header = NLMSG_NEXT(header, left)) {
      if (header->nlmsg_seq != sequence_) continue;
      if (header->nlmsg_type == NLMSG_DONE) return addresses;
      if (header->nlmsg_type == NLMSG_ERROR) return fail(ErrorCode::internal, "the addresses of this host");
      if (header->nlmsg_type == RTM_NEWADDR) take_address(header, addresses);
    }
  }
}

}  // namespace anchorhold::egress
