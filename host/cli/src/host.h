// What every command that starts guests needs, made once: the event log, the images, the hypervisor.
#pragma once

#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "cli/arguments.h"
#include "console.h"
#include "events/event_log.h"
#include "session/session.h"
#include "terminal_asker.h"

namespace anchorhold::cli {

class Host {
 public:
  static Result<std::unique_ptr<Host>> open(Console& console);

  Console& console() { return console_; }
  Clock& clock() { return clock_; }
  TerminalAsker& asker() { return asker_; }
  events::EventSink& events() { return *events_; }

  // Judges the folders and opens them.
  static Result<std::vector<mounts::Grant>> resolve_grants(const std::vector<GrantArgument>& arguments);
  // How a session starts guests, as the arguments say; progress goes to the console.
  session::SessionParts session_parts(const GuestArguments& arguments);
  static session::GuestSpec guest_spec(const GuestArguments& arguments);
  // What the configuration file and the arguments let a session reach; none when that is nothing.
  Result<std::optional<session::EgressSpec>> egress_spec(const GuestArguments& arguments) const;
  static mounts::ShareLimits share_limits(const GuestArguments& arguments);

 private:
  Host(Console& console, std::unique_ptr<events::EventLog> events)
      : console_(console), events_(std::move(events)) {}

  Console& console_;
  TerminalAsker asker_{console_};
  SystemClock clock_;
  std::unique_ptr<events::EventLog> events_;
};

// "rw /home/a/report → /mnt/report", for people.
std::string describe(const mounts::Grant& grant);
std::vector<std::string> describe(const std::vector<mounts::Grant>& grants);

}  // namespace anchorhold::cli
