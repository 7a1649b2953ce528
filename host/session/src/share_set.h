// The granted folders of one session: a keeper for each from the beginning, a reader for each while there is
// a guest, and the host's own access through the same keepers. What the sealed processes report becomes
// events.
#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <vector>

#include "base/executor.h"
#include "events/event.h"
#include "guest_life.h"
#include "mounts/access.h"
#include "mounts/share.h"
#include "session/guest_client.h"

namespace anchorhold::session {

// Owned by the session's worker, but for files().
class ShareSet {
 public:
  // The grants outlive it.
  static Result<std::unique_ptr<ShareSet>> start(const std::vector<mounts::Grant>& grants,
                                                 const std::filesystem::path& ledgers,
                                                 events::EventSink& events);
  ~ShareSet();

  // Readers for one guest, listening in its folder; the end of a reader or keeper is told to its life until
  // end_guest().
  Status serve_guest(const std::filesystem::path& folder, GuestLife& life);
  void end_guest();
  std::vector<hypervisor::ShareSpec> specs(const std::filesystem::path& folder) const;
  Status mount_in(GuestClient& client) const;

  // Safe from any thread.
  const mounts::FileAccess& files() const { return files_; }

 private:
  struct Entry {
    const mounts::Grant* grant;
    std::unique_ptr<mounts::Share> share;
    bool keeper_gone = false;  // guarded by the mutex
  };
  ShareSet(std::filesystem::path ledgers, events::EventSink& events)
      : ledgers_(std::move(ledgers)), events_(events) {}
  Status start_keeper(std::size_t index);
  void noticed(std::size_t index, const mounts::ShareNotice& notice);
  void record(const mounts::ShareNotice& notice);

  const std::filesystem::path ledgers_;
  events::EventSink& events_;
  mounts::FileAccess files_;
  std::mutex mutex_;
  GuestLife* life_ = nullptr;  // guarded by the mutex
  std::vector<Entry> entries_;
  std::unique_ptr<SerialExecutor> recorder_ = std::make_unique<SerialExecutor>("reports");
};

}  // namespace anchorhold::session
