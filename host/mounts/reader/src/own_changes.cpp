#include "reader/own_changes.h"

#include <algorithm>

namespace anchorhold::mounts {
namespace {

using std::chrono::steady_clock;

constexpr std::size_t max_remembered = 1u << 16;

bool same_time(const statx_timestamp& a, const statx_timestamp& b) {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

bool same_version(const Statx& a, const Statx& b) {
  return same_time(a.stx_mtime, b.stx_mtime) && same_time(a.stx_ctime, b.stx_ctime) &&
         a.stx_size == b.stx_size;
}

bool later(const Statx& a, const Statx& b) {
  return std::pair(a.stx_ctime.tv_sec, a.stx_ctime.tv_nsec) >
         std::pair(b.stx_ctime.tv_sec, b.stx_ctime.tv_nsec);
}

}  // namespace

OwnChanges::Name::Name(OwnChanges* changes, std::uint64_t folder, std::string_view name, Names names)
    : folder_(folder), names_(names) {
  if (!changes) return;
  std::lock_guard lock(changes->mutex_);
  if (changes->names_.size() >= max_remembered) return;
  changes_ = changes;
  name_ = name;
  auto& expected = changes->names_[{folder_, name_}];
  if (expected.under_way == 0 && expected.last + own_time < steady_clock::now()) expected = {};
  if (names_ != Names::vanishing) ++expected.appearing;
  if (names_ != Names::appearing) ++expected.vanishing;
  ++expected.under_way;
}

OwnChanges::Name::Name(Name&& other) noexcept
    : changes_(std::exchange(other.changes_, nullptr)),
      folder_(other.folder_),
      name_(std::move(other.name_)),
      names_(other.names_) {}

void OwnChanges::Name::failed() {
  if (!changes_) return;
  std::lock_guard lock(changes_->mutex_);
  auto& expected = changes_->names_[{folder_, name_}];
  if (names_ != Names::vanishing) expected.appearing = std::max(0, expected.appearing - 1);
  if (names_ != Names::appearing) expected.vanishing = std::max(0, expected.vanishing - 1);
}

OwnChanges::Name::~Name() {
  if (!changes_) return;
  std::lock_guard lock(changes_->mutex_);
  auto found = changes_->names_.find({folder_, name_});
  if (found == changes_->names_.end()) return;
  auto& expected = found->second;
  if (expected.under_way > 0) --expected.under_way;
  expected.last = steady_clock::now();
  if (expected.under_way == 0 && expected.appearing == 0 && expected.vanishing == 0)
    changes_->names_.erase(found);
}

OwnChanges::Change::Change(OwnChanges* changes, NodeRef node) {
  if (!changes || !node) return;
  std::lock_guard lock(changes->mutex_);
  if (changes->objects_.size() >= max_remembered && !changes->objects_.contains(node->identity())) return;
  changes_ = changes;
  node_ = std::move(node);
  ++changes->objects_[node_->identity()].under_way;
}

void OwnChanges::Change::done(const Statx& info) {
  if (!changes_) return;
  std::lock_guard lock(changes_->mutex_);
  auto& own = changes_->objects_[node_->identity()];
  if (own.known && later(own.info, info)) return;
  own.known = true;
  own.info = info;
}

OwnChanges::Change::~Change() {
  if (!changes_) return;
  std::lock_guard lock(changes_->mutex_);
  auto& own = changes_->objects_[node_->identity()];
  if (own.under_way > 0) --own.under_way;
  own.last = steady_clock::now();
}

bool OwnChanges::is_own(std::uint64_t folder, const std::string& name, bool appearing) {
  std::lock_guard lock(mutex_);
  auto found = names_.find({folder, name});
  if (found == names_.end()) return false;
  auto& expected = found->second;
  bool fresh = expected.under_way > 0 || expected.last + own_time > steady_clock::now();
  int& count = appearing ? expected.appearing : expected.vanishing;
  bool own = fresh && count > 0;
  if (own) --count;
  if (!fresh || (expected.under_way == 0 && expected.appearing == 0 && expected.vanishing == 0))
    names_.erase(found);
  return own;
}

bool OwnChanges::recently_changed(const NodeRef& node) {
  std::lock_guard lock(mutex_);
  auto found = objects_.find(node->identity());
  return found != objects_.end() &&
         (found->second.under_way > 0 || found->second.last + settling > steady_clock::now());
}

OwnChanges::Maker OwnChanges::maker(const Statx& info, std::uint64_t folder, const std::string& name) {
  std::lock_guard lock(mutex_);
  auto own = objects_.find(identity_of(info));
  if (own != objects_.end() && own->second.known && same_version(own->second.info, info)) return Maker::guest;
  bool changing = own != objects_.end() &&
                  (own->second.under_way > 0 || own->second.last + settling > steady_clock::now());
  return changing || names_.contains({folder, name}) ? Maker::unclear : Maker::somebody_else;
}

void OwnChanges::sweep(Time now) {
  std::lock_guard lock(mutex_);
  auto over = [&](const auto& entry) {
    return entry.second.under_way == 0 && entry.second.last + own_time < now;
  };
  std::erase_if(names_, over);
  std::erase_if(objects_, over);
}

void OwnChanges::forget_names() {
  std::lock_guard lock(mutex_);
  names_.clear();
}

void OwnChanges::clear() {
  std::lock_guard lock(mutex_);
  names_.clear();
  objects_.clear();
}

bool OwnChanges::has_objects() {
  std::lock_guard lock(mutex_);
  return !objects_.empty();
}

}  // namespace anchorhold::mounts
