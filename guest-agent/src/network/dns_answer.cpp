#include "dns_answer.h"

#include <algorithm>
#include <arpa/nameser.h>
#include <netinet/in.h>
#include <optional>
#include <resolv.h>

namespace anchorhold::guest {
namespace {

constexpr std::size_t header_bytes = 12;
constexpr std::uint32_t seconds_to_live = 30;

std::string header(std::string_view query, int code, int questions, int answers) {
  std::string reply(query.substr(0, header_bytes));
  const auto flags = static_cast<unsigned char>(query[2]);
  reply[2] = static_cast<char>(0x80 | (flags & 0x79));  // an answer; opcode and "recursion desired" as asked
  reply[3] = static_cast<char>(0x80 | code);            // recursion available
  const char counts[] = {0, static_cast<char>(questions), 0, static_cast<char>(answers), 0, 0, 0, 0};
  std::copy(std::begin(counts), std::end(counts), reply.begin() + 4);
  return reply;
}

void append(std::string& bytes, std::uint32_t number, int count) {
  for (int i = count - 1; i >= 0; --i) bytes += static_cast<char>(number >> (8 * i));
}

bool is_local(std::string_view name) {
  return name == "localhost" || name.ends_with(".localhost");
}

}  // namespace

std::string host_name(std::string_view text) {
  if (text.ends_with('.')) text.remove_suffix(1);
  if (text.empty() || text.size() > 253) return {};
  std::string name;
  std::size_t label = 0;
  for (char c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
    if (!plain && (c != '.' || label == 0)) return {};
    label = c == '.' ? 0 : label + 1;
    if (label > 63) return {};
    name += c;
  }
  return label == 0 ? std::string() : name;
}

std::string answer_query(std::string_view query, NameTable& names, NameTable::Time now) {
  if (query.size() < header_bytes || query.size() > 4096) return {};
  if (static_cast<unsigned char>(query[2]) & 0x80) return {};  // an answer, which nobody asked for
  if (static_cast<unsigned char>(query[2]) & 0x78) return header(query, ns_r_notimpl, 0, 0);
  ns_msg message{};
  ns_rr question{};
  const auto* bytes = reinterpret_cast<const unsigned char*>(query.data());
  if (ns_initparse(bytes, static_cast<int>(query.size()), &message) != 0 ||
      ns_msg_count(message, ns_s_qd) != 1 || ns_parserr(&message, ns_s_qd, 0, &question) != 0)
    return header(query, ns_r_formerr, 0, 0);
  int name_bytes = dn_skipname(bytes + header_bytes, bytes + query.size());
  if (name_bytes < 0 || header_bytes + static_cast<std::size_t>(name_bytes) + 4 > query.size())
    return header(query, ns_r_formerr, 0, 0);
  std::string_view asked = query.substr(header_bytes, static_cast<std::size_t>(name_bytes) + 4);
  auto reply = [&](int code, int answers) { return header(query, code, 1, answers) + std::string(asked); };

  std::string name = host_name(ns_rr_name(question));
  if (name.empty() || ns_rr_class(question) != ns_c_in || name.ends_with(".arpa"))
    return reply(ns_r_nxdomain, 0);
  const auto type = static_cast<std::uint32_t>(ns_rr_type(question));
  if (type != ns_t_a && type != ns_t_aaaa) return reply(ns_r_noerror, 0);
  auto address = is_local(name) ? std::optional<std::uint32_t>(INADDR_LOOPBACK) : names.address_of(name, now);
  if (!address) return reply(ns_r_servfail, 0);
  std::string text = reply(ns_r_noerror, 1);
  append(text, 0xc000 | header_bytes, 2);  // the question's name
  append(text, type, 2);
  append(text, ns_c_in, 2);
  append(text, seconds_to_live, 4);
  if (type == ns_t_a) {
    append(text, 4, 2);
    append(text, *address, 4);
  } else {
    const Address6 whole =
        is_local(name) ? Address6{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1} : synthetic6(*address);
    append(text, static_cast<std::uint32_t>(whole.size()), 2);
    for (std::uint8_t byte : whole) text += static_cast<char>(byte);
  }
  return text;
}

}  // namespace anchorhold::guest
