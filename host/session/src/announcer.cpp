#include "announcer.h"

#include <algorithm>

#include "base/log.h"

namespace anchorhold::session {
namespace {

// A host that changes more than the guest can be told gets one message instead: everything may be different.
constexpr std::size_t most_pending = 16384;
constexpr std::size_t most_bytes = 1u << 20;  // of one message

ShareChange to_share_change(mounts::HostChange change) {
  using Kind = mounts::HostChange::Kind;
  using Object = mounts::ObjectKind;
  ShareChange result;
  switch (change.kind) {
    case Kind::content:
      result.kind = ShareChange::Kind::content;
      break;
    case Kind::attributes:
      result.kind = ShareChange::Kind::attributes;
      break;
    case Kind::appeared:
      result.kind = ShareChange::Kind::appeared;
      break;
    case Kind::vanished:
      result.kind = ShareChange::Kind::vanished;
      break;
    case Kind::renamed:
      result.kind = ShareChange::Kind::renamed;
      break;
    case Kind::lost:
      result.kind = ShareChange::Kind::lost;
      break;
  }
  switch (change.object) {
    case Object::file:
      result.object = ShareChange::Object::file;
      break;
    case Object::folder:
      result.object = ShareChange::Object::folder;
      break;
    case Object::symlink:
      result.object = ShareChange::Object::symlink;
      break;
    case Object::other:
      result.object = ShareChange::Object::other;
      break;
  }
  result.path = std::move(change.path);
  result.new_path = std::move(change.new_path);
  return result;
}

}  // namespace

Announcer::Announcer() : thread_([this](std::stop_token stop) { run(std::move(stop)); }) {}

Announcer::~Announcer() {
  serve(nullptr);
}

void Announcer::serve(GuestClient* client) {
  std::unique_lock lock(mutex_);
  client_ = client;
  failed_ = false;
  pending_.clear();
  changed_.wait(lock, [&] { return !calling_; });
}

bool Announcer::add(const std::string& name, mounts::HostChange change) {
  {
    std::lock_guard lock(mutex_);
    if (failed_) return false;
    if (!client_) return true;
    if (pending_.size() >= most_pending) {
      std::erase_if(pending_, [&](const Pending& pending) { return pending.name == name; });
      change = {mounts::HostChange::Kind::lost, mounts::ObjectKind::file, {}, {}};
    }
    pending_.push_back({name, to_share_change(std::move(change))});
  }
  changed_.notify_all();
  return true;
}

std::vector<ShareChange> Announcer::take(std::string& name) {
  std::vector<ShareChange> changes;
  name = pending_.front().name;
  std::size_t bytes = 0;
  while (!pending_.empty() && pending_.front().name == name && changes.size() < max_changes_at_once &&
         bytes < most_bytes) {
    bytes += pending_.front().change.path.size() + pending_.front().change.new_path.size();
    changes.push_back(std::move(pending_.front().change));
    pending_.pop_front();
  }
  return changes;
}

void Announcer::run(std::stop_token stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [&] { return client_ && !pending_.empty(); })) {
    std::string name;
    auto changes = take(name);
    auto* client = client_;
    calling_ = true;
    lock.unlock();
    auto told = client->announce(name, changes);
    lock.lock();
    calling_ = false;
    changed_.notify_all();
    // One that cannot be told must not be let to remember.
    if (told || told.error().code == ErrorCode::not_found || client != client_) continue;
    failed_ = true;
    pending_.clear();
    if (told.error().code == ErrorCode::unavailable) continue;
    log_warning("telling the guest of changes in " + name + ": " + told.error().message);
  }
}

}  // namespace anchorhold::session
