// What programs of the guest say to its DNS stub and its proxy: answered, refused or incomplete, never beyond
// its own bytes, and a target for the host is one line.
#include <cstdint>
#include <cstdlib>

#include "network/connect_head.h"
#include "network/dns_answer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace anchorhold::guest;
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  NameTable names;
  const NameTable::Time now{};
  std::string answer = answer_query(bytes, names, now);
  constexpr std::size_t record = 2 + 2 + 2 + 4 + 2 + 16;  // an IPv6 address with a name that points back
  if (answer.size() > size + record || (!answer.empty() && answer.substr(0, 2) != bytes.substr(0, 2)))
    std::abort();
  FindName find = [&](std::uint32_t address) { return names.name_of(address, now); };
  for (bool greeted : {false, true}) {
    auto request = read_socks(bytes, greeted, find);
    if (request.used > size || request.target.find_first_of("\r\n ") != std::string::npos) std::abort();
  }
  auto reply = read_connect_reply(bytes);
  if (reply.head_bytes > size) std::abort();
  return 0;
}
