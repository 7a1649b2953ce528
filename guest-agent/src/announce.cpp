#include "announce.h"

#include <cerrno>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string_view>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/guest_numbers.h"

namespace anchorhold::guest {
namespace {

// Of this thread; capabilities stay.
class Group {
 public:
  explicit Group(gid_t group) : before_(setfsgid(group)) {}
  ~Group() { setfsgid(static_cast<gid_t>(before_)); }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

 private:
  int before_;
};

gid_t announcing(bool folder) {
  return folder ? announcing_folder_group : announcing_group;
}

// A path as the folder it is in, and its name there.
struct Place {
  UniqueFd folder;
  std::string name;

  Place(int root, const std::string& path) {
    auto slash = path.rfind('/');
    open_how how{};
    how.flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
    how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS;
    std::string above = slash == std::string::npos ? "." : path.substr(0, slash);
    folder.reset(static_cast<int>(syscall(SYS_openat2, root, above.c_str(), &how, sizeof how)));
    name = slash == std::string::npos ? path : path.substr(slash + 1);
  }
  explicit operator bool() const { return static_cast<bool>(folder); }
};

// The kernel looks up the last name of a path that is to be made anew, whatever it remembers of it, and
// compares; that this one is on another file system it notices afterwards. True: it is there.
bool look_up(const Place& place) {
  return linkat(AT_FDCWD, "/", place.folder.get(), place.name.c_str(), 0) != 0 && errno == EEXIST;
}

bool look_up_anew(const Place& place) {
  Group group(asking_anew_group);
  return look_up(place);
}

// Before and after a change is announced. A kernel throws an answer away when another one, of a request that
// may be older than the change, overtook it; the second look is asked for after that one came, so what is
// older than the change is believed no more.
class LookedUpAnew {
 public:
  explicit LookedUpAnew(const Place& place) : place_(place), there_(look_up_anew(place)) {}
  ~LookedUpAnew() {
    if (there_) look_up_anew(place_);
  }
  LookedUpAnew(const LookedUpAnew&) = delete;
  LookedUpAnew& operator=(const LookedUpAnew&) = delete;
  explicit operator bool() const { return there_; }

 private:
  const Place& place_;
  const bool there_;
};

// The kernel takes the size that comes with the answer to a change of times for the newest there is, and by
// then the host may have written more. So a file's changes are announced by what is answered without
// attributes, where it can be done in that way.
void touch(const Place& place, bool folder) {
  Group group(announcing(folder));
  std::string path = "/proc/self/fd/" + std::to_string(place.folder.get()) + "/" + place.name;
  if (!folder && lsetxattr(path.c_str(), "user.anchorhold", "", 0, 0) == 0) return;
  const timespec now[2] = {{0, UTIME_NOW}, {0, UTIME_NOW}};
  utimensat(place.folder.get(), place.name.c_str(), now, AT_SYMLINK_NOFOLLOW);
}

// An open of this kind lets go of all pages.
UniqueFd open_announcing(const Place& place, int access) {
  Group group(announcing(false));
  return UniqueFd(
      openat(place.folder.get(), place.name.c_str(), access | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
}

void content_changed(const Place& place) {
  // The pages go before the new size comes: whoever reads meanwhile would get old bytes up to the new size.
  open_announcing(place, O_RDONLY);
  LookedUpAnew there(place);
  if (!there) return;
  UniqueFd file = open_announcing(place, O_WRONLY);
  // What is being executed cannot be opened for writing.
  if (!file) file = open_announcing(place, O_RDONLY);
  if (!file) return;
  Group group(announcing(false));
  if (fallocate(file.get(), FALLOC_FL_KEEP_SIZE, 0, 1) == 0) return;
  const timespec modified[2] = {{0, UTIME_OMIT}, {0, UTIME_NOW}};
  futimens(file.get(), modified);
}

void appeared(const Place& place, wire::HostChange::Object object) {
  {
    Group group(announcing(object == wire::HostChange::OBJECT_FOLDER));
    int folder = place.folder.get(), done = 0;
    const char* name = place.name.c_str();
    if (object == wire::HostChange::OBJECT_FOLDER)
      done = mkdirat(folder, name, 0755);
    else if (object == wire::HostChange::OBJECT_SYMLINK)
      done = symlinkat("-", folder, name);
    else if (object == wire::HostChange::OBJECT_FILE)
      done = mknodat(folder, name, S_IFREG | 0644, 0);
    (void)done;  // when it is gone again, that is told next
  }
  look_up_anew(place);
}

void vanished(const Place& place, bool folder) {
  {
    Group group(announcing(folder));
    auto remove = [&] { return unlinkat(place.folder.get(), place.name.c_str(), folder ? AT_REMOVEDIR : 0); };
    // What it remembers not to be there, it has to see once more.
    if (remove() != 0 && errno == ENOENT && look_up(place)) remove();
  }
  look_up_anew(place);
}

void renamed(const Place& from, const Place& to, bool folder) {
  {
    Group group(announcing(folder));
    auto move = [&] {
      return renameat(from.folder.get(), from.name.c_str(), to.folder.get(), to.name.c_str());
    };
    if (move() != 0 && errno == ENOENT && look_up(from)) move();
  }
  look_up_anew(from);
  look_up_anew(to);
}

// Remounting drops every name of the file system that is not in use.
void everything_changed(int root) {
  std::string path = "/proc/self/fd/" + std::to_string(root);
  mount(nullptr, path.c_str(), nullptr, MS_REMOUNT | MS_NODEV | MS_NOSUID, nullptr);
}

void announce_one(int root, const wire::HostChange& change) {
  bool folder = change.object() == wire::HostChange::OBJECT_FOLDER;
  if (change.kind() == wire::HostChange::KIND_LOST) return everything_changed(root);
  if (change.path().empty()) {  // the share itself
    Group group(announcing(true));
    const timespec now[2] = {{0, UTIME_NOW}, {0, UTIME_NOW}};
    utimensat(root, ".", now, 0);
    return;
  }
  Place place(root, change.path());
  if (change.kind() == wire::HostChange::KIND_RENAMED) {
    Place to(root, change.new_path());
    if (place && to) return renamed(place, to, folder);
    if (to) return appeared(to, change.object());
    if (place) return vanished(place, folder);
    return;
  }
  if (!place) return;
  switch (change.kind()) {
    case wire::HostChange::KIND_CONTENT:
      return content_changed(place);
    case wire::HostChange::KIND_ATTRIBUTES:
      if (LookedUpAnew there(place); there) touch(place, folder);
      return;
    case wire::HostChange::KIND_APPEARED:
      return appeared(place, change.object());
    case wire::HostChange::KIND_VANISHED:
      return vanished(place, folder);
    default:
      return;
  }
}

}  // namespace

void announce(int root, const google::protobuf::RepeatedPtrField<wire::HostChange>& changes) {
  for (const auto& change : changes) announce_one(root, change);
}

Status check_change_path(const std::string& path, bool may_be_empty) {
  auto wrong = [] { return fail(ErrorCode::invalid_argument, "not a path within a share"); };
  if (path.empty()) return may_be_empty ? Status{} : Status(wrong());
  for (std::string_view rest = path;;) {
    auto name = rest.substr(0, rest.find('/'));
    if (name.empty() || name.size() > 255 || name == "." || name == ".." || name.find('\0') != name.npos)
      return wrong();
    if (name.size() == rest.size()) return {};
    rest.remove_prefix(name.size() + 1);
  }
}

}  // namespace anchorhold::guest
