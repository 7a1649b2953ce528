#include "initrd.h"

#include <cstdint>
#include <fmt/format.h>
#include <sys/stat.h>

namespace anchorhold::images {
namespace {

struct Entry {
  std::string_view name;
  std::uint32_t mode;
  std::string_view contents;
  unsigned device_major = 0;
  unsigned device_minor = 0;
};

void pad(std::string& archive, std::size_t to) {
  archive.resize((archive.size() + to - 1) / to * to, '\0');
}

void append(std::string& archive, const Entry& entry, unsigned inode) {
  // magic, ino, mode, uid, gid, nlink, mtime, filesize, devmajor, devminor, rdevmajor, rdevminor, namesize,
  // check
  archive +=
      fmt::format("070701{:08x}{:08x}{:08x}{:08x}{:08x}{:08x}{:08x}{:08x}{:08x}{:08x}{:08x}{:08x}{:08x}",
                  inode, entry.mode, 0, 0, S_ISDIR(entry.mode) ? 2 : 1, 0, entry.contents.size(), 0, 0,
                  entry.device_major, entry.device_minor, entry.name.size() + 1, 0);
  archive += entry.name;
  archive += '\0';
  pad(archive, 4);
  archive += entry.contents;
  pad(archive, 4);
}

}  // namespace

std::string make_initrd(std::string_view agent) {
  const Entry entries[] = {
      {"dev", S_IFDIR | 0755, {}},
      // The kernel opens it as standard input and output of /init.
      {"dev/console", S_IFCHR | 0600, {}, 5, 1},
      {"proc", S_IFDIR | 0755, {}},
      {"sys", S_IFDIR | 0755, {}},
      {"init", S_IFREG | 0755, agent},
      {"TRAILER!!!", 0, {}},
  };
  std::string archive;
  archive.reserve(agent.size() + 4096);
  unsigned inode = 1;
  for (const auto& entry : entries) append(archive, entry, inode++);
  pad(archive, 512);
  return archive;
}

}  // namespace anchorhold::images
