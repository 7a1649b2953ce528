#include "announcer.h"

#include <algorithm>

#include "base/log.h"

namespace anchorhold::session {
namespace {

// A host that changes more than the guest can be told gets one message instead: everything may be different.
constexpr std::size_t most_pending = 16384;
// Of one message: few enough that it is seen whether a busy guest gets on.
constexpr std::size_t most_changes = 64, most_bytes = 1u << 20;
static_assert(most_changes <= max_changes_at_once);

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
  drop_all();
  changed_.notify_all();
  changed_.wait(lock, [&] { return !calling_; });
}

// With the mutex held.
void Announcer::drop_all() {
  pending_.clear();
  told_ = added_;
}

// With the mutex held. In the place of the first of them, for who waits until that one is told.
void Announcer::lose(const std::string& name) {
  const auto lost = to_share_change({mounts::HostChange::Kind::lost, mounts::ObjectKind::file, {}, {}});
  auto of_share = [&](const Pending& pending) { return pending.name == name; };
  auto first = std::find_if(pending_.begin(), pending_.end(), of_share);
  if (first == pending_.end()) {
    pending_.push_back({++added_, name, lost});
    return;
  }
  first->change = lost;
  pending_.erase(std::remove_if(first + 1, pending_.end(), of_share), pending_.end());
}

bool Announcer::add(const std::string& name, mounts::HostChange change) {
  {
    std::lock_guard lock(mutex_);
    if (failed_) return false;
    if (!client_) return true;
    if (pending_.size() >= most_pending)
      lose(name);
    else
      pending_.push_back({++added_, name, to_share_change(std::move(change))});
  }
  changed_.notify_all();
  return true;
}

bool Announcer::wait_until_told(std::chrono::milliseconds patience,
                                std::chrono::steady_clock::time_point limit) {
  std::unique_lock lock(mutex_);
  const auto wanted = added_;
  auto* client = client_;
  auto over = [&] { return told_ >= wanted || client_ != client; };
  while (!over()) {
    const auto before = told_;
    const auto until = std::min(std::chrono::steady_clock::now() + patience, limit);
    if (!changed_.wait_until(lock, until, [&] { return told_ != before || over(); })) return false;
  }
  return true;
}

std::vector<ShareChange> Announcer::take(std::string& name, std::uint64_t& last) {
  std::vector<ShareChange> changes;
  name = pending_.front().name;
  std::size_t bytes = 0;
  while (!pending_.empty() && pending_.front().name == name && changes.size() < most_changes &&
         bytes < most_bytes) {
    bytes += pending_.front().change.path.size() + pending_.front().change.new_path.size();
    changes.push_back(std::move(pending_.front().change));
    last = pending_.front().number;
    pending_.pop_front();
  }
  return changes;
}

void Announcer::run(std::stop_token stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [&] { return client_ && !pending_.empty(); })) {
    std::string name;
    std::uint64_t last = 0;
    auto changes = take(name, last);
    auto* client = client_;
    calling_ = true;
    lock.unlock();
    auto told = client->announce(name, changes);
    lock.lock();
    calling_ = false;
    if (client == client_) told_ = last;
    // One that cannot be told must not be let to remember.
    const bool fails = !told && told.error().code != ErrorCode::not_found && client == client_;
    if (fails) {
      failed_ = true;
      drop_all();
    }
    changed_.notify_all();
    if (!fails) continue;
    if (told.error().code == ErrorCode::unavailable) continue;
    log_warning("telling the guest of changes in " + name + ": " + told.error().message);
  }
}

}  // namespace anchorhold::session
