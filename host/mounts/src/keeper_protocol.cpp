#include "mounts/keeper_protocol.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <fmt/format.h>
#include <optional>

namespace anchorhold::mounts {
namespace {

// What each verb may use. Everything else in a message must be zero.
struct VerbShape {
  Verb verb;
  std::string_view name;
  std::size_t descriptors;
  bool uses_name;
  bool uses_new_name;
  bool uses_mode;
  bool uses_offset;
  bool uses_size;
  bool uses_times;  // and valid
  std::uint32_t flags;
  std::size_t payload;  // the most it may carry
};

constexpr std::array shapes{
    VerbShape{Verb::open_for_write, "open for writing", 1, false, false, false, false, false, false,
              open_flag::all & ~open_flag::exclusive, 0},
    VerbShape{Verb::create, "create", 1, true, false, true, false, false, false, open_flag::all, 0},
    VerbShape{Verb::make_directory, "mkdir", 1, true, false, true, false, false, false, 0, 0},
    VerbShape{Verb::make_symlink, "symlink", 1, true, false, false, false, false, false, 0,
              max_symlink_bytes},
    VerbShape{Verb::link, "link", 2, true, false, false, false, false, false, 0, 0},
    VerbShape{Verb::unlink, "unlink", 1, true, false, false, false, false, false, 0, 0},
    VerbShape{Verb::remove_directory, "rmdir", 1, true, false, false, false, false, false, 0, 0},
    VerbShape{Verb::rename, "rename", 2, true, true, false, false, false, false, rename_flag::all, 0},
    VerbShape{Verb::set_attributes, "set attributes", 1, false, false, true, false, false, true, 0, 0},
    VerbShape{Verb::truncate, "truncate", 1, false, false, false, false, true, false, 0, 0},
    VerbShape{Verb::allocate, "fallocate", 1, false, false, false, true, true, false, allocate_flag::all, 0},
    VerbShape{Verb::set_xattr, "setxattr", 1, true, false, false, false, false, false, xattr_flag::all,
              max_payload_bytes},
    VerbShape{Verb::remove_xattr, "removexattr", 1, true, false, false, false, false, false, 0, 0},
    VerbShape{Verb::temporary_file, "tmpfile", 1, false, false, true, false, false, false, open_flag::all, 0},
    VerbShape{Verb::statistics, "statistics", 0, false, false, false, false, false, false, 0, 0},
    VerbShape{Verb::account, "write", 0, false, false, false, false, true, false, 0, 0},
    VerbShape{Verb::look_up_own, "look up", 1, true, false, false, false, false, false, 0, 0},
};

const VerbShape* shape_of(Verb verb) {
  auto found = std::find_if(shapes.begin(), shapes.end(), [&](const VerbShape& s) { return s.verb == verb; });
  return found == shapes.end() ? nullptr : &*found;
}

bool is_zero(const Timestamp& time) {
  return time == Timestamp{};
}

// The text's bytes, or nothing when there is a NUL inside or something other than NULs behind it.
std::optional<std::string_view> text_of(const char (&field)[256], std::uint16_t size) {
  static constexpr char zeros[sizeof field] = {};
  if (size > sizeof field) return std::nullopt;
  if (std::memcmp(field + size, zeros, sizeof field - size) != 0) return std::nullopt;
  std::string_view text(field, size);
  if (text.find('\0') != std::string_view::npos) return std::nullopt;
  return text;
}

tl::unexpected<Error> malformed(std::string what) {
  return fail(ErrorCode::invalid_argument, "malformed request: " + std::move(what));
}

Status check_unused_fields(const RequestHeader& header, const VerbShape& shape) {
  if (!shape.uses_name && header.name_size != 0) return malformed("a name where there is none");
  if (!shape.uses_new_name && header.new_name_size != 0)
    return malformed("a second name where there is none");
  if (!shape.uses_mode && header.mode != 0) return malformed("a mode where there is none");
  if (!shape.uses_offset && header.offset != 0) return malformed("an offset where there is none");
  if (!shape.uses_size && header.size != 0) return malformed("a size where there is none");
  if (!shape.uses_times &&
      (header.valid != 0 || !is_zero(header.access_time) || !is_zero(header.modify_time)))
    return malformed("times where there are none");
  if (header.hurried > 1) return malformed("it is hurried by an unknown number");
  return {};
}

}  // namespace

std::string_view to_string(Verb verb) {
  const VerbShape* shape = shape_of(verb);
  return shape ? shape->name : "unknown";
}

Result<Request> parse_request(std::span<const std::byte> message, std::size_t descriptors) {
  Request request;
  if (message.size() < sizeof request.header) return malformed("too short");
  std::memcpy(&request.header, message.data(), sizeof request.header);
  const RequestHeader& header = request.header;
  if (header.magic != keeper_magic) return malformed("wrong magic number");
  const VerbShape* shape = shape_of(header.verb);
  if (!shape) return malformed(fmt::format("verb {} does not exist", static_cast<unsigned>(header.verb)));
  if (header.access_time.reserved != 0 || header.modify_time.reserved != 0)
    return malformed("reserved fields are not zero");
  if (header.descriptors != shape->descriptors || descriptors != shape->descriptors)
    return malformed(fmt::format("{} needs {} descriptors", shape->name, shape->descriptors));
  if (header.payload_size > shape->payload || header.payload_size != message.size() - sizeof header)
    return malformed("wrong payload size");
  if (header.flags & ~shape->flags) return malformed("unknown flags");
  if (header.valid & ~valid_flag::all) return malformed("unknown attributes");
  if (header.mode & ~07777u) return malformed("mode holds more than permission bits");
  constexpr std::uint32_t second = 1'000'000'000;
  if (header.access_time.nanoseconds >= second || header.modify_time.nanoseconds >= second)
    return malformed("nanoseconds of more than a second");
  ANCHORHOLD_CHECK(check_unused_fields(header, *shape));
  // The views must point into the message, not into the copy of the header.
  auto at = [&](std::size_t offset) { return reinterpret_cast<const char*>(message.data()) + offset; };
  auto name = text_of(header.name, header.name_size);
  auto new_name = text_of(header.new_name, header.new_name_size);
  if (!name || !new_name) return malformed("a name is not what its size says");
  request.name = {at(offsetof(RequestHeader, name)), name->size()};
  request.new_name = {at(offsetof(RequestHeader, new_name)), new_name->size()};
  request.payload = {at(sizeof header), header.payload_size};
  if (header.verb == Verb::make_symlink &&
      (request.payload.empty() || request.payload.find('\0') != std::string_view::npos))
    return malformed("a symlink's target is empty or holds NUL");
  return request;
}

RequestHeader make_request(Verb verb, std::string_view name, std::string_view new_name) {
  RequestHeader header{};
  header.magic = keeper_magic;
  header.verb = verb;
  header.name_size = static_cast<std::uint16_t>(name.copy(header.name, sizeof header.name));
  header.new_name_size = static_cast<std::uint16_t>(new_name.copy(header.new_name, sizeof header.new_name));
  return header;
}

bool is_valid_name(std::string_view name) {
  if (name.empty() || name.size() > max_name_bytes || name == "." || name == "..") return false;
  return name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

}  // namespace anchorhold::mounts
