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
constexpr std::size_t max_remembered = 1u << 16;
// Events of one moment are taken together: the kernel merges what is the same, and this thread wakes less.
constexpr milliseconds gathering{2};
// Of two changes to a file within this time it is not asked who made them.
constexpr milliseconds settling{100};
constexpr milliseconds longest_settling{1000};
// How late the event of an own change may come.
constexpr milliseconds own_time{2000};
constexpr milliseconds sweep_interval{1000};

ObjectKind kind_of(const Statx& info) {
  return S_ISDIR(info.stx_mode)   ? ObjectKind::folder
         : S_ISREG(info.stx_mode) ? ObjectKind::file
         : S_ISLNK(info.stx_mode) ? ObjectKind::symlink
                                  : ObjectKind::other;
}

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
  expected_.clear();
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

bool HostWatch::recently_changed(const NodeRef& node) {
  std::lock_guard lock(mutex_);
  auto found = own_.find(node->id());
  return found != own_.end() &&
         (found->second.under_way > 0 || found->second.last + settling > steady_clock::now());
}

HostWatch::OwnName::OwnName(HostWatch* watch, std::uint64_t folder, std::string_view name, Names names)
    : folder_(folder), names_(names) {
  if (!watch) return;
  std::lock_guard lock(watch->mutex_);
  if (!watch->folders_.contains(folder) || watch->expected_.size() >= max_remembered) return;
  watch_ = watch;
  name_ = name;
  auto& expected = watch->expected_[{folder_, name_}];
  if (expected.under_way == 0 && expected.last + own_time < steady_clock::now()) expected = {};
  if (names_ != Names::vanishing) ++expected.appearing;
  if (names_ != Names::appearing) ++expected.vanishing;
  ++expected.under_way;
}

HostWatch::OwnName::OwnName(OwnName&& other) noexcept
    : watch_(std::exchange(other.watch_, nullptr)),
      folder_(other.folder_),
      name_(std::move(other.name_)),
      names_(other.names_) {}

void HostWatch::OwnName::failed() {
  if (!watch_) return;
  std::lock_guard lock(watch_->mutex_);
  auto& expected = watch_->expected_[{folder_, name_}];
  if (names_ != Names::vanishing) expected.appearing = std::max(0, expected.appearing - 1);
  if (names_ != Names::appearing) expected.vanishing = std::max(0, expected.vanishing - 1);
}

HostWatch::OwnName::~OwnName() {
  if (!watch_) return;
  std::lock_guard lock(watch_->mutex_);
  auto found = watch_->expected_.find({folder_, name_});
  if (found == watch_->expected_.end()) return;
  auto& expected = found->second;
  if (expected.under_way > 0) --expected.under_way;
  expected.last = steady_clock::now();
  if (expected.under_way == 0 && expected.appearing == 0 && expected.vanishing == 0)
    watch_->expected_.erase(found);
}

bool HostWatch::is_own(const Event& event, bool appearing) {
  std::lock_guard lock(mutex_);
  auto found = expected_.find({event.folder->id(), event.name});
  if (found == expected_.end()) return false;
  auto& expected = found->second;
  bool fresh = expected.under_way > 0 || expected.last + own_time > steady_clock::now();
  int& count = appearing ? expected.appearing : expected.vanishing;
  bool own = fresh && count > 0;
  if (own) --count;
  if (!fresh || (expected.under_way == 0 && expected.appearing == 0 && expected.vanishing == 0))
    expected_.erase(found);
  return own;
}

HostWatch::OwnChange::OwnChange(HostWatch* watch, NodeRef node) {
  if (!watch || !node) return;
  std::lock_guard lock(watch->mutex_);
  if (watch->own_.size() >= max_remembered && !watch->own_.contains(node->id())) return;
  watch_ = watch;
  node_ = std::move(node);
  ++watch_->own_[node_->id()].under_way;
}

void HostWatch::OwnChange::done(const Statx& info) {
  if (!watch_) return;
  std::lock_guard lock(watch_->mutex_);
  auto& own = watch_->own_[node_->id()];
  if (own.known && later(own.info, info)) return;
  own.known = true;
  own.info = info;
}

HostWatch::OwnChange::~OwnChange() {
  if (!watch_) return;
  std::lock_guard lock(watch_->mutex_);
  auto& own = watch_->own_[node_->id()];
  if (own.under_way > 0) --own.under_way;
  own.last = steady_clock::now();
}

