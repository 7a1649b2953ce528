// A session: what a person allowed for one command or one task, and the guest it runs in. The guest is
// started when it is needed or ahead of need, and again when it was lost; the grants, the limits and the
// identity in the event log stay.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/id.h"
#include "egress/fetch.h"
#include "mounts/access.h"
#include "mounts/grant.h"
#include "mounts/share.h"
#include "session/asker.h"
#include "session/egress.h"
#include "session/guest.h"
#include "session/questions.h"

namespace anchorhold::session {

struct SessionSpec {
  SessionId id;
  TaskId task;                         // empty: none
  std::vector<mounts::Grant> grants;   // judged, and held by their descriptors
  mounts::ShareLimits limits{};        // in each of them
  std::optional<EgressSpec> egress{};  // none: no network
  GuestSpec guest;
};

struct SessionParts {
  events::EventSink& events;
  const Clock& clock;
  // Called once, on the session's worker, when the first guest is needed.
  std::function<Result<std::unique_ptr<hypervisor::Hypervisor>>()> make_hypervisor;
  std::function<Result<images::VerifiedImage>(const std::string& name)> verify_image;
  // Whom to ask what only a person can decide; outlives the session. None: every answer is no.
  Asker* asker = nullptr;
  // What the person should hear meanwhile, one line; from any thread.
  std::function<void(const std::string&)> notice = {};
  // What has been answered for the rest of the session about the network, all of it; from any thread.
  std::function<void(const std::vector<policy::EgressRule>& answers)> answered = {};
  // On the worker.
  std::function<void(Stage)> progress = {};
  std::function<void(const hypervisor::Capabilities&)> hypervisor_ready =
      {};  // before the first machine is made
  // Where a test puts its own device.
  decltype(GuestParts::start_vsock) start_vsock = {};
};

// Safe from any thread.
class Session {
 public:
  // Records the grants and starts their keepers. No guest is started.
  static Result<std::unique_ptr<Session>> open(SessionSpec spec, SessionParts parts);
  // As close().
  ~Session();

  const SessionId& id() const;
  // As they are now.
  std::vector<std::shared_ptr<const mounts::Grant>> grants() const;
  // One folder or file more, from now on. It is judged as those at the start are (mounts::resolve_grant), by
  // this process and now; its event is recorded before anybody can use it. A guest that runs has it when this
  // returns; resource_exhausted when that guest has no device left for it. After an error nothing has
  // changed. Waits for a start that is under way.
  Result<std::shared_ptr<const mounts::Grant>> grant(const std::filesystem::path& path, mounts::Mode mode);
  // Where commands start when nobody says: the first granted folder, or the guest user's home (empty).
  std::string default_directory() const;
  // The host's own way into the granted folders; also without a guest.
  const mounts::FileAccess& files() const;
  // What it may reach now, with the answers that were given in it. failed_precondition: it has no network.
  Result<egress::DoorPolicy> egress_policy() const;
  // One page of the web, decided as the guest's requests are; needs no guest. failed_precondition: no
  // network.
  Result<egress::FetchedPage> fetch(const std::string& url, std::stop_token stop = {});
  // That wait for a person just now.
  Questions& questions();
  // Has session.id and task.id in it.
  events::EventSink& events();

  // Begins a start and returns at once; nothing when one is under way or the guest runs.
  void warm_up();
  // The running guest; starts one when there is none, or none that lives. A failed start is tried again by
  // the next call. The guest is in use for as long as the pointer lives; it must not outlive the session.
  Result<std::shared_ptr<Guest>> guest(std::stop_token stop = {});
  // The guest, if one runs now.
  std::shared_ptr<Guest> running_guest() const;

  // Starts a command, with its event. An empty working directory becomes default_directory(). What was
  // changed on the host before, in the granted folders, is what the command sees.
  Result<std::unique_ptr<GuestExec>> start_exec(Guest& guest, ExecSpec spec);
  Result<GuestClient::BackgroundStart> start_background(Guest& guest, BackgroundSpec spec);
  void exec_ended(const Guest& guest, const ExecId& exec, const Result<ExecStatus>& status);

  // Stops a start that is under way, ends the guest and waits for that. Later calls of guest() are cancelled.
  void close(std::string_view reason = "its session ended",
             std::chrono::milliseconds grace = std::chrono::milliseconds(0));

 private:
  struct State;
  explicit Session(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace anchorhold::session
