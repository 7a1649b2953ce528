#include "placeholder.h"

#include <cstring>
#include <sys/xattr.h>

namespace anchorhold::mounts {
namespace {

// FILE_ATTRIBUTE_OFFLINE, _RECALL_ON_OPEN, _RECALL_ON_DATA_ACCESS ([MS-FSCC] 2.6).
constexpr std::uint32_t windows_marks = 0x1000 | 0x40000 | 0x400000;

constexpr const char* attributes[] = {"user.nextcloud.hydrate_exec", "user.openvfs.state",
                                      "user.openvfs.data", "system.ntfs_attrib", "user.cifs.dosattrib"};

// The state in OpenVFS's map (MessagePack): the text "state" and a small number behind it. 0: the content is
// here.
bool says_dehydrated(std::string_view map) {
  constexpr std::string_view key = "state";
  for (auto at = map.find(key); at != std::string_view::npos; at = map.find(key, at + 1)) {
    // "pinstate" ends with the same letters; a text of five bytes begins with 0xa5.
    bool whole = at > 0 && static_cast<unsigned char>(map[at - 1]) == (0xa0 | key.size());
    if (whole && at + key.size() < map.size()) return map[at + key.size()] != 0;
  }
  return false;
}

}  // namespace

std::string_view placeholder_by_name(std::string_view name, std::uint64_t size) {
  constexpr std::uint64_t largest_icloud = 1u << 16;
  if (size <= 1 && name.ends_with(".nextcloud")) return "Nextcloud";
  if (size <= 1 && name.ends_with(".owncloud")) return "ownCloud";
  if (size <= 1 && name.ends_with(".opencloud")) return "OpenCloud";
  if (size <= largest_icloud && name.starts_with('.') && name.ends_with(".icloud") && name.size() > 8)
    return "iCloud";
  return {};
}

std::string_view placeholder_by_attribute(std::string_view attribute, std::string_view value) {
  if (attribute == "user.nextcloud.hydrate_exec") return "Nextcloud";
  if (attribute == "user.openvfs.state")
    return value == "dehydrated" || value == "hydrating" ? "OpenVFS" : std::string_view();
  if (attribute == "user.openvfs.data") return says_dehydrated(value) ? "OpenVFS" : std::string_view();
  if (attribute == "system.ntfs_attrib" || attribute == "user.cifs.dosattrib") {
    std::uint32_t bits = 0;
    if (value.size() != sizeof bits) return {};
    std::memcpy(&bits, value.data(), sizeof bits);
    return bits & windows_marks ? "a cloud's client for Windows" : std::string_view();
  }
  return {};
}

std::string_view placeholder_of(const Located& file) {
  if (!file.is_file()) return {};
  auto slash = file.path.rfind('/');
  auto name = std::string_view(file.path).substr(slash == std::string::npos ? 0 : slash + 1);
  if (auto whose = placeholder_by_name(name, file.attributes.size); !whose.empty()) return whose;
  std::string path = descriptor_path(file.fd.get());
  char value[1024];
  for (const char* attribute : attributes) {
    ssize_t size = getxattr(path.c_str(), attribute, value, sizeof value);
    if (size < 0) continue;
    if (auto whose = placeholder_by_attribute(attribute, {value, static_cast<std::size_t>(size)});
        !whose.empty())
      return whose;
  }
  return {};
}

}  // namespace anchorhold::mounts
