#include "reader/host_watch.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include "mounts/watch_protocol.h"

namespace anchorhold::mounts {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::size_t max_folders = 8000;
// Events of one moment are taken together: the kernel merges what is the same, and this thread wakes less.
constexpr milliseconds gathering{2};
// While nobody but the guest changes anything.
constexpr milliseconds gathering_own{8}, lately{50};
constexpr milliseconds sweep_interval{1000};
// How long a guest that lists a folder waits until the host watches it. Milliseconds on a busy computer.
constexpr milliseconds longest_decision{1000};

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

Watching HostWatch::watches(const NodeRef& folder) {
  auto now = steady_clock::now();
  {
    std::lock_guard lock(mutex_);
    if (broken_) return Watching::no;
    auto found = folders_.find(folder->id());
    if (found != folders_.end()) {
      if (found->second.watch < 0) return found->second.refused ? Watching::no : Watching::soon;
      if (now < trusted_from_) return Watching::no;
      found->second.promised = now;
      return Watching::yes;
    }
    if (folders_.size() >= max_folders && !make_room(now)) return Watching::no;
    Folder entry;
    entry.node = folder;
    folders_.emplace(folder->id(), std::move(entry));
  }
  auto descriptor = nodes_.descriptor(folder);
  if (descriptor &&
      send_now(spec_.socket.get(), encode_watch_message({WatchMessage::Kind::watch, folder->id()}),
               (*descriptor)->get()))
    return Watching::soon;  // from the answer on
  std::lock_guard lock(mutex_);
  folders_.erase(folder->id());
  return Watching::no;
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
    if (count > 0 && ready[1].revents) take_words();
    const bool happened = count > 0 && ready[2].revents;
    if (happened && to_settle_ == 0) {
      bool own_lately = steady_clock::now() - latest_own_ < lately;
      gather(own_lately ? gathering_own : gathering);
    }
    if (to_settle_ > 0) {
      settle();
      continue;
    }
    if (happened) take_events();
    handle_deferred();
  }
}

// Lets events come for so long, unless the host waits for them. What is answered meanwhile belongs to them.
void HostWatch::gather(milliseconds time) {
  const auto until = steady_clock::now() + time;
  for (auto left = time;; left = std::chrono::ceil<milliseconds>(until - steady_clock::now())) {
    pollfd ready{spec_.socket.get(), POLLIN, 0};
    if (left.count() > 0) (void)poll(&ready, broken_ ? 0 : 1, static_cast<int>(left.count()));
    take_words();
    if (left.count() <= 0 || to_settle_ > 0) return;
  }
}

void HostWatch::take_words() {
  for (;;) {
    WatchWord word;
    ssize_t size = recv(spec_.socket.get(), &word, sizeof word, MSG_DONTWAIT);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return;
    std::lock_guard lock(mutex_);
    if (size != sizeof word) {  // the host watches no more
      broken_ = true;
      folders_.clear();
      by_watch_.clear();
      decided_.notify_all();
      return;
    }
    if (word.kind == WatchWord::Kind::settle) {
      to_settle_ = word.number;
      continue;
    }
    auto found = folders_.find(word.number);
    if (found == folders_.end()) {
      if (word.watch >= 0)
        send_now(spec_.socket.get(),
                 encode_watch_message({WatchMessage::Kind::unwatch, static_cast<std::uint64_t>(word.watch)}),
                 -1);
      continue;
    }
    found->second.refused = word.watch < 0;
    if (word.watch >= 0) {
      found->second.watch = static_cast<int>(word.watch);
      by_watch_[found->second.watch] = word.number;
    }
    decided_.notify_all();
  }
}

// What happened before the host asked is among the kernel's events: all of it is told now, also what it is
// not clear of who did it.
void HostWatch::settle() {
  const auto number = std::exchange(to_settle_, 0);
  settling_now_ = true;
  while (take_events()) {
  }
  handle_deferred();
  settling_now_ = false;
  send_to_host(encode_watch_message({WatchMessage::Kind::settled, number}));
}

// The host takes messages at once; where it does not, waiting is right: nothing may be left out.
void HostWatch::send_to_host(const std::string& bytes) {
  (void)send_with_descriptors(spec_.socket.get(), std::as_bytes(std::span(bytes)), {});
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
