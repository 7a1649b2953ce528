#include "reader/host_watch.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <set>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include "mounts/watch_protocol.h"

namespace anchorhold::mounts {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::size_t max_folders = 8000;
constexpr std::size_t max_deferred = 1u << 16;
// Events of one moment are taken together: the kernel merges what is the same, and this thread wakes less.
constexpr milliseconds gathering{2};
// While nobody but the guest changes anything.
constexpr milliseconds gathering_own{8}, lately{50};
// How long it is waited until it is clear who changed a file.
constexpr milliseconds longest_settling{1000};
constexpr milliseconds sweep_interval{1000};
// How long a guest that lists a folder waits until the host watches it. Milliseconds on a busy computer.
constexpr milliseconds longest_decision{1000};

ObjectKind kind_of(const Statx& info) {
  return S_ISDIR(info.stx_mode)   ? ObjectKind::folder
         : S_ISREG(info.stx_mode) ? ObjectKind::file
         : S_ISLNK(info.stx_mode) ? ObjectKind::symlink
                                  : ObjectKind::other;
}

bool send_now(int socket, const std::string& bytes, int descriptor) {
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof descriptor);
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
}

}  // namespace

Result<std::unique_ptr<HostWatch>> HostWatch::create(Spec spec, NodeTable& nodes, Visible visible,
                                                     const void* context) {
  ANCHORHOLD_CHECK(set_nonblocking(spec.events.get()));
  std::unique_ptr<HostWatch> watch(new HostWatch(std::move(spec), nodes, visible, context));
  watch->wake_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!watch->wake_) return fail_errno(errno, "eventfd");
  watch->thread_ = std::thread([raw = watch.get()] { raw->run(); });
  return watch;
}

HostWatch::HostWatch(Spec spec, NodeTable& nodes, Visible visible, const void* context)
    : spec_(std::move(spec)), nodes_(nodes), visible_(visible), context_(context) {}

HostWatch::~HostWatch() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  decided_.notify_all();
  std::uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof one);
  if (thread_.joinable()) thread_.join();
}

void HostWatch::reset() {
  std::lock_guard lock(mutex_);
  for (const auto& [id, folder] : folders_)
    if (folder.watch >= 0)
      send_now(spec_.socket.get(),
               encode_watch_message({WatchMessage::Kind::unwatch, static_cast<std::uint64_t>(folder.watch)}),
               -1);
  folders_.clear();
  by_watch_.clear();
  own_.clear();
}

bool HostWatch::watches(const NodeRef& folder) {
  auto now = steady_clock::now();
  {
    std::lock_guard lock(mutex_);
    if (broken_) return false;
    auto found = folders_.find(folder->id());
    if (found != folders_.end()) {
      if (found->second.watch < 0 || now < trusted_from_) return false;
      found->second.promised = now;
      return true;
    }
    if (folders_.size() >= max_folders && !make_room(now)) return false;
    Folder entry;
    entry.node = folder;
    folders_.emplace(folder->id(), std::move(entry));
  }
  auto descriptor = nodes_.descriptor(folder);
  if (descriptor &&
      send_now(spec_.socket.get(), encode_watch_message({WatchMessage::Kind::watch, folder->id()}),
               (*descriptor)->get()))
    return false;  // from the answer on
  std::lock_guard lock(mutex_);
  folders_.erase(folder->id());
  return false;
}

bool HostWatch::is_watched(const NodeRef& folder) {
  auto now = steady_clock::now();
  std::lock_guard lock(mutex_);
  auto found = folders_.find(folder->id());
  if (found == folders_.end() || found->second.watch < 0 || now < trusted_from_) return false;
  found->second.promised = now;
  return true;
}

// With the mutex held.
bool HostWatch::undecided(const NodeRef& folder) const {
  if (broken_ || stopping_) return false;
  auto found = folders_.find(folder->id());
  return found != folders_.end() && found->second.watch < 0 && !found->second.refused;
}

bool HostWatch::is_undecided(const NodeRef& folder) {
  std::lock_guard lock(mutex_);
  return undecided(folder);
}

void HostWatch::wait_until_decided(const NodeRef& folder) {
  std::unique_lock lock(mutex_);
  decided_.wait_for(lock, longest_decision, [&] { return !undecided(folder); });
}

bool HostWatch::was_listed(const NodeRef& folder) {
  std::lock_guard lock(mutex_);
  auto found = folders_.find(folder->id());
  return found != folders_.end() && found->second.watch >= 0 && std::exchange(found->second.listed, true);
}

OwnChanges* HostWatch::own_changes_in(const NodeRef& folder) {
  std::lock_guard lock(mutex_);
  return folders_.contains(folder->id()) ? &own_ : nullptr;
}

