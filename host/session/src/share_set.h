// The granted folders of one session: a keeper for each from the beginning, a reader for each while there is
// a guest, and the host's own access through the same keepers. What the sealed processes report becomes
// events.
#pragma once

#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "announcer.h"
#include "base/executor.h"
#include "events/event.h"
#include "guest_life.h"
#include "mounts/access.h"
#include "mounts/share.h"
#include "mounts/spares.h"
#include "question_desk.h"
#include "session/guest_client.h"

namespace anchorhold::session {

// Owned by the session's worker, but for what is safe from any thread.
class ShareSet {
 public:
  using GrantPointer = std::shared_ptr<const mounts::Grant>;

  static Result<std::unique_ptr<ShareSet>> start(const std::vector<GrantPointer>& grants,
                                                 const std::filesystem::path& ledgers,
                                                 const mounts::ShareLimits& limits,
                                                 std::shared_ptr<QuestionDesk> questions,
                                                 events::EventSink& events);
  // Finishes the desk: nobody is asked any more.
  ~ShareSet();

  // Readers for one guest, listening in its folder, and as many spare devices as it may have; the end of any
  // of their processes is told to its life until end_guest().
  Status serve_guest(const std::filesystem::path& folder, GuestLife& life, std::size_t spare_devices);
  void end_guest();
  std::vector<hypervisor::ShareSpec> specs(const std::filesystem::path& folder) const;
  Status mount_in(GuestClient& client) const;

  // One grant more. With a client, its guest is the one that is served, and has the folder when this returns;
  // it takes one of the spare devices (resource_exhausted when there is none). `allowed` is called when all
  // is ready and before anybody can use the folder. After an error nothing is different, but a guest that
  // could not mount it has a spare device less.
  Status add(GrantPointer grant, GuestClient* client, const std::function<Status()>& allowed);

  // Before a command starts: returns when the guest knows what programs of the host, and the host's own
  // tools, changed in the folders before, where it would remember something else; after a while also when it
  // does not. Safe from any thread.
  void settle();

  // Safe from any thread.
  const mounts::FileAccess& files() const { return files_; }

 private:
  struct Entry {
    GrantPointer grant;
    std::unique_ptr<mounts::Share> share;
    bool keeper_gone = false;  // guarded by the mutex
  };
  ShareSet(std::filesystem::path ledgers, const mounts::ShareLimits& limits,
           std::shared_ptr<QuestionDesk> questions, events::EventSink& events)
      : ledgers_(std::move(ledgers)), limits_(limits), events_(events), questions_(std::move(questions)) {}
  Status start_share(std::size_t index);
  Status give_to_guest(std::size_t index, GuestClient* client, const std::function<Status()>& allowed);
  void noticed(std::optional<std::size_t> index, const mounts::ShareNotice& notice);
  void record(const mounts::ShareNotice& notice);
  void ask(std::size_t index, const mounts::ShareNotice& notice);

  const std::filesystem::path ledgers_;
  const mounts::ShareLimits limits_;
  events::EventSink& events_;
  mounts::FileAccess files_;
  std::mutex mutex_;
  GuestLife* life_ = nullptr;  // guarded by the mutex
  std::filesystem::path guest_folder_;
  std::deque<Entry> entries_;  // stay where they are
  std::unique_ptr<mounts::Spares> spares_;
  std::unique_ptr<Announcer> announcer_ = std::make_unique<Announcer>();
  // Whose keeper may be answered and whose reader asked to settle; guarded by the mutex.
  std::map<std::size_t, mounts::Share*> reachable_;
  const std::shared_ptr<QuestionDesk> questions_;
  std::unique_ptr<SerialExecutor> recorder_ = std::make_unique<SerialExecutor>("reports");
};

}  // namespace anchorhold::session
