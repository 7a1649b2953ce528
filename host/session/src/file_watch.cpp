#include "file_watch.h"

#include <algorithm>
#include <cerrno>
#include <deque>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

namespace anchorhold::session {
namespace {

constexpr int most_links = 40;  // as the kernel follows
constexpr std::uint32_t folder_mask = IN_CREATE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE | IN_ATTRIB |
                                      IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR;
constexpr std::uint32_t file_mask =
    IN_MODIFY | IN_CLOSE_WRITE | IN_ATTRIB | IN_MOVE_SELF | IN_DELETE_SELF | IN_DONT_FOLLOW;

std::deque<std::string> parts_of(const std::filesystem::path& path) {
  std::deque<std::string> parts;
  for (const auto& part : path.relative_path())
    if (!part.empty() && part != ".") parts.push_back(part.string());
  return parts;
}

}  // namespace

FileWatch::FileWatch() : inotify_(inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {}

void FileWatch::add_way(const std::filesystem::path& file, std::map<std::filesystem::path, Wanted>& all) {
  std::filesystem::path at = "/";
  auto parts = parts_of(file);
  for (int links = 0; !parts.empty();) {
    std::string name = std::move(parts.front());
    parts.pop_front();
    if (name == "..") {
      at = at.parent_path();
      continue;
    }
    auto& folder = all[at];
    folder.is_folder = true;
    folder.names.insert(name);
    const auto next = at / name;
    struct stat info;
    if (lstat(next.c_str(), &info) != 0) return;
    if (S_ISDIR(info.st_mode)) {
      at = next;
    } else if (S_ISLNK(info.st_mode)) {
      std::error_code error;
      auto target = std::filesystem::read_symlink(next, error);
      if (error || ++links > most_links) return;
      if (target.is_absolute()) at = "/";
      auto more = parts_of(target);
      parts.insert(parts.begin(), more.begin(), more.end());
    } else {
      all[next];
      return;
    }
  }
}

void FileWatch::follow(const std::vector<std::filesystem::path>& files) {
  if (!inotify_) return;
  std::map<int, std::set<std::string>> watches;
  std::map<std::filesystem::path, Wanted> before;
  // Until the way was the same before and after it was watched.
  for (int round = 0; round < 3; ++round) {
    std::map<std::filesystem::path, Wanted> wanted;
    for (const auto& file : files) add_way(file, wanted);
    if (wanted == before) break;
    for (const auto& [path, what] : wanted) {
      int watch = inotify_add_watch(inotify_.get(), path.c_str(), what.is_folder ? folder_mask : file_mask);
      if (watch >= 0) watches[watch].insert(what.names.begin(), what.names.end());
    }
    before = std::move(wanted);
  }
  for (const auto& [watch, names] : watches_)
    if (!watches.contains(watch)) inotify_rm_watch(inotify_.get(), watch);
  watches_ = std::move(watches);
}

bool FileWatch::take_events() {
  bool changed = false;
  alignas(inotify_event) char buffer[16 * 1024];
  for (;;) {
    ssize_t got = read(inotify_.get(), buffer, sizeof buffer);
    if (got <= 0) return changed;
    for (ssize_t at = 0; at < got;) {
      const auto* event = reinterpret_cast<const inotify_event*>(buffer + at);
      at += static_cast<ssize_t>(sizeof *event + event->len);
      if (event->mask & IN_Q_OVERFLOW) changed = true;
      auto watch = watches_.find(event->wd);
      if (watch == watches_.end() || event->mask == IN_IGNORED) continue;
      const std::string name = event->len > 0 ? event->name : "";
      changed = changed || name.empty() || watch->second.contains(name);
    }
  }
}

FileWatch::Woken FileWatch::wait(std::chrono::milliseconds limit, int stop) {
  const auto end = std::chrono::steady_clock::now() + limit;
  for (;;) {
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    pollfd entries[] = {{stop, POLLIN, 0}, {inotify_.get(), POLLIN, 0}};
    int count =
        poll(entries, inotify_ ? 2 : 1, static_cast<int>(std::max<std::int64_t>(left.count() + 1, 0)));
    if (count < 0 && errno == EINTR) continue;
    if (entries[0].revents != 0) return Woken::stopped;
    if (count <= 0) return Woken::time;
    if (take_events()) return Woken::changed;
    if (left.count() <= 0) return Woken::time;
  }
}

}  // namespace anchorhold::session
