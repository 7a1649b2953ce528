// Finds out what programs of the host change in the folders the guest knows, and tells the host, which tells
// the guest's agent. Folders are watched as the guest looks into them; until a watch is there, and where
// there cannot be one, the guest is told to remember nothing, or for a second only.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/fd.h"
#include "mounts/host_change.h"
#include "reader/node_table.h"
#include "reader/own_changes.h"

namespace anchorhold::mounts {

// Whether changes in a folder are told.
enum class Watching {
  yes,
  soon,  // the host was asked, and has not answered
  no,
};

// Safe from any thread.
class HostWatch {
 public:
  struct Spec {
    UniqueFd socket;  // mounts/watch_protocol.h
    UniqueFd events;  // inotify
  };
  // Whether a name is seen by the guest.
  using Visible = bool (*)(const void* context, const NodeRef& folder, std::string_view name);

  // The table and the context outlive it.
  static Result<std::unique_ptr<HostWatch>> create(Spec spec, NodeTable& nodes, Visible visible,
                                                   const void* context);
  ~HostWatch();

  // Whether changes in the folder will be told from now on. Asks for a watch where there is none.
  Watching watches(const NodeRef& folder);
  // The same without asking for one.
  bool is_watched(const NodeRef& folder);
  // Returns when the host has answered, or has not for long.
  void wait_until_decided(const NodeRef& folder);
  // It is going to be listed: whether it was before, since when all that changed in it was told.
  bool was_listed(const NodeRef& folder);
  bool recently_changed(const NodeRef& node) { return own_.recently_changed(node); }
  // Where the guest's own changes are noted; those of names only in a folder that is looked at, else null.
  OwnChanges* own_changes() { return &own_; }
  OwnChanges* own_changes_in(const NodeRef& folder);

  // Everything is forgotten: the guest starts over.
  void reset();

 private:
  using Time = std::chrono::steady_clock::time_point;
  struct Folder {
    NodeRef node;
    int watch = -1;  // none yet
    bool refused = false;
    bool listed = false;
    Time promised{};  // when the guest was last told to remember something in it
  };
  struct Event {
    NodeRef folder;
    std::string name;
    std::uint32_t mask = 0;
    std::uint32_t cookie = 0;
  };
  struct Deferred {
    Event event;
    Time due;
    Time last_due;
  };

  HostWatch(Spec spec, NodeTable& nodes, Visible visible, const void* context);
  void run();
  void take_words();
  void gather(std::chrono::milliseconds time);
  bool take_events();
  void settle();
  void send_to_host(const std::string& bytes);
  void handle_batch(std::vector<Event>& events);
  void content_or_attributes(Event event, std::optional<Deferred> deferred);
  static bool is_same(const Event& a, const Event& b);
  bool defer(const Event& event, const std::optional<Deferred>& deferred);
  void handle_deferred();
  void appeared(const Event& event);
  void vanished(const Event& event);
  bool renamed(const Event& from, const Event& to);
  void tell(HostChange change);
  void lose_everything();
  void sweep(Time now);
  bool make_room(Time now);
  bool undecided(const NodeRef& folder) const;

  Spec spec_;
  NodeTable& nodes_;
  const Visible visible_;
  const void* context_;
  UniqueFd wake_;
  std::mutex mutex_;
  std::condition_variable decided_;
  bool stopping_ = false;
  bool broken_ = false;
  Time trusted_from_{};  // after events were lost, nothing is promised for a while
  std::unordered_map<std::uint64_t, Folder> folders_;  // by node id
  std::unordered_map<int, std::uint64_t> by_watch_;
  OwnChanges own_;
  Time swept_{};
  // Of the thread alone.
  std::vector<Deferred> deferred_;
  std::uint64_t to_settle_ = 0;  // what the host asked last, 0 when it is answered
  bool settling_now_ = false;
  bool others_seen_ = false;  // in the latest events
  Time latest_own_{};         // when all of them were the guest's own
  std::thread thread_;
};

// How long the guest may remember what is watched. Changes that no kernel reports (a host program that writes
// through a mapping) are seen after this time at the latest.
inline constexpr std::chrono::milliseconds watched_time{30'000};

}  // namespace anchorhold::mounts
