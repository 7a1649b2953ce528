// The texts that the guest's agent reads by hand: the kernel's command line, passwd and group.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "accounts.h"
#include "boot_words.h"
#include "system.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace anchorhold::guest;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  if (auto words = parse_boot_words(text)) {
    if (!words->root.empty() && !words->root.starts_with("/dev/")) std::abort();
    if (words->scratch_bytes && *words->scratch_bytes == 0) std::abort();
  }
  // "who", a newline, passwd, a zero byte, group.
  std::string_view who = text.substr(0, text.find('\n'));
  std::string_view rest = text.substr(std::min(text.size(), who.size() + 1));
  std::string_view passwd = rest.substr(0, rest.find('\0'));
  std::string_view group = rest.substr(std::min(rest.size(), passwd.size() + 1));
  if (auto account = find_account(who, passwd, group)) {
    if (account->uid == ~0u || account->gid == ~0u || account->home.empty() || account->groups.size() > 64)
      std::abort();
  }
  std::string name(text);
  if (check_share_name(name) && (name.find('/') != name.npos || name.empty() || name == "..")) std::abort();
  return 0;
}
