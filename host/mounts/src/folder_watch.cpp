#include "folder_watch.h"

#include <array>
#include <cerrno>
#include <deque>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/openat2.h>
#include <mutex>
#include <set>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "base/log.h"
#include "mounts/watch_protocol.h"
#include "open_path.h"

namespace anchorhold::mounts {
namespace {

constexpr std::uint32_t watched_events =
    IN_CREATE | IN_DELETE | IN_MODIFY | IN_ATTRIB | IN_MOVED_FROM | IN_MOVED_TO | IN_ONLYDIR | IN_EXCL_UNLINK;

// A reader that answers no more is not asked any more.
constexpr std::size_t most_asked = 1024;

// The folder of this descriptor, found again from the grant's own: nothing outside of the grant, nothing on
// another mount.
Result<UniqueFd> find_beneath(int root, int passed) {
  auto root_path = ANCHORHOLD_TRY(path_of(root, "the granted folder"));
  auto path = ANCHORHOLD_TRY(path_of(passed, "a folder to watch"));
  std::string relative = ".";
  if (path != root_path) {
    if (root_path != "/") root_path += '/';
    if (!path.starts_with(root_path)) return fail_errno(EACCES, "a folder to watch");
    relative = path.substr(root_path.size());
  }
  open_how how{};
  how.flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV;
  UniqueFd found(static_cast<int>(syscall(SYS_openat2, root, relative.c_str(), &how, sizeof how)));
  struct stat wanted, is;
  if (!found || fstat(found.get(), &is) != 0 || fstat(passed, &wanted) != 0)
    return fail_errno(errno, "a folder to watch");
  if (is.st_dev != wanted.st_dev || is.st_ino != wanted.st_ino)
    return fail_errno(ESTALE, "a folder to watch");
  return found;
}

}  // namespace

struct FolderWatch::State {
  UniqueFd root;
  UniqueFd socket;
  UniqueFd events;
  std::function<bool(HostChange)> sink;
  std::set<int> watches;
  // What the reader was asked to settle and has not yet, by number.
  struct Asked {
    std::uint64_t number;
    std::function<void()> done;
  };
  std::mutex mutex;
  std::deque<Asked> asked;   // guarded by the mutex, and so are the next
  std::uint64_t latest = 0;  // number
  bool over = false;
  std::thread thread;

  void run();
  void take_messages();
  void settled(std::uint64_t number);
  void end();
  bool serve(const WatchMessage& message, const std::vector<UniqueFd>& descriptors);
  int add(int folder);
};

FolderWatch::FolderWatch(std::unique_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<FolderWatch>> FolderWatch::start(int root, std::function<bool(HostChange)> sink,
                                                        Ends& ends) {
  auto state = std::make_unique<State>();
  state->root = ANCHORHOLD_TRY(duplicate(root));
  auto sockets = ANCHORHOLD_TRY(socket_pair(SOCK_SEQPACKET));
  UniqueFd events(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!events) return fail_errno(errno, "inotify", "raise fs.inotify.max_user_instances");
  ends.events = ANCHORHOLD_TRY(duplicate(events.get()));
  ends.socket = std::move(sockets.second);
  state->socket = std::move(sockets.first);
  state->events = std::move(events);
  state->sink = std::move(sink);
  state->thread = std::thread([raw = state.get()] { raw->run(); });
  return std::unique_ptr<FolderWatch>(new FolderWatch(std::move(state)));
}

FolderWatch::~FolderWatch() {
  shutdown(state_->socket.get(), SHUT_RDWR);
  state_->thread.join();
}

void FolderWatch::settle(std::function<void()> done) {
  {
    std::lock_guard lock(state_->mutex);
    if (!state_->over && state_->asked.size() < most_asked) {
      WatchWord word{WatchWord::Kind::settle, ++state_->latest};
      if (send(state_->socket.get(), &word, sizeof word, MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof word) {
        state_->asked.push_back({word.number, std::move(done)});
        return;
      }
    }
  }
  done();
}

void FolderWatch::State::settled(std::uint64_t number) {
  std::deque<Asked> done;
  {
    std::lock_guard lock(mutex);
    while (!asked.empty() && asked.front().number <= number) {
      done.push_back(std::move(asked.front()));
      asked.pop_front();
    }
  }
  for (const auto& one : done) one.done();
}

// Who waits for the reader need not wait any more.
void FolderWatch::State::end() {
  std::deque<Asked> left;
  {
    std::lock_guard lock(mutex);
    over = true;
    left = std::exchange(asked, {});
  }
  for (const auto& one : left) one.done();
}

void FolderWatch::State::run() {
  take_messages();
  end();
}

void FolderWatch::State::take_messages() {
  std::array<std::byte, max_watch_message_bytes> buffer;
  for (;;) {
    auto received = receive_with_descriptors(socket.get(), buffer);
    if (received && received->size == 0) return;
    auto message = received ? parse_watch_message(std::span(buffer).first(received->size))
                            : Result<WatchMessage>(fail(received.error()));
    if (message && serve(*message, received->descriptors)) continue;
    if (!message) {
      log_warning("changes on the host are no longer told to the guest: " + message.error().message);
      sink({HostChange::Kind::lost, ObjectKind::file, {}, {}});
    }
    // The reader hears that there is no more to be told, and goes on without.
    for (int watch : watches) inotify_rm_watch(events.get(), watch);
    shutdown(socket.get(), SHUT_RDWR);
    return;
  }
}

bool FolderWatch::State::serve(const WatchMessage& message, const std::vector<UniqueFd>& descriptors) {
  bool asks = message.kind == WatchMessage::Kind::watch;
  if (descriptors.size() != (asks ? 1u : 0u)) return false;
  switch (message.kind) {
    case WatchMessage::Kind::watch: {
      WatchWord answer{WatchWord::Kind::answer, message.number, add(descriptors[0].get())};
      // A reader that takes no answers gets none.
      (void)!send(socket.get(), &answer, sizeof answer, MSG_DONTWAIT | MSG_NOSIGNAL);
      return true;
    }
    case WatchMessage::Kind::unwatch: {
      auto found = watches.find(static_cast<int>(message.number));
      if (found == watches.end()) return true;  // gone by itself: the folder was removed
      inotify_rm_watch(events.get(), *found);
      watches.erase(found);
      return true;
    }
    case WatchMessage::Kind::change:
      return sink(message.change);
    case WatchMessage::Kind::settled:
      settled(message.number);
      return true;
  }
  return false;
}

int FolderWatch::State::add(int folder) {
  if (watches.size() >= max_watched_folders) return -ENOSPC;
  auto found = find_beneath(root.get(), folder);
  if (!found) return -EACCES;
  int watch =
      inotify_add_watch(events.get(), fmt::format("/proc/self/fd/{}", found->get()).c_str(), watched_events);
  if (watch < 0) return -errno;
  watches.insert(watch);
  return watch;
}

}  // namespace anchorhold::mounts
