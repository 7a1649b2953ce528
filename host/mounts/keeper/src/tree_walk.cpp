#include "tree_walk.h"

#include <cerrno>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <unistd.h>
#include <vector>

namespace anchorhold::mounts {

void walk_tree(int root, const TreeVisitor& visitor, const std::function<bool(const Located&)>& unreadable) {
  std::vector<std::string> folders{""};
  while (!folders.empty()) {
    std::string folder_path = std::move(folders.back());
    folders.pop_back();
    auto folder = locate_beneath(root, folder_path);
    if (!folder) continue;
    constexpr int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int readable = openat(folder->fd.get(), ".", flags);
    if (readable < 0 && errno == EACCES && unreadable && unreadable(*folder))
      readable = openat(folder->fd.get(), ".", flags);
    if (readable < 0) continue;
    std::unique_ptr<DIR, int (*)(DIR*)> stream(fdopendir(readable), closedir);
    if (!stream) {
      close(readable);
      continue;
    }
    while (dirent* entry = readdir(stream.get())) {
      std::string name = entry->d_name;
      if (name == "." || name == "..") continue;
      auto attributes = attributes_at(folder->fd.get(), name);
      // A mount point shows the other file system's device.
      if (!attributes || attributes->device != folder->attributes.device) continue;
      std::string path = folder_path.empty() ? name : folder_path + "/" + name;
      bool enter = visitor(path, *attributes, folder->fd.get(), name);
      if (enter && S_ISDIR(attributes->mode)) folders.push_back(std::move(path));
    }
  }
}

}  // namespace anchorhold::mounts
