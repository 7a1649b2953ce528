#include "session_door.h"

#include <fmt/format.h>

#include "host.h"
#include "session/session_store.h"
#include "task.h"

namespace anchorhold::cli {
namespace {

// On the door's thread; what it needs is opened here, since stores belong to one thread.
Result<session::GrantedFolder> grant(session::Session& session, const TaskId& task, Console& console,
                                     const Clock& clock, const std::filesystem::path& path,
                                     mounts::Mode mode) {
  auto granted = ANCHORHOLD_TRY(session.grant(path, mode));
  auto keep = [&]() -> Status {
    auto store = ANCHORHOLD_TRY(session::SessionStore::open_default());
    std::vector<std::string> lines;
    for (const auto& each : session.grants()) lines.push_back(describe(*each));
    ANCHORHOLD_CHECK(store.set_grants(session.id(), lines, clock));
    if (task.empty()) return {};
    auto tasks = ANCHORHOLD_TRY(open_task_store());
    return tasks.add_folder(task,
                            {granted->host_path.string(), granted->guest_path(), folder_mode(granted->mode)});
  };
  if (auto kept = keep(); !kept)
    return fail(with_context(
        std::move(kept).error(),
        fmt::format("{} is at {} now, but that could not be noted", path.string(), granted->guest_path())));
  console.note(fmt::format("granted meanwhile: {}", describe(*granted)));
  return session::GrantedFolder{granted->host_path, granted->guest_path()};
}

}  // namespace

// From a thread of the session's; a store belongs to one thread.
void keep_answers(const SessionId& session, const std::vector<policy::EgressRule>& answers, Console& console,
                  const Clock& clock) {
  auto kept = [&]() -> Status {
    auto store = ANCHORHOLD_TRY(session::SessionStore::open_default());
    return store.set_answers(session, answers, clock);
  }();
  if (!kept)
    console.note("the answer holds, but could not be noted for a resumption: " + kept.error().message);
}

agent::FolderMode folder_mode(mounts::Mode mode) {
  switch (mode) {
    case mounts::Mode::ro:
      return agent::FolderMode::read_only;
    case mounts::Mode::rw:
      return agent::FolderMode::read_write;
    case mounts::Mode::rw_no_delete:
      return agent::FolderMode::read_write_no_delete;
  }
  return agent::FolderMode::read_only;
}

Result<std::unique_ptr<session::ControlServer>> open_door(session::Session& session, const TaskId& task,
                                                          Console& console, const Clock& clock) {
  session::ControlHandlers handlers;
  handlers.grant = [&session, task, &console, &clock](const std::filesystem::path& path, mounts::Mode mode) {
    return grant(session, task, console, clock, path, mode);
  };
  handlers.network = [&session]() -> Result<session::NetworkView> {
    auto policy = ANCHORHOLD_TRY(session.egress_policy());
    return session::NetworkView{std::move(policy.rules), policy.person, policy.ask_timeout};
  };
  handlers.questions = &session.questions();
  return session::ControlServer::start(session.id(), std::move(handlers));
}

}  // namespace anchorhold::cli
