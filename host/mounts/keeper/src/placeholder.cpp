#include "placeholder.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <linux/magic.h>
#include <string>
#include <sys/vfs.h>
#include <sys/xattr.h>

namespace anchorhold::mounts {
namespace {

// FILE_ATTRIBUTE_OFFLINE, _RECALL_ON_OPEN, _RECALL_ON_DATA_ACCESS ([MS-FSCC] 2.6).
constexpr std::uint32_t windows_marks = 0x1000 | 0x40000 | 0x400000;

struct Attribute {
  const char* name;
  bool made_up;  // by the file system, which does not list it
};
constexpr Attribute attributes[] = {{"user.nextcloud.hydrate_exec", false},
                                    {"user.openvfs.state", false},
                                    {"user.openvfs.data", false},
                                    {"system.ntfs_attrib", true},
                                    {"user.cifs.dosattrib", true}};

// To ask for one that is not there takes as long as to list all.
class Listed {
 public:
  explicit Listed(const std::string& path) : size_(listxattr(path.c_str(), names_, sizeof names_)) {
    if (size_ < 0 && errno == ENOTSUP) size_ = 0;
  }
  // Also when that is not known.
  bool may_have(std::string_view name) const {
    if (size_ < 0) return true;
    for (std::string_view rest(names_, static_cast<std::size_t>(size_)); !rest.empty();) {
      auto each = rest.substr(0, rest.find('\0'));
      if (each == name) return true;
      rest.remove_prefix(std::min(each.size() + 1, rest.size()));
    }
    return false;
  }

 private:
  char names_[1024];
  ssize_t size_;
};

bool makes_up_attributes(const Located& file) {
  struct statfs info;
  if (fstatfs(file.fd.get(), &info) != 0) return true;
  switch (info.f_type) {
    case EXT4_SUPER_MAGIC:
    case BTRFS_SUPER_MAGIC:
    case XFS_SUPER_MAGIC:
    case TMPFS_MAGIC:
      return false;
    default:
      return true;
  }
}

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
  const Listed listed(path);
  const bool made_up = makes_up_attributes(file);
  char value[1024];
  for (const auto& attribute : attributes) {
    if (!listed.may_have(attribute.name) && !(attribute.made_up && made_up)) continue;
    ssize_t size = getxattr(path.c_str(), attribute.name, value, sizeof value);
    if (size < 0) continue;
    if (auto whose = placeholder_by_attribute(attribute.name, {value, static_cast<std::size_t>(size)});
        !whose.empty())
      return whose;
  }
  return {};
}

}  // namespace anchorhold::mounts
