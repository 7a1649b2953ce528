// What the kernel's events mean: which changes were made by somebody else than the guest, and what the host
// is told of them.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <set>
#include <sys/inotify.h>
#include <tuple>
#include <unistd.h>
#include <utility>

#include "mounts/watch_protocol.h"
#include "reader/host_watch.h"

namespace anchorhold::mounts {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::size_t max_deferred = 1u << 16;
// How long it is waited until it is clear who changed a file.
constexpr milliseconds longest_settling{1000};

ObjectKind kind_of(const Statx& info) {
  return S_ISDIR(info.stx_mode)   ? ObjectKind::folder
         : S_ISREG(info.stx_mode) ? ObjectKind::file
         : S_ISLNK(info.stx_mode) ? ObjectKind::symlink
                                  : ObjectKind::other;
}

}  // namespace

// True: there may be more of them.
bool HostWatch::take_events() {
  std::vector<Event> events;
  alignas(inotify_event) std::array<char, 65536> buffer;
  constexpr std::size_t most = 1u << 16;
  while (events.size() < most) {
    ssize_t size = read(spec_.events.get(), buffer.data(), buffer.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;
    for (std::size_t at = 0; at + sizeof(inotify_event) <= static_cast<std::size_t>(size);) {
      inotify_event kernel;
      std::memcpy(&kernel, buffer.data() + at, sizeof kernel);
      const char* name = buffer.data() + at + sizeof kernel;
      at += sizeof kernel + kernel.len;
      if (kernel.mask & IN_Q_OVERFLOW) {
        events.clear();
        lose_everything();
        continue;
      }
      std::lock_guard lock(mutex_);
      auto watch = by_watch_.find(kernel.wd);
      if (watch == by_watch_.end()) continue;
      auto folder = folders_.find(watch->second);
      if (kernel.mask & IN_IGNORED) {  // the folder is gone
        if (folder != folders_.end()) folders_.erase(folder);
        by_watch_.erase(watch);
        continue;
      }
      if (folder == folders_.end()) continue;
      std::string text = kernel.len > 0 ? std::string(name, strnlen(name, kernel.len)) : std::string();
      events.push_back({folder->second.node, std::move(text), kernel.mask, kernel.cookie});
    }
  }
  if (events.empty()) return false;
  others_seen_ = false;
  const bool all = events.size() < most;
  handle_batch(events);
  latest_own_ = others_seen_ ? Time{} : steady_clock::now();
  return !all;
}

void HostWatch::handle_batch(std::vector<Event>& events) {
  std::set<std::tuple<std::uint64_t, std::string, std::uint32_t>> seen;  // since names last changed
  for (std::size_t i = 0; i < events.size(); ++i) {
    Event& event = events[i];
    if (!event.folder) continue;  // done, as the second half of a rename
    constexpr std::uint32_t contents = IN_MODIFY | IN_ATTRIB;
    if (event.mask & contents) {
      if (seen.emplace(event.folder->id(), event.name, event.mask).second)
        content_or_attributes(std::move(event), std::nullopt);
      continue;
    }
    seen.clear();
    if (event.mask & IN_MOVED_FROM) {
      auto to = std::find_if(
          events.begin() + static_cast<std::ptrdiff_t>(i) + 1, events.end(),
          [&](const Event& e) { return e.folder && (e.mask & IN_MOVED_TO) && e.cookie == event.cookie; });
      if (to != events.end() && renamed(event, *to)) {
        to->folder.reset();
        continue;
      }
    }
    if (event.mask & (IN_MOVED_FROM | IN_DELETE))
      vanished(event);
    else if (event.mask & (IN_MOVED_TO | IN_CREATE))
      appeared(event);
  }
}

bool HostWatch::is_same(const Event& a, const Event& b) {
  return a.folder == b.folder && a.name == b.name && a.mask == b.mask;
}

void HostWatch::content_or_attributes(Event event, std::optional<Deferred> deferred) {
  // A folder's own attributes are told by the watch of the folder above; the granted folder has none.
  if (event.name.empty() && event.folder != nodes_.root()) return;
  if (!event.name.empty() && !visible_(context_, event.folder, event.name)) return;
  auto folder = nodes_.descriptor(event.folder);
  if (!folder) return;
  auto info = event.name.empty() ? nodes_.stat_descriptor((*folder)->get())
                                 : nodes_.stat_at((*folder)->get(), event.name);
  if (!info) return;  // what happened to the name is an event of its own
  auto made_by = own_.maker(*info, event.folder->id(), event.name);
  if (made_by == OwnChanges::Maker::guest) return;
  if (made_by == OwnChanges::Maker::unclear && !settling_now_ && defer(event, deferred)) return;
  if (!deferred) std::erase_if(deferred_, [&](const Deferred& other) { return is_same(other.event, event); });
  HostChange change;
  change.kind = event.mask & IN_MODIFY ? HostChange::Kind::content : HostChange::Kind::attributes;
  change.object = kind_of(*info);
  change.path = nodes_.path(event.folder, event.name);
  tell(std::move(change));
}

// Not for ever: false when it has waited long enough.
bool HostWatch::defer(const Event& event, const std::optional<Deferred>& deferred) {
  auto now = steady_clock::now();
  auto last_due = deferred ? deferred->last_due : now + longest_settling;
  if (now >= last_due || deferred_.size() >= max_deferred) return false;
  bool waiting = std::any_of(deferred_.begin(), deferred_.end(),
                             [&](const Deferred& other) { return is_same(other.event, event); });
  if (!waiting) deferred_.push_back({event, now + settling, last_due});
  return true;
}

void HostWatch::handle_deferred() {
  auto now = steady_clock::now();
  std::vector<Deferred> due;
  auto rest = std::stable_partition(deferred_.begin(), deferred_.end(), [&](const Deferred& deferred) {
    return deferred.due > now && !settling_now_;
  });
  std::move(rest, deferred_.end(), std::back_inserter(due));
  deferred_.erase(rest, deferred_.end());
  for (auto& deferred : due) {
    auto event = deferred.event;
    content_or_attributes(std::move(event), std::move(deferred));
  }
}

void HostWatch::appeared(const Event& event) {
  if (own_.is_own(event.folder->id(), event.name, true) || !visible_(context_, event.folder, event.name))
    return;
  auto folder = nodes_.descriptor(event.folder);
  if (!folder) return;
  auto info = nodes_.stat_at((*folder)->get(), event.name);
  if (!info) return;  // gone again
  tell({HostChange::Kind::appeared, kind_of(*info), nodes_.path(event.folder, event.name), {}});
}

void HostWatch::vanished(const Event& event) {
  if (own_.is_own(event.folder->id(), event.name, false) || !visible_(context_, event.folder, event.name))
    return;
  tell({HostChange::Kind::vanished,
        event.mask & IN_ISDIR ? ObjectKind::folder : ObjectKind::file,
        nodes_.path(event.folder, event.name),
        {}});
}

bool HostWatch::renamed(const Event& from, const Event& to) {
  bool own_from = own_.is_own(from.folder->id(), from.name, false);
  bool own_to = own_.is_own(to.folder->id(), to.name, true);
  if (own_from || own_to) return true;
  // A name that does not exist for the guest is elsewhere.
  if (!visible_(context_, from.folder, from.name) || !visible_(context_, to.folder, to.name)) return false;
  tell({HostChange::Kind::renamed, from.mask & IN_ISDIR ? ObjectKind::folder : ObjectKind::file,
        nodes_.path(from.folder, from.name), nodes_.path(to.folder, to.name)});
  return true;
}

void HostWatch::tell(HostChange change) {
  others_seen_ = true;
  WatchMessage message{WatchMessage::Kind::change, 0, std::move(change)};
  send_to_host(encode_watch_message(message));
}

void HostWatch::lose_everything() {
  {
    std::lock_guard lock(mutex_);
    trusted_from_ = steady_clock::now() + own_time;
    for (auto& [id, folder] : folders_) folder.listed = false;
    own_.forget_names();
  }
  tell({HostChange::Kind::lost, ObjectKind::file, {}, {}});
}

}  // namespace anchorhold::mounts
