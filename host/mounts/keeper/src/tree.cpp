#include "tree.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace anchorhold::mounts {
namespace {

// A rename on the host between reading the path and walking it makes the walk miss; then it is read again.
constexpr int locate_attempts = 32;

// Held, so that the kernel has one name to look up for each path and not four. Opened after the process was
// sealed, which closes what it does not know.
int own_descriptors() {
  static const UniqueFd folder(::open("/proc/self/fd", O_PATH | O_DIRECTORY | O_CLOEXEC));
  return folder.get();
}

Checked<std::string> path_of(int fd) {
  char buffer[PATH_MAX];
  char name[16] = {};
  std::to_chars(name, name + sizeof name - 1, fd);
  ssize_t size = readlinkat(own_descriptors(), name, buffer, sizeof buffer);
  if (size < 0) return refuse_with(errno);
  if (size == sizeof buffer) return refuse_with(ENAMETOOLONG);
  return std::string(buffer, static_cast<std::size_t>(size));
}

UniqueFd open_beneath(int folder, const std::string& path) {
  open_how how{};
  how.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  return UniqueFd(static_cast<int>(syscall(SYS_openat2, folder, path.c_str(), &how, sizeof how)));
}

// With errno as it is when nothing was opened.
Checked<Located> opened(UniqueFd fd, std::string path) {
  if (!fd) return refuse_with(errno);
  auto attributes = attributes_of(fd.get());
  if (!attributes) return refuse_with(attributes.error());
  Located located;
  located.generation = generation_of(fd.get());
  located.fd = std::move(fd);
  located.attributes = *attributes;
  located.path = std::move(path);
  return located;
}

}  // namespace

std::optional<KnownPlaces::Place> KnownPlaces::find(const Attributes& attributes) {
  std::lock_guard lock(mutex_);
  auto found = by_inode_.find(attributes.inode);
  if (found == by_inode_.end() || found->second.device != attributes.device) return std::nullopt;
  return found->second;
}

void KnownPlaces::add(const Located& object) {
  constexpr std::size_t most = 256;
  std::lock_guard lock(mutex_);
  if (by_inode_.size() >= most) by_inode_.clear();
  by_inode_.insert_or_assign(object.attributes.inode, Place{object.path, object.attributes.device});
}

std::string KnownPlaces::root() {
  std::lock_guard lock(mutex_);
  return root_;
}

void KnownPlaces::set_root(const std::string& path) {
  std::lock_guard lock(mutex_);
  root_ = path;
}

Result<Tree> Tree::open(UniqueFd root, HiddenNames hidden, std::optional<std::string> only_file) {
  auto located = opened(std::move(root), {});
  if (!located) return fail_errno(located.error(), "the granted folder");
  if (!located->is_folder()) return fail(ErrorCode::invalid_argument, "the grant's root is not a folder");
  return Tree(std::move(*located), std::move(hidden), std::move(only_file));
}

std::size_t Tree::find_hidden(std::string_view path) const {
  for (std::size_t begin = 0; begin < path.size();) {
    auto end = std::min(path.find('/', begin), path.size());
    if (hidden_.hides(path.substr(begin, end - begin))) return begin;
    begin = end + 1;
  }
  return std::string_view::npos;
}

int Tree::check_name(const Located& folder, std::string_view name) const {
  if (!is_valid_name(name)) return EINVAL;
  return only_file_ && (!folder.path.empty() || name != *only_file_) ? EACCES : 0;
}

// What is at this path now, if it is the object that is looked for.
Checked<Located> Tree::same_at(const std::string& path, const Attributes& wanted) const {
  if (only_file_ && !path.empty() && path != *only_file_) return refuse_with(EACCES);
  auto located = opened(open_beneath(root(), path.empty() ? "." : path), path);
  if (located && !is_same(located->attributes, wanted)) return refuse_with(ENOENT);
  return located;
}

// To read the path of a descriptor takes longer than to walk it. So where an object was is tried before.
Checked<Located> Tree::at_known_place(const Attributes& wanted) const {
  // What has several names is looked for by the one that was passed.
  if (!S_ISDIR(wanted.mode) && wanted.links != 1) return refuse_with(ENOENT);
  auto place = places_->find(wanted);
  if (!place) return refuse_with(ENOENT);
  return same_at(place->path, wanted);
}

Checked<Located> Tree::locate(int passed) const {
  auto wanted = attributes_of(passed);
  if (!wanted) return refuse_with(wanted.error());
  // It is open, so that nothing else can look like it.
  if (is_same(*wanted, root_.attributes)) {
    Located itself = root_;
    itself.attributes = *wanted;
    return itself;
  }
  if (auto known = at_known_place(*wanted)) return known;
  std::string root_path = places_->root();
  for (int attempt = 0; attempt < locate_attempts; ++attempt) {
    // Where the granted folder was is good enough to begin with: the path is walked from its descriptor.
    if (attempt > 0 || root_path.empty()) {
      auto read = path_of(root());
      if (!read) return refuse_with(read.error());
      root_path = std::move(*read);
      places_->set_root(root_path);
    }
    auto path = path_of(passed);
    if (!path) return refuse_with(path.error());
    std::string relative;
    if (*path != root_path) {
      if (!path->starts_with(root_path + "/")) {
        // Outside, unless the granted folder itself was renamed meanwhile.
        if (path_of(root()) == root_path) return refuse_with(ESTALE);
        continue;
      }
      relative = path->substr(root_path.size() + 1);
    }
    auto located = same_at(relative, *wanted);
    if (located) {
      if (located->is_folder()) places_->add(*located);
      return located;
    }
    int error = located.error();
    if (error != ENOENT && error != ELOOP && error != ENOTDIR && error != EAGAIN && error != EXDEV)
      return refuse_with(error);
  }
  return refuse_with(ESTALE);
}

Checked<Located> Tree::entry(const Located& folder, std::string_view name) const {
  if (int error = check_name(folder, name); error != 0) return refuse_with(error);
  std::string path = folder.path.empty() ? std::string(name) : folder.path + "/" + std::string(name);
  return opened(open_beneath(folder.fd.get(), std::string(name)), std::move(path));
}

Checked<Located> Tree::at(const std::string& path) const {
  return opened(open_beneath(root(), path.empty() ? "." : path), path);
}

Checked<Located> Tree::made(const Located& folder, std::string_view name, int file) const {
  auto attributes = attributes_of(file);
  if (!attributes) return refuse_with(attributes.error());
  Located located;
  located.attributes = *attributes;
  located.generation = generation_of(file);
  located.path = folder.path.empty() ? std::string(name) : folder.path + "/" + std::string(name);
  places_->add(located);
  return located;
}

bool symlink_escapes(std::string_view path, std::string_view target) {
  if (target.starts_with('/')) return true;
  long depth = 0;
  for (char c : path)
    if (c == '/') ++depth;
  while (!target.empty()) {
    auto slash = target.find('/');
    auto word = target.substr(0, slash);
    if (word == "..") {
      if (--depth < 0) return true;
    } else if (!word.empty() && word != ".") {
      ++depth;
    }
    target = slash == std::string_view::npos ? std::string_view{} : target.substr(slash + 1);
  }
  return false;
}

}  // namespace anchorhold::mounts
