#include "hand.h"

#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "content.h"
#include "items.h"

namespace anchorhold::mounts {
namespace {

constexpr std::uint32_t person_may_all = S_IRWXU;

int failed(const Status& status) {
  if (status) return 0;
  log_error(status.error().message);
  return status.error().code == ErrorCode::resource_exhausted ? ENOSPC : EIO;
}

timespec time_of(const Timestamp& time) {
  return {.tv_sec = time.seconds, .tv_nsec = time.nanoseconds};
}

bool exists(int folder, const std::string& name) {
  return attributes_at(folder, name).has_value();
}

// Beside its place, under a name of ours, where a file system has no files without a name.
std::string temporary_name(const ObjectRow& row) {
  return fmt::format(".anchorhold-undo-{}", row.id);
}

}  // namespace

int Hand::record(const Located& object) {
  return ledger_->subject(object).pre_existing ? ledger_->record(object) : 0;
}

int Hand::open_up(const Located& folder) {
  if ((folder.attributes.mode & person_may_all) == person_may_all || geteuid() == 0) return 0;
  if (int error = record(folder); error != 0) return error;
  return chmod(descriptor_path(folder.fd.get()).c_str(), (folder.attributes.mode & 07777) | person_may_all) ==
                 0
             ? 0
             : errno;
}

// The folder of a path, ready for its names to change.
Checked<Located> Hand::folder_for(const std::string& path) {
  auto folder = locate_beneath(root_, folder_and_name(path).first);
  if (!folder) return folder;
  if (!folder->is_folder()) return refuse_with(ENOTDIR);
  if (int error = record(*folder); error != 0) return refuse_with(error);
  if (int error = open_up(*folder); error != 0) return refuse_with(error);
  return folder;
}

Checked<Located> Hand::expected_at(const std::string& path, const Identity& expected) {
  auto object = locate_beneath(root_, path);
  if (object && object->identity() != expected) return refuse_with(ESTALE);
  return object;
}

int Hand::remove(const std::string& path, const Identity& expected) {
  auto folder = folder_for(path);
  if (!folder) return folder.error();
  auto object = expected_at(path, expected);
  if (!object) return object.error();
  std::string name = folder_and_name(path).second;
  bool gone = false;
  if (ledger_->subject_at(*folder, name, *object).pre_existing) {
    auto kept = ledger_->keep_all(*folder, name, *object, Ledger::Loss::removed);
    if (kept.error != 0) return kept.error;
    gone = kept.moved_away;
  }
  if (!gone)
    if (int error = ledger_->remove_name(*folder, name, *object); error != 0) return error;
  ledger_->removed(*folder, name, *object);
  return 0;
}

int Hand::move(const std::string& path, const Identity& expected, const std::string& new_path) {
  auto from = folder_for(path);
  if (!from) return from.error();
  auto to = folder_for(new_path);
  if (!to) return to.error();
  auto object = expected_at(path, expected);
  if (!object) return object.error();
  // A folder that is given another one above has its ".." changed, which needs the right to write in it.
  if (object->is_folder())
    if (int error = open_up(*object); error != 0) return error;
  if (int error = record(*object); error != 0) return error;
  auto noted = ledger_->note_rename(*object, new_path, false);
  if (!noted) return noted.error();
  std::string name = folder_and_name(path).second, new_name = folder_and_name(new_path).second;
  if (renameat2(from->fd.get(), name.c_str(), to->fd.get(), new_name.c_str(), RENAME_NOREPLACE) != 0) {
    int error = errno;
    ledger_->forget_rename(*noted);
    return error;
  }
  ledger_->renamed(*from, name, *object, *to, new_name, new_path);
  return 0;
}

int Hand::link(const std::string& path, const Identity& expected, const std::string& new_path) {
  auto object = expected_at(path, expected);
  if (!object) return object.error();
  auto folder = folder_for(new_path);
  if (!folder) return folder.error();
  std::string name = folder_and_name(new_path).second;
  if (exists(folder->fd.get(), name)) return EEXIST;
  bool pre_existing = ledger_->subject(*object).pre_existing;
  if (pre_existing)
    if (int error = ledger_->add_link(*folder, name, *object); error != 0) return error;
  if (linkat(AT_FDCWD, descriptor_path(object->fd.get()).c_str(), folder->fd.get(), name.c_str(),
             AT_SYMLINK_FOLLOW) == 0)
    return 0;
  int error = errno;
  if (pre_existing) ledger_->forget_link(*folder, name);
  return error;
}

int Hand::become(const ObjectRow& row, const Located& object) {
  if (int error = ledger_->add_created(object); error != 0) return error;
  return failed(book_.alias(row.identity, object.identity()));
}

int Hand::adopt(const ObjectRow& row, const Located& found) {
  return ledger_->knows(found.identity()) ? failed(book_.alias(row.identity, found.identity()))
                                          : become(row, found);
}

int Hand::set_attributes(const Located& object, const ObjectRow& row, bool times) {
  if (row.owner >= 0 && geteuid() == 0)
    (void)!fchownat(object.fd.get(), "", static_cast<uid_t>(row.owner), static_cast<gid_t>(row.owner_group),
                    AT_EMPTY_PATH);
  const Attributes& now = object.attributes;
  std::string path = descriptor_path(object.fd.get());
  if (!row.is_symlink()) {
    bool mode_differs = (now.mode & 07777) != (row.mode & 07777);
    // An owner can always be let in for the moment.
    if (user_xattrs(object) != row.xattrs && geteuid() != 0)
      mode_differs |= chmod(path.c_str(), (now.mode & 07777) | S_IRUSR | S_IWUSR) == 0;
    if (int error = set_user_xattrs(object, row.xattrs); error != 0 && error != EOPNOTSUPP) return error;
    // What is as it was is not touched: it may be somebody else's.
    if (mode_differs && chmod(path.c_str(), row.mode & 07777) != 0) return errno;
  }
  timespec both[2] = {time_of(row.access_time), time_of(row.modify_time)};
  bool modify_differs = now.modify_time != row.modify_time;
  if (times && (modify_differs || now.access_time != row.access_time) &&
      utimensat(object.fd.get(), "", both, AT_EMPTY_PATH) != 0 && modify_differs)
    return errno;
  return 0;
}

int Hand::restore_attributes(const std::string& path, const ObjectRow& row, bool times) {
  auto object = expected_at(path, row.identity);
  if (!object) return object.error();
  if (int error = record(*object); error != 0) return error;
  return set_attributes(*object, row, times);
}

int Hand::restore_content(const std::string& path, const ObjectRow& row) {
  auto object = expected_at(path, row.identity);
  if (!object) return object.error();
  auto before = kept_file(kept_, row);
  if (!before) return before.error();
  if (ledger_->subject(*object).pre_existing) {
    auto copied = copied_as_.find(row.identity);
    int error = copied == copied_as_.end() || unchanged(copied->second, object->attributes)
                    ? ledger_->keep_content(*object)
                    : ledger_->keep_content_again(*object);
    if (error != 0) return error;
  }
  std::string name = descriptor_path(object->fd.get());
  UniqueFd from(open(descriptor_path(before->fd.get()).c_str(), O_RDONLY | O_CLOEXEC));
  UniqueFd to(open(name.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!to && errno == EACCES &&
      chmod(name.c_str(), (object->attributes.mode & 07777) | S_IRUSR | S_IWUSR) == 0)
    to = UniqueFd(open(name.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!from || !to) return errno;
  if (ftruncate(to.get(), 0) != 0) return errno;
  return copy_content(from.get(), to.get());
}

Checked<Located> Hand::make_again(const ObjectRow& row, const std::string& path) {
  auto folder = folder_for(path);
  if (!folder) return folder;
  if (row.kept == HowKept::moved) return put_back(row, *folder, path);
  return row.is_file() ? make_file(row, *folder, path) : make_other(row, *folder, path);
}

void Hand::prepare_to_make_again(const std::vector<const ObjectRow*>& rows) {
  auto root = attributes_of(root_);
  std::vector<std::int64_t> copies;
  for (const ObjectRow* row : rows) {
    if (!root || !row->is_file() || row->kept != HowKept::moved) continue;
    auto file = kept_file(kept_, *row);
    if (!file || file->attributes.device != root->device) continue;
    if (!keep_copy(*file, kept_, kept_file_name(row->id, false, row->path), Durable::later)) break;
    copies.push_back(row->id);
  }
  // The names that are to be in kept/ come to the disk with it.
  UniqueFd kept(openat(kept_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!copies.empty() && kept && syncfs(kept.get()) == 0) copied_.insert(copies.begin(), copies.end());
}

// The very file that was moved into kept/ goes back, with all that is not recorded (its owner, its ACL, its
// birth time); a copy stays in kept/ in its place.
Checked<Located> Hand::put_back(const ObjectRow& row, const Located& folder, const std::string& path) {
  auto file = kept_file(kept_, row);
  if (!file) return file;
  // A cross-device ledger never moved anything.
  if (file->attributes.device != folder.attributes.device)
    return row.is_file() ? make_file(row, folder, path) : make_other(row, folder, path);
  // What this person cannot read is somebody else's: it goes back, and nothing stays.
  if (int error = keep_twin(*file, row); error != 0 && error != EACCES) return refuse_with(error);
  file->path = path;
  if (int error = set_attributes(*file, row, true); error != 0) return refuse_with(error);
  if (int error = become(row, *file); error != 0) return refuse_with(error);
  if (renameat2(kept_, row.kept_name.c_str(), folder.fd.get(), folder_and_name(path).second.c_str(),
                RENAME_NOREPLACE) != 0)
    return refuse_with(errno);
  return file;
}

int Hand::keep_twin(const Located& file, const ObjectRow& row) {
  std::string name = kept_file_name(row.id, false, row.path);
  if (row.is_meeting_place()) {
    if (mknodat(kept_, name.c_str(), row.mode & S_IFMT, 0) != 0 && errno != EEXIST) return errno;
  } else if (!copied_.contains(row.id)) {
    if (auto copied = keep_copy(file, kept_, name); !copied) return copied.error();
  }
  return failed(book_.set_copied(row.id, name));
}

Checked<Located> Hand::make_file(const ObjectRow& row, const Located& folder, const std::string& path) {
  auto before = kept_file(kept_, row);
  if (!before) return before;
  UniqueFd from(open(descriptor_path(before->fd.get()).c_str(), O_RDONLY | O_CLOEXEC));
  if (!from) return refuse_with(errno);
  std::string name = folder_and_name(path).second, temporary;
  UniqueFd to(openat(folder.fd.get(), ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!to && (errno == EOPNOTSUPP || errno == EISDIR)) {
    temporary = temporary_name(row);
    if (exists(folder.fd.get(), temporary)) unlinkat(folder.fd.get(), temporary.c_str(), 0);
    to = UniqueFd(
        openat(folder.fd.get(), temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  }
  if (!to) return refuse_with(errno);
  auto finish = [&]() -> int {
    if (int error = copy_content(from.get(), to.get()); error != 0) return error;
    auto attributes = attributes_of(to.get());
    if (!attributes) return attributes.error();
    Located made;
    made.fd = UniqueFd(fcntl(to.get(), F_DUPFD_CLOEXEC, 3));
    made.path = path;
    made.attributes = *attributes;
    made.generation = generation_of(to.get());
    if (int error = set_attributes(made, row, true); error != 0) return error;
    if (int error = become(row, made); error != 0) return error;
    int placed = temporary.empty() ? linkat(AT_FDCWD, descriptor_path(to.get()).c_str(), folder.fd.get(),
                                            name.c_str(), AT_SYMLINK_FOLLOW)
                                   : renameat2(folder.fd.get(), temporary.c_str(), folder.fd.get(),
                                               name.c_str(), RENAME_NOREPLACE);
    return placed == 0 ? 0 : errno;
  };
  if (int error = finish(); error != 0) {
    if (!temporary.empty()) unlinkat(folder.fd.get(), temporary.c_str(), 0);
    return refuse_with(error);
  }
  return locate_beneath(root_, path);
}

Checked<Located> Hand::make_other(const ObjectRow& row, const Located& folder, const std::string& path) {
  std::string name = folder_and_name(path).second;
  int made = row.is_folder()          ? mkdirat(folder.fd.get(), name.c_str(), 0700)
             : row.is_symlink()       ? symlinkat(row.target.c_str(), folder.fd.get(), name.c_str())
             : row.is_meeting_place() ? mknodat(folder.fd.get(), name.c_str(), (row.mode & S_IFMT) | 0600, 0)
                                      : (errno = EOPNOTSUPP, -1);
  if (made != 0) return refuse_with(errno);
  auto object = locate_beneath(root_, path);
  if (!object) return object;
  if (int error = become(row, *object); error != 0) return refuse_with(error);
  if (!row.is_folder())
    if (int error = set_attributes(*object, row, true); error != 0) return refuse_with(error);
  return object;
}

}  // namespace anchorhold::mounts
