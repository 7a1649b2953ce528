#include "accounts.h"

#include <array>
#include <charconv>
#include <fmt/format.h>
#include <optional>
#include <unistd.h>

#include "base/files.h"

namespace anchorhold::guest {
namespace {

constexpr std::size_t max_groups = 64;

std::optional<std::uint32_t> number(std::string_view text) {
  std::uint32_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  // The highest number means "no user" to the kernel.
  if (error != std::errc() || end != text.data() + text.size() || text.empty() || value == ~0u)
    return std::nullopt;
  return value;
}

std::string_view take_line(std::string_view& text) {
  auto end = text.find('\n');
  std::string_view line = text.substr(0, end);
  text.remove_prefix(end == text.npos ? text.size() : end + 1);
  return line;
}

// The fields of a line, or nothing when their count is wrong.
template <std::size_t count>
std::optional<std::array<std::string_view, count>> fields(std::string_view line) {
  std::array<std::string_view, count> out;
  for (std::size_t i = 0; i < count; ++i) {
    auto colon = line.find(':');
    if ((colon == line.npos) != (i + 1 == count)) return std::nullopt;
    out[i] = line.substr(0, colon);
    if (colon != line.npos) line.remove_prefix(colon + 1);
  }
  return out;
}

bool lists(std::string_view members, std::string_view name) {
  while (!members.empty()) {
    auto comma = members.find(',');
    if (members.substr(0, comma) == name) return true;
    members.remove_prefix(comma == members.npos ? members.size() : comma + 1);
  }
  return false;
}

}  // namespace

Result<Account> find_account(std::string_view who, std::string_view passwd, std::string_view group) {
  bool default_wanted = who.empty();
  auto wanted = default_wanted ? std::optional<std::uint32_t>(default_uid) : number(who);
  std::optional<Account> found;
  while (!passwd.empty() && !found) {
    auto entry = fields<7>(take_line(passwd));
    if (!entry) continue;
    auto uid = number((*entry)[2]);
    auto gid = number((*entry)[3]);
    if (!uid || !gid || (*entry)[0].empty()) continue;
    if (wanted ? *uid != *wanted : (*entry)[0] != who) continue;
    found =
        Account{std::string((*entry)[0]), *uid, *gid, std::string((*entry)[5]), std::string((*entry)[6]), {}};
  }
  if (!found) {
    if (!wanted && who != "root")
      return fail(ErrorCode::not_found, fmt::format("no user {} in the guest", who),
                  "use a name of its /etc/passwd");
    std::uint32_t id = wanted.value_or(0);
    std::string name = default_wanted ? std::string(default_user) : id == 0 ? "root" : std::to_string(id);
    found = Account{name, id, id, "/", "/bin/sh", {}};
  }
  if (found->home.empty()) found->home = "/";
  if (found->shell.empty()) found->shell = "/bin/sh";
  while (!group.empty() && found->groups.size() < max_groups) {
    auto entry = fields<4>(take_line(group));
    if (!entry) continue;
    auto gid = number((*entry)[2]);
    if (gid && *gid != found->gid && lists((*entry)[3], found->name)) found->groups.push_back(*gid);
  }
  return *found;
}

Result<Account> find_account(std::string_view who) {
  constexpr std::size_t most = 1 << 20;
  std::string passwd = read_file("/etc/passwd", most).value_or("");
  std::string group = read_file("/etc/group", most).value_or("");
  // Outside a guest without root there is nobody else to be.
  if (who.empty() && geteuid() != 0) return find_account(std::to_string(geteuid()), passwd, group);
  return find_account(who, passwd, group);
}

}  // namespace anchorhold::guest
