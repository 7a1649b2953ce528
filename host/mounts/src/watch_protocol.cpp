#include "mounts/watch_protocol.h"

#include <cstring>
#include <fmt/format.h>

#include "mounts/keeper_protocol.h"

namespace anchorhold::mounts {
namespace {

constexpr std::uint32_t watch_magic = 0x41485731;  // "AHW1"

struct Header {
  std::uint32_t magic;
  WatchMessage::Kind kind;
  std::uint8_t change;
  std::uint8_t object;
  std::uint64_t number;
  std::uint16_t path_size;
  std::uint16_t new_path_size;
  std::uint32_t reserved;  // 0
};
static_assert(sizeof(Header) == 24, "no padding");

bool is_path(std::string_view path, bool may_be_root) {
  if (path.empty()) return may_be_root;
  while (!path.empty()) {
    auto slash = path.find('/');
    if (!is_valid_name(path.substr(0, slash))) return false;
    if (slash == std::string_view::npos) return true;
    path.remove_prefix(slash + 1);
  }
  return false;  // it ends in a slash
}

}  // namespace

std::string encode_watch_message(const WatchMessage& message) {
  HostChange change = message.change;
  if (change.path.size() > max_change_path || change.new_path.size() > max_change_path)
    change = {HostChange::Kind::lost, ObjectKind::file};
  Header header{watch_magic,
                message.kind,
                static_cast<std::uint8_t>(change.kind),
                static_cast<std::uint8_t>(change.object),
                message.number,
                static_cast<std::uint16_t>(change.path.size()),
                static_cast<std::uint16_t>(change.new_path.size()),
                0};
  std::string bytes(sizeof header, '\0');
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes.append(change.path).append(change.new_path);
}

Result<WatchMessage> parse_watch_message(std::span<const std::byte> message) {
  auto wrong = [](std::string_view what) {
    return fail(ErrorCode::data_loss, fmt::format("a message about watching {}", what));
  };
  Header header;
  if (message.size() < sizeof header) return wrong("is too short");
  std::memcpy(&header, message.data(), sizeof header);
  if (header.magic != watch_magic || header.reserved != 0) return wrong("is none");
  if (header.path_size > max_change_path || header.new_path_size > max_change_path ||
      sizeof header + header.path_size + header.new_path_size != message.size())
    return wrong("has another size than it says");
  WatchMessage parsed;
  parsed.kind = header.kind;
  parsed.number = header.number;
  if (header.kind == WatchMessage::Kind::watch || header.kind == WatchMessage::Kind::unwatch ||
      header.kind == WatchMessage::Kind::settled) {
    if (header.change != 0 || header.object != 0 || message.size() != sizeof header)
      return wrong("has too much in it");
    return parsed;
  }
  if (header.kind != WatchMessage::Kind::change) return wrong("is of an unknown kind");
  if (header.change > static_cast<std::uint8_t>(HostChange::Kind::lost) ||
      header.object > static_cast<std::uint8_t>(ObjectKind::other))
    return wrong("tells an unknown change");
  parsed.change.kind = static_cast<HostChange::Kind>(header.change);
  parsed.change.object = static_cast<ObjectKind>(header.object);
  auto text = reinterpret_cast<const char*>(message.data()) + sizeof header;
  parsed.change.path.assign(text, header.path_size);
  parsed.change.new_path.assign(text + header.path_size, header.new_path_size);
  bool renamed = parsed.change.kind == HostChange::Kind::renamed;
  bool named = renamed || parsed.change.kind == HostChange::Kind::appeared ||
               parsed.change.kind == HostChange::Kind::vanished;
  if (!is_path(parsed.change.path, !named) || (renamed && !is_path(parsed.change.new_path, false)) ||
      (!renamed && !parsed.change.new_path.empty()))
    return wrong("has a path that is none");
  return parsed;
}

}  // namespace anchorhold::mounts
