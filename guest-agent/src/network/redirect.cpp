#include "redirect.h"

#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <net/if.h>
#include <net/route.h>
#include <netinet/in.h>
#include <string>
#include <string_view>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <vector>

// After the C library's own.
#include <linux/ipv6.h>
#include <linux/netfilter/nf_nat.h>
#include <linux/netfilter/x_tables.h>
#include <linux/netfilter/xt_tcpudp.h>
#include <linux/netfilter_ipv4/ip_tables.h>
#include <linux/netfilter_ipv6/ip6_tables.h>

#include "base/fd.h"
#include "names.h"

namespace anchorhold::guest {
namespace {

constexpr const char* device = "dummy0";
// Nobody listens there: what is sent to it is refused.
constexpr std::uint16_t discard_port = 9;

sockaddr internet_address(std::uint32_t address) {
  sockaddr_in internet{};
  internet.sin_family = AF_INET;
  internet.sin_addr.s_addr = htonl(address);
  sockaddr any{};
  std::memcpy(&any, &internet, sizeof any);
  return any;
}

// A device that every packet can be routed to. What is sent there is gone.
Status route_everything() {
  UniqueFd any(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!any) return fail_errno(errno, "making a socket");
  ifreq request{};
  strcpy(request.ifr_name, device);
  request.ifr_mtu = 65535;  // as loopback, where the packets end
  if (ioctl(any.get(), SIOCSIFMTU, &request) != 0) return fail_errno(errno, "the size of dummy0's packets");
  request.ifr_addr = internet_address(own_synthetic_address);
  if (ioctl(any.get(), SIOCSIFADDR, &request) != 0) return fail_errno(errno, "the address of dummy0");
  request.ifr_netmask = internet_address(0xffff'ffff);
  if (ioctl(any.get(), SIOCSIFNETMASK, &request) != 0) return fail_errno(errno, "the netmask of dummy0");
  if (ioctl(any.get(), SIOCGIFFLAGS, &request) != 0) return fail_errno(errno, device);
  request.ifr_flags |= IFF_UP | IFF_RUNNING;
  if (ioctl(any.get(), SIOCSIFFLAGS, &request) != 0) return fail_errno(errno, "bringing up dummy0");
  rtentry route{};
  route.rt_dst = internet_address(INADDR_ANY);
  route.rt_genmask = internet_address(INADDR_ANY);
  route.rt_flags = RTF_UP;
  std::string name = device;
  route.rt_dev = name.data();
  if (ioctl(any.get(), SIOCADDRT, &route) != 0 && errno != EEXIST)
    return fail_errno(errno, "the default route");
  return {};
}

// The same for IPv6. The device has no neighbours, so its address counts at once.
Status route_everything6() {
  UniqueFd any(socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!any) return fail_errno(errno, "making a socket of IPv6");
  const auto index = static_cast<int>(if_nametoindex(device));
  in6_ifreq own{};
  std::memcpy(&own.ifr6_addr, own_address6.data(), own_address6.size());
  own.ifr6_prefixlen = 128;
  own.ifr6_ifindex = index;
  if (ioctl(any.get(), SIOCSIFADDR, &own) != 0 && errno != EEXIST)
    return fail_errno(errno, "the IPv6 address of dummy0");
  in6_rtmsg route{};
  route.rtmsg_flags = RTF_UP;
  route.rtmsg_metric = 1;
  route.rtmsg_ifindex = index;
  if (ioctl(any.get(), SIOCADDRT, &route) != 0 && errno != EEXIST)
    return fail_errno(errno, "the default route of IPv6");
  return {};
}

// What the kernel's tables of the two families call the same things.
struct Family4 {
  using Packets = ipt_ip;
  using Entry = ipt_entry;
  using Info = ipt_getinfo;
  using Replace = ipt_replace;
  static constexpr int domain = AF_INET, level = IPPROTO_IP, get_info = IPT_SO_GET_INFO,
                       set_replace = IPT_SO_SET_REPLACE;
  static Packets to_itself() {
    Packets packets{};
    packets.dst.s_addr = htonl(0x7f00'0000);
    packets.dmsk.s_addr = htonl(0xff00'0000);
    return packets;
  }
  static Packets of(std::uint8_t protocol) {
    Packets packets{};
    packets.proto = protocol;
    return packets;
  }
  static void put(Entry& entry, const Packets& packets) { entry.ip = packets; }
  static nf_nat_ipv4_multi_range_compat range(std::uint16_t port) {
    nf_nat_ipv4_multi_range_compat range{};
    range.rangesize = 1;
    range.range[0].flags = NF_NAT_RANGE_PROTO_SPECIFIED;
    range.range[0].min.all = range.range[0].max.all = htons(port);
    return range;
  }
};

struct Family6 {
  using Packets = ip6t_ip6;
  using Entry = ip6t_entry;
  using Info = ip6t_getinfo;
  using Replace = ip6t_replace;
  static constexpr int domain = AF_INET6, level = IPPROTO_IPV6, get_info = IP6T_SO_GET_INFO,
                       set_replace = IP6T_SO_SET_REPLACE;
  static Packets to_itself() {
    Packets packets{};
    packets.dst = in6addr_loopback;
    std::memset(&packets.dmsk, 0xff, sizeof packets.dmsk);
    return packets;
  }
  static Packets of(std::uint8_t protocol) {
    Packets packets{};
    packets.proto = protocol;
    packets.flags = IP6T_F_PROTO;
    return packets;
  }
  static void put(Entry& entry, const Packets& packets) { entry.ipv6 = packets; }
  static nf_nat_range range(std::uint16_t port) {
    nf_nat_range range{};
    range.flags = NF_NAT_RANGE_PROTO_SPECIFIED;
    range.min_proto.all = range.max_proto.all = htons(port);
    return range;
  }
};

// The kernel's NAT table as iptables-legacy gives it to the kernel (linux/netfilter_ipv4/ip_tables.h): rules
// one after another, each an entry, its matches and its target.
template <typename Family>
class Table {
  using Packets = typename Family::Packets;
  using Entry = typename Family::Entry;

 public:
  unsigned offset() const { return static_cast<unsigned>(bytes_.size()); }
  unsigned count() const { return count_; }
  const std::vector<char>& bytes() const { return bytes_; }

  void accept(const Packets& packets = {}) {
    begin(packets);
    end_with_verdict(NF_ACCEPT);
  }

  // `port` 0: any.
  void redirect(std::uint8_t protocol, std::uint16_t port, std::uint16_t to) {
    begin(Family::of(protocol));
    if (port != 0 && protocol == IPPROTO_UDP)
      add_match("udp", xt_udp{{0, 0xffff}, {port, port}, 0});
    else if (port != 0)
      add_match("tcp", xt_tcp{{0, 0xffff}, {port, port}, 0, 0, 0, 0});
    end_with_target("REDIRECT", Family::range(to));
  }

  void error() {
    begin({});
    struct {
      char name[XT_FUNCTION_MAXNAMELEN];
    } what{};
    strcpy(what.name, XT_ERROR_TARGET);
    end_with_target(XT_ERROR_TARGET, what);
  }

 private:
  template <typename Value>
  void add(const Value& value) {
    const auto* from = reinterpret_cast<const char*>(&value);
    bytes_.insert(bytes_.end(), from, from + sizeof value);
    bytes_.resize(start_ + XT_ALIGN(bytes_.size() - start_));
  }
  Entry* entry() { return reinterpret_cast<Entry*>(bytes_.data() + start_); }

  void begin(const Packets& packets) {
    start_ = bytes_.size();
    ++count_;
    Entry head{};
    Family::put(head, packets);
    add(head);
  }

  template <typename Match>
  void add_match(const char* name, const Match& match) {
    xt_entry_match head{};
    head.u.user.match_size = static_cast<__u16>(XT_ALIGN(sizeof head) + XT_ALIGN(sizeof match));
    strcpy(head.u.user.name, name);
    add(head);
    add(match);
  }

  template <typename Target>
  void end_with_target(const char* name, const Target& target) {
    xt_entry_target head{};
    head.u.user.target_size = static_cast<__u16>(XT_ALIGN(sizeof head) + XT_ALIGN(sizeof target));
    strcpy(head.u.user.name, name);
    entry()->target_offset = static_cast<__u16>(bytes_.size() - start_);
    add(head);
    add(target);
    entry()->next_offset = static_cast<__u16>(bytes_.size() - start_);
  }
  void end_with_verdict(int verdict) { end_with_target(XT_STANDARD_TARGET, int{-verdict - 1}); }

  std::vector<char> bytes_;
  std::size_t start_ = 0;
  unsigned count_ = 0;
};

template <typename Family>
Status replace_nat(const Table<Family>& table, const unsigned (&first)[NF_INET_NUMHOOKS],
                   const unsigned (&policy)[NF_INET_NUMHOOKS]) {
  UniqueFd raw(socket(Family::domain, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW));
  if (!raw) return fail_errno(errno, "making a raw socket");
  typename Family::Info info{};
  strcpy(info.name, "nat");
  socklen_t size = sizeof info;
  if (getsockopt(raw.get(), Family::level, Family::get_info, &info, &size) != 0)
    return fail_errno(errno, "the kernel's NAT table");
  std::vector<xt_counters> counters(info.num_entries);
  typename Family::Replace head{};
  strcpy(head.name, "nat");
  head.valid_hooks = info.valid_hooks;
  head.num_entries = table.count();
  head.size = table.offset();
  std::memcpy(head.hook_entry, first, sizeof first);
  std::memcpy(head.underflow, policy, sizeof policy);
  head.num_counters = info.num_entries;
  head.counters = counters.data();
  std::vector<char> whole(reinterpret_cast<char*>(&head), reinterpret_cast<char*>(&head) + sizeof head);
  whole.insert(whole.end(), table.bytes().begin(), table.bytes().end());
  if (setsockopt(raw.get(), Family::level, Family::set_replace, whole.data(),
                 static_cast<socklen_t>(whole.size())) != 0)
    return fail_errno(errno, "redirecting in the kernel's NAT table");
  return {};
}

template <typename Family>
Status redirect(const RedirectPorts& ports) {
  Table<Family> table;
  unsigned first[NF_INET_NUMHOOKS] = {}, policy[NF_INET_NUMHOOKS] = {};
  for (unsigned hook : {NF_INET_PRE_ROUTING, NF_INET_LOCAL_IN, NF_INET_LOCAL_OUT, NF_INET_POST_ROUTING}) {
    first[hook] = table.offset();
    if (hook == NF_INET_LOCAL_OUT) {
      table.accept(Family::to_itself());
      table.redirect(IPPROTO_UDP, 53, ports.dns);
      table.redirect(IPPROTO_TCP, 53, ports.dns);
      table.redirect(IPPROTO_TCP, 0, ports.transparent);
      table.redirect(IPPROTO_UDP, 0, discard_port);
    }
    policy[hook] = table.offset();
    table.accept();
  }
  table.error();
  return replace_nat(table, first, policy);
}

}  // namespace

Status redirect_everything(const RedirectPorts& ports) {
  ANCHORHOLD_CHECK(route_everything());
  ANCHORHOLD_CHECK(route_everything6());
  ANCHORHOLD_CHECK(redirect<Family4>(ports));
  return redirect<Family6>(ports);
}

}  // namespace anchorhold::guest