void HostWatch::run() {
  for (;;) {
    auto now = steady_clock::now();
    milliseconds timeout{-1};
    {
      std::lock_guard lock(mutex_);
      if (stopping_) return;
      if (now - swept_ >= sweep_interval) sweep(now);
      if (!folders_.empty() || !own_.empty()) timeout = sweep_interval;
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
      std::this_thread::sleep_for(gathering);
      // What was answered meanwhile belongs to these events.
      take_answers();
      take_events();
    }
    handle_deferred();
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
    if (answer.watch < 0) {
      found->second.refused = true;
      continue;
    }
    found->second.watch = static_cast<int>(answer.watch);
    by_watch_[found->second.watch] = answer.number;
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
  handle_batch(events);
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
  auto node = nodes_.known(identity_of(*info));
  {
    std::lock_guard lock(mutex_);
    auto own = node ? own_.find(node->id()) : own_.end();
    if (own != own_.end() && own->second.known && same_version(own->second.info, *info)) return;
    // It may be changed by the guest right now, or be made by it, and be as the host left it once that is
    // done.
    auto now = steady_clock::now();
    bool changing = own != own_.end() && (own->second.under_way > 0 || own->second.last + settling > now);
    bool coming = expected_.contains({event.folder->id(), event.name});
    auto last_due = deferred ? deferred->last_due : now + longest_settling;
    if ((changing || coming) && now < last_due && deferred_.size() < max_remembered) {
      bool waiting = std::any_of(deferred_.begin(), deferred_.end(), [&](const Deferred& other) {
        return other.event.folder == event.folder && other.event.name == event.name &&
               other.event.mask == event.mask;
      });
      if (!waiting) deferred_.push_back({std::move(event), now + settling, last_due});
      return;
    }
  }
  HostChange change;
  change.kind = event.mask & IN_MODIFY ? HostChange::Kind::content : HostChange::Kind::attributes;
  change.object = kind_of(*info);
  change.path = nodes_.path(event.folder, event.name);
  tell(std::move(change));
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
  if (is_own(event, true) || !visible_(context_, event.folder, event.name)) return;
  auto folder = nodes_.descriptor(event.folder);
  if (!folder) return;
  auto info = nodes_.stat_at((*folder)->get(), event.name);
  if (!info) return;  // gone again
  tell({HostChange::Kind::appeared, kind_of(*info), nodes_.path(event.folder, event.name), {}});
}

void HostWatch::vanished(const Event& event) {
  if (is_own(event, false) || !visible_(context_, event.folder, event.name)) return;
  tell({HostChange::Kind::vanished,
        event.mask & IN_ISDIR ? ObjectKind::folder : ObjectKind::file,
        nodes_.path(event.folder, event.name),
        {}});
}

bool HostWatch::renamed(const Event& from, const Event& to) {
  bool own_from = is_own(from, false), own_to = is_own(to, true);
  if (own_from || own_to) return true;
  // A name that does not exist for the guest is elsewhere.
  if (!visible_(context_, from.folder, from.name) || !visible_(context_, to.folder, to.name)) return false;
  tell({HostChange::Kind::renamed, from.mask & IN_ISDIR ? ObjectKind::folder : ObjectKind::file,
        nodes_.path(from.folder, from.name), nodes_.path(to.folder, to.name)});
  return true;
}

void HostWatch::tell(HostChange change) {
  WatchMessage message{WatchMessage::Kind::change, 0, std::move(change)};
  auto bytes = encode_watch_message(message);
  // The host takes them at once; where it does not, waiting is right: nothing may be left out.
  (void)send_with_descriptors(spec_.socket.get(), std::as_bytes(std::span(bytes)), {});
}

void HostWatch::lose_everything() {
  {
    std::lock_guard lock(mutex_);
    trusted_from_ = steady_clock::now() + own_time;
    expected_.clear();
  }
  tell({HostChange::Kind::lost, ObjectKind::file, {}, {}});
}

// With the mutex held.
void HostWatch::sweep(Time now) {
  swept_ = now;
  std::erase_if(expected_, [&](const auto& entry) {
    return entry.second.under_way == 0 && entry.second.last + own_time < now;
  });
  std::erase_if(own_, [&](const auto& entry) {
    return entry.second.under_way == 0 && entry.second.last + own_time < now;
  });
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
