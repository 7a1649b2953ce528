// Notices when a file may have become another one: written, replaced, removed, made, or reached by another
// way, since everything on the way to it is watched, symlinks and folders that are not there yet included
// (inotify(7)).
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/fd.h"

namespace anchorhold::session {

// Owned by one thread.
class FileWatch {
 public:
  FileWatch();

  // From now on these, as they are reached now: to be called again after every change, before they are read.
  void follow(const std::vector<std::filesystem::path>& files);
  enum class Woken { changed, time, stopped };
  // Until a change, the time, or `stop` becomes readable. Where the system cannot watch, and on file systems
  // that others change over the network, nothing is noticed: look now and then all the same.
  Woken wait(std::chrono::milliseconds limit, int stop);
  bool watches() const { return static_cast<bool>(inotify_); }

 private:
  struct Wanted {
    bool is_folder = false;
    std::set<std::string> names;  // in the folder
    bool operator==(const Wanted&) const = default;
  };
  static void add_way(const std::filesystem::path& file, std::map<std::filesystem::path, Wanted>& all);
  bool take_events();

  UniqueFd inotify_;
  std::map<int, std::set<std::string>> watches_;  // the names that matter; none: all that happens to it
};

}  // namespace anchorhold::session
