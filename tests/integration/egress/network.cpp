#include "network.h"

#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/if.h>
#include <linux/rtnetlink.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"

namespace anchorhold::testing {
namespace {

Status write_text(const char* path, const std::string& text) {
  UniqueFd fd(open(path, O_WRONLY | O_CLOEXEC));
  if (!fd || write(fd.get(), text.data(), text.size()) < 0) return fail_errno(errno, path);
  return {};
}

// A request of rtnetlink(7), with its attributes.
class Request {
 public:
  template <typename Message>
  Request(unsigned short type, const Message& message) {
    header().nlmsg_len = NLMSG_LENGTH(sizeof message);
    header().nlmsg_type = type;
    header().nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
    std::memcpy(NLMSG_DATA(&header()), &message, sizeof message);
  }
  void add(unsigned short type, const void* data, std::size_t size) {
    auto* attribute = reinterpret_cast<rtattr*>(buffer_.data() + NLMSG_ALIGN(header().nlmsg_len));
    attribute->rta_type = type;
    attribute->rta_len = static_cast<unsigned short>(RTA_LENGTH(size));
    std::memcpy(RTA_DATA(attribute), data, size);
    header().nlmsg_len =
        static_cast<unsigned>(NLMSG_ALIGN(header().nlmsg_len) + RTA_ALIGN(attribute->rta_len));
  }
  Status ask(int socket) {
    if (send(socket, buffer_.data(), header().nlmsg_len, 0) < 0) return fail_errno(errno, "rtnetlink");
    alignas(nlmsghdr) std::array<char, 4096> answer;
    if (recv(socket, answer.data(), answer.size(), 0) < 0) return fail_errno(errno, "rtnetlink");
    auto* reply = reinterpret_cast<nlmsghdr*>(answer.data());
    auto* error = static_cast<nlmsgerr*>(NLMSG_DATA(reply));
    if (reply->nlmsg_type == NLMSG_ERROR && error->error != 0) return fail_errno(-error->error, "rtnetlink");
    return {};
  }

 private:
  nlmsghdr& header() { return *reinterpret_cast<nlmsghdr*>(buffer_.data()); }
  alignas(nlmsghdr) std::array<char, 512> buffer_{};
};

constexpr int loopback = 1;

Status add_local(int socket, int family, const char* network, unsigned char prefix) {
  rtmsg message{};
  message.rtm_family = static_cast<unsigned char>(family);
  message.rtm_dst_len = prefix;
  message.rtm_table = RT_TABLE_LOCAL;
  message.rtm_protocol = RTPROT_STATIC;
  message.rtm_scope = RT_SCOPE_HOST;
  message.rtm_type = RTN_LOCAL;
  Request request(RTM_NEWROUTE, message);
  std::array<unsigned char, 16> address{};
  inet_pton(family, network, address.data());
  request.add(RTA_DST, address.data(), family == AF_INET ? 4 : 16);
  request.add(RTA_OIF, &loopback, sizeof loopback);
  return request.ask(socket);
}

Status add_address(int socket, const char* text) {
  ifaddrmsg message{};
  message.ifa_family = AF_INET;
  message.ifa_prefixlen = 32;
  message.ifa_index = loopback;
  Request request(RTM_NEWADDR, message);
  in_addr address{};
  inet_pton(AF_INET, text, &address);
  request.add(IFA_LOCAL, &address, sizeof address);
  request.add(IFA_ADDRESS, &address, sizeof address);
  return request.ask(socket);
}

Status up() {
  UniqueFd any(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq interface {};
  std::strcpy(interface.ifr_name, "lo");
  interface.ifr_flags = IFF_UP | IFF_RUNNING;
  if (!any || ioctl(any.get(), SIOCSIFFLAGS, &interface) != 0) return fail_errno(errno, "lo");
  return {};
}

std::string why_not = "the private network was not prepared";

}  // namespace

Status enter_private_network() {
  unsigned uid = geteuid(), gid = getegid();
  if (uid == 0) {
    if (unshare(CLONE_NEWNET) != 0) return fail_errno(errno, "a network namespace");
  } else {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return fail_errno(errno, "a user and network namespace");
    ANCHORHOLD_CHECK(write_text("/proc/self/setgroups", "deny"));
    ANCHORHOLD_CHECK(write_text("/proc/self/uid_map", fmt::format("{0} {0} 1", uid)));
    ANCHORHOLD_CHECK(write_text("/proc/self/gid_map", fmt::format("{0} {0} 1", gid)));
  }
  ANCHORHOLD_CHECK(up());
  UniqueFd netlink(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!netlink) return fail_errno(errno, "rtnetlink");
  ANCHORHOLD_CHECK(add_local(netlink.get(), AF_INET, "44.128.0.0", 16));
  ANCHORHOLD_CHECK(add_local(netlink.get(), AF_INET6, "2a0f:ac00::", 32));
  ANCHORHOLD_CHECK(add_address(netlink.get(), "44.129.0.1"));
  return write_text("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0");
}

void prepare_private_network() {
  auto entered = enter_private_network();
  why_not = entered ? "" : "there is no private network to be had: " + entered.error().message;
}

const std::string& no_private_network() {
  return why_not;
}

}  // namespace anchorhold::testing
