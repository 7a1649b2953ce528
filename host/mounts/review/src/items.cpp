#include "items.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

#include "content.h"
#include "mounts/keeper_protocol.h"

namespace anchorhold::mounts {
namespace {

// The clock that file times are taken from lags behind by up to a tick.
constexpr std::int64_t tick_ns = 20'000'000;

UniqueFd open_content(const Located& file) {
  return UniqueFd(open(descriptor_path(file.fd.get()).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
}

}  // namespace

std::string Item::path() const {
  if (!wanted.empty()) return wanted.front();
  return names.empty() ? row.path : names.front()->path();
}

bool same_content(const Located& a, const Located& b) {
  if (!a.is_file() || !b.is_file() || a.attributes.size != b.attributes.size) return false;
  UniqueFd one = open_content(a), other = open_content(b);
  if (!one || !other) return false;
  constexpr std::size_t piece = 128 * 1024;
  std::vector<char> left(piece), right(piece);
  auto size = static_cast<off_t>(a.attributes.size);
  for (off_t at = 0; at < size;) {
    // Over what is a hole in both.
    off_t data = lseek(one.get(), at, SEEK_DATA), other_data = lseek(other.get(), at, SEEK_DATA);
    if (data < 0 && errno == ENXIO) data = size;
    if (other_data < 0 && errno == ENXIO) other_data = size;
    if (data >= 0 && other_data >= 0) at = std::max(at, std::min(data, other_data));
    ssize_t got = pread(one.get(), left.data(), piece, at);
    if (got < 0) return false;
    if (got == 0) return at >= size;
    for (ssize_t done = 0; done < got;) {
      ssize_t more = pread(other.get(), right.data() + done, static_cast<std::size_t>(got - done), at + done);
      if (more <= 0) return false;
      done += more;
    }
    if (std::memcmp(left.data(), right.data(), static_cast<std::size_t>(got)) != 0) return false;
    at += got;
  }
  return true;
}

Checked<Located> kept_file(int kept, const ObjectRow& row) {
  if (!row.content_is_kept()) return refuse_with(ENOENT);
  return locate_beneath(kept, row.kept_name);
}

std::string target_of(const Located& symlink) {
  std::string target(max_symlink_bytes + 1, '\0');
  ssize_t size = readlinkat(symlink.fd.get(), "", target.data(), target.size());
  target.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  return target;
}

Result<Situation> Situation::find(Book& book, std::int64_t epoch, int root, int kept,
                                  const std::optional<std::string>& only_file,
                                  const std::function<bool(const Located&)>& unreadable) {
  Situation situation;
  situation.root_ = root;
  situation.last_written_ns_ = book.last_written_ns();
  for (const auto& each : ANCHORHOLD_TRY(book.epochs()))
    if (each.number == epoch && each.ended_ns < 0) situation.last_written_ns_ = -each.ended_ns;
  situation.remains_ = ANCHORHOLD_TRY(book.remains());
  std::unordered_set<Identity, IdentityHash> wanted;
  for (auto& row : ANCHORHOLD_TRY(book.objects(epoch))) {
    wanted.insert(row.identity);
    for (const auto& place : row.gained) wanted.insert(place.folder);
    Item item;
    item.row = std::move(row);
    situation.items_.push_back(std::move(item));
  }
  situation.tree_ = std::make_unique<TreeNow>(root, only_file ? &*only_file : nullptr, wanted, unreadable);
  for (std::size_t i = 0; i < situation.items_.size(); ++i) {
    Item& item = situation.items_[i];
    situation.look_at(item, root, kept);
    // An inode number that was given away and lost again: the one that is there now counts.
    auto [at, fresh] = situation.by_identity_.emplace(item.row.identity, i);
    if (!fresh && item.alive()) at->second = i;
  }
  return situation;
}

void Situation::look_at(Item& item, int root, int kept) {
  const ObjectRow& row = item.row;
  item.names = tree_->of(row.identity);
  std::sort(item.names.begin(), item.names.end(), [](Node* a, Node* b) { return a->path() < b->path(); });
  if (row.created) {
    item.surplus = item.names;
    return;
  }
  item.wanted = row.lost;
  if (std::find(item.wanted.begin(), item.wanted.end(), row.path) == item.wanted.end())
    item.wanted.insert(item.wanted.begin(), row.path);
  for (const auto& path : item.wanted)
    if (std::none_of(item.names.begin(), item.names.end(), [&](Node* node) { return node->path() == path; }))
      item.missing.push_back(path);
  for (Node* node : item.names) {
    if (std::find(item.wanted.begin(), item.wanted.end(), node->path()) != item.wanted.end()) continue;
    bool given = std::any_of(row.gained.begin(), row.gained.end(), [&](const GainedPlace& place) {
      return place.name == node->name && place.folder == node->parent->identity;
    });
    // Where a killed undo had put it for the moment.
    given = given || (node->depth() == 1 && node->name.starts_with(parking_prefix));
    // When it had one name only, that is where it went, whoever noted it.
    if (given || (item.names.size() == 1 && row.links <= 1 && !row.lost.empty()))
      item.surplus.push_back(node);
  }
  if (!item.alive()) return;
  const Node& node = *item.names.front();
  auto object = locate_beneath(root, node.path());
  if (!object || object->identity() != row.identity) return;
  if (row.is_file() && row.content_is_kept()) {
    auto before = kept_file(kept, row);
    item.content_differs = before && !same_content(*object, *before);
  }
  item.mode_differs = !row.is_symlink() && (object->attributes.mode & 07777) != (row.mode & 07777);
  item.times_differ = object->attributes.modify_time != row.modify_time;
  item.xattrs_differ = (row.is_file() || row.is_folder()) && user_xattrs(*object) != row.xattrs;
}

Item* Situation::item_of(const Identity& identity) {
  auto found = by_identity_.find(identity);
  return found == by_identity_.end() ? nullptr : &items_[found->second];
}

bool Situation::is_as_we_left_it(const Item& item, const Node& node) const {
  const Attributes& now = node.attributes;
  auto noted = remains_.find(item.row.identity);
  // It was not noted: the keeper was killed. What is older than its last word is the session's.
  if (noted == remains_.end()) return nanoseconds(now.change_time) <= last_written_ns_ + tick_ns;
  const Remains& then = noted->second;
  bool untouched = nanoseconds(now.change_time) == then.change_ns;
  // Elsewhere with its old change time: a folder above was moved, not it.
  if (node.path() != then.path && !untouched && (now.links == 1 || item.row.is_folder())) return false;
  if (item.row.is_folder()) return (now.mode & 07777) == (then.mode & 07777);
  if (now.mode != then.mode || now.size != then.size) return false;
  if (untouched) return true;
  if (!S_ISREG(now.mode)) return nanoseconds(now.modify_time) == then.modify_ns;
  if (then.hash.empty()) return false;
  auto object = locate_beneath(root_, node.path());
  if (!object || object->identity() != item.row.identity) return false;
  auto hash = content_hash(*object);
  return hash && *hash == then.hash;
}

bool Situation::times_are_as_we_left_them(const Item& item) const {
  if (!item.alive()) return true;
  const Attributes& now = item.names.front()->attributes;
  auto modified = nanoseconds(now.modify_time);
  auto noted = remains_.find(item.row.identity);
  if (noted != remains_.end()) return modified == noted->second.modify_ns;
  // A session may set any time of modification, also one that is still to come; nobody can set when the
  // object was last changed.
  return std::min(modified, nanoseconds(now.change_time)) <= last_written_ns_ + tick_ns;
}

}  // namespace anchorhold::mounts
