// What a program of the host did to something the guest may know: found by the reader, told to the guest's
// agent, which makes the guest's kernel forget what it remembers and raises the matching inotify events.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace anchorhold::mounts {

enum class ObjectKind { file, folder, symlink, other };

struct HostChange {
  enum class Kind {
    content,     // written to or truncated
    attributes,  // mode, times, links, user xattrs
    appeared,    // made, or moved here from elsewhere
    vanished,    // removed, or moved away
    renamed,     // from path to new_path, both within the grant
    lost,        // so much changed that it is not known what: everything is to be asked for anew
  };
  Kind kind = Kind::content;
  ObjectKind object = ObjectKind::file;
  std::string path{};  // relative to the grant, as the guest knows it; empty: the granted folder itself
  std::string new_path{};
  bool operator==(const HostChange&) const = default;
};

using HostChanges = std::vector<HostChange>;

}  // namespace anchorhold::mounts