// A watch may go when nothing is remembered any more because of it.
bool HostWatch::make_room(Time now) {
  for (auto it = folders_.begin(); it != folders_.end(); ++it) {
    if (it->second.watch < 0 ? !it->second.refused : it->second.promised + watched_time > now) continue;
    if (it->second.watch >= 0) {
      if (!send_now(spec_.socket.get(),
                    encode_watch_message(
                        {WatchMessage::Kind::unwatch, static_cast<std::uint64_t>(it->second.watch)}),
                    -1))
        return false;
      by_watch_.erase(it->second.watch);
    }
    folders_.erase(it);
    return true;
  }
  return false;
}

void HostWatch::run() {
  for (;;) {
    auto now = steady_clock::now();
    milliseconds timeout{-1};
    {
      std::lock_guard lock(mutex_);
      if (stopping_) return;
      if (now - swept_ >= sweep_interval) sweep(now);
      if (!folders_.empty() || own_.has_objects()) timeout = sweep_interval;
    }
    for (const auto& deferred : deferred_) {
      auto left = std::chrono::ceil<milliseconds>(deferred.due - now);
      if (timeout.count() < 0 || left < timeout) timeout = std::max(left, milliseconds(0));
    }
    pollfd ready[] = {
        {wake_.get(), POLLIN, 0}, {spec_.socket.get(), POLLIN, 0}, {spec_.events.get(), POLLIN, 0}};
    int count = poll(ready, broken_ ? 1 : 3, static_cast<int>(timeout.count()));
    if (count < 0 && errno != EINTR) return;
    if (count > 0 && ready[1].revents) take_answers();
    if (count > 0 && ready[2].revents) {
      bool own_lately = steady_clock::now() - latest_own_ < lately;
      gather(own_lately ? gathering_own : gathering);
      take_events();
    }
    handle_deferred();
  }
}

// Lets events come for so long. What is answered meanwhile belongs to them.
void HostWatch::gather(milliseconds time) {
  const auto until = steady_clock::now() + time;
  for (auto left = time;; left = std::chrono::ceil<milliseconds>(until - steady_clock::now())) {
    pollfd ready{spec_.socket.get(), POLLIN, 0};
    if (left.count() > 0) (void)poll(&ready, broken_ ? 0 : 1, static_cast<int>(left.count()));
    take_answers();
    if (left.count() <= 0) return;
  }
}

void HostWatch::take_answers() {
  for (;;) {
    WatchAnswer answer;
    ssize_t size = recv(spec_.socket.get(), &answer, sizeof answer, MSG_DONTWAIT);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return;
    std::lock_guard lock(mutex_);
    if (size != sizeof answer) {  // the host watches no more
      broken_ = true;
      folders_.clear();
      by_watch_.clear();
      decided_.notify_all();
      return;
    }
    auto found = folders_.find(answer.number);
    if (found == folders_.end()) {
      if (answer.watch >= 0)
        send_now(
            spec_.socket.get(),
            encode_watch_message({WatchMessage::Kind::unwatch, static_cast<std::uint64_t>(answer.watch)}),
            -1);
      continue;
    }
    found->second.refused = answer.watch < 0;
    if (answer.watch >= 0) {
      found->second.watch = static_cast<int>(answer.watch);
      by_watch_[found->second.watch] = answer.number;
    }
    decided_.notify_all();
  }
}

void HostWatch::take_events() {
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
  others_seen_ = false;
  handle_batch(events);
  latest_own_ = others_seen_ ? Time{} : steady_clock::now();
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
  if (made_by == OwnChanges::Maker::unclear && defer(event, deferred)) return;
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
  bool waiting = std::any_of(deferred_.begin(), deferred_.end(), [&](const Deferred& other) {
    return other.event.folder == event.folder && other.event.name == event.name &&
           other.event.mask == event.mask;
  });
  if (!waiting) deferred_.push_back({event, now + settling, last_due});
  return true;
}

void HostWatch::handle_deferred() {
  auto now = steady_clock::now();
  std::vector<Deferred> due;
  auto rest = std::stable_partition(deferred_.begin(), deferred_.end(),
                                    [&](const Deferred& deferred) { return deferred.due > now; });
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
  auto bytes = encode_watch_message(message);
  // The host takes them at once; where it does not, waiting is right: nothing may be left out.
  (void)send_with_descriptors(spec_.socket.get(), std::as_bytes(std::span(bytes)), {});
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

// With the mutex held.
void HostWatch::sweep(Time now) {
  swept_ = now;
  own_.sweep(now);
  for (auto it = folders_.begin(); it != folders_.end();) {
    bool known = nodes_.find(it->first).has_value();
    if (known || it->second.watch < 0) {
      ++it;
      continue;
    }
    if (!send_now(
            spec_.socket.get(),
            encode_watch_message({WatchMessage::Kind::unwatch, static_cast<std::uint64_t>(it->second.watch)}),
            -1))
      return;
    by_watch_.erase(it->second.watch);
    it = folders_.erase(it);
  }
}

}  // namespace anchorhold::mounts
