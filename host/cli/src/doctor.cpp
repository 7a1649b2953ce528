// anchorhold doctor: every step of a real start, taken one by one, then a real start.
#include "hypervisor/doctor.h"

#include <fmt/format.h>
#include <fstream>

#include "base/files.h"
#include "base/paths.h"
#include "commands.h"
#include "host.h"
#include "images/store.h"
#include "images/verified_image.h"
#include "session/leftovers.h"
#include "session/session_store.h"
#include "session_door.h"

namespace anchorhold::cli {
namespace {

using hypervisor::Check;
using hypervisor::CheckStatus;

class Report {
 public:
  explicit Report(Console& console) : console_(console) {}

  void add(const Check& check) {
    console_.progress("");
    console_.object(Json{{"type", "check"},
                         {"name", check.name},
                         {"status", hypervisor::to_string(check.status)},
                         {"what", check.what},
                         {"fix", check.fix}});
    console_.line(fmt::format("{:<5} {:<16} {}", hypervisor::to_string(check.status), check.name,
                              one_line(check.what, 1000)));
    if (!check.fix.empty()) console_.line(fmt::format("{:<22} to do: {}", "", one_line(check.fix, 1000)));
    if (check.status == CheckStatus::fail) ++failures_;
  }
  void ok(std::string name, std::string what) {
    add({std::move(name), CheckStatus::ok, std::move(what), {}});
  }
  void failed(std::string name, const Error& error) {
    add({std::move(name), CheckStatus::fail, error.message, advice(error)});
  }
  std::size_t failures() const { return failures_; }

 private:
  Console& console_;
  std::size_t failures_ = 0;
};

// All that a session starts, now or later; the hypervisor's own are looked for by hypervisor::examine().
void check_programs(Report& report) {
  for (const char* name : {"anchorhold-vsockd", "anchorhold-fsd", "anchorhold-keeper", "anchorhold-spares",
                           "anchorhold-ledger", "anchorhold-egressd", "anchorhold-fetch"})
    if (auto found = own_program(name); !found) return report.failed("session-programs", found.error());
  report.ok("session-programs", "the programs of a session are there");
}

// What a session may reach, found out as each session does.
std::optional<session::EgressSpec> check_network(const GuestArguments& arguments, const Host& host,
                                                 Report& report) {
  auto spec = host.egress_spec(arguments);
  if (!spec) {
    report.failed("network", spec.error());
    return std::nullopt;
  }
  if (*spec) {
    report.ok("network", "the rules are understood, and how this computer reaches the network is known");
  } else {
    report.add({"network", CheckStatus::warn, "this computer has no network, so guests have none",
                "if it should have: cat /etc/resolv.conf, and look at the proxies in the environment"});
  }
  return std::move(*spec);
}

bool check_image(const std::string& name, Report& report) {
  auto verify = [&]() -> Result<images::VerifiedImage> {
    return images::VerifiedImage::verify(ANCHORHOLD_TRY(images::ImageStore::open_default()), name);
  };
  auto image = verify();
  if (!image) {
    report.failed("image", image.error());
    return false;
  }
  report.ok("image",
            fmt::format("{}, kernel {}: every byte is as signed", name, image->manifest().kernel_version));
  return true;
}

void check_leftovers(Report& report) {
  auto runtime = runtime_directory();
  if (!runtime) return report.failed("leftovers", runtime.error());
  auto removed = session::remove_leftovers(*runtime);
  report.ok("leftovers", removed == 0 ? "nothing is left of sessions that were killed"
                                      : fmt::format("removed what {} killed sessions had left", removed));
}

// What a command in the guest must be able to do with a folder that may be changed.
Status try_command(session::Session& session, session::Guest& guest) {
  session::ExecSpec spec;
  spec.argv = {"/bin/sh", "-c", "test \"$(cat question)\" = question && echo answer > answer"};
  auto exec = ANCHORHOLD_TRY(session.start_exec(guest, std::move(spec)));
  std::string errors;
  while (auto piece = ANCHORHOLD_TRY(exec->read_any())) errors += piece->bytes;
  auto status = exec->wait();
  session.exec_ended(guest, exec->id(), status);
  if (!status) return fail(std::move(status).error());
  if (status->ok()) return {};
  return fail(
      ErrorCode::failed_precondition,
      fmt::format("a command in the guest {}: {}", session::to_string(*status), one_line(errors, 300)));
}

Status try_session(const GuestArguments& arguments, std::optional<session::EgressSpec> egress, Host& host,
                   std::stop_token stop, Report& report) {
  auto folder = ANCHORHOLD_TRY(TemporaryDirectory::create("anchorhold-doctor"));
  ANCHORHOLD_CHECK(write_file_atomic(folder.path() / "question", "question\n"));
  session::SessionSpec spec;
  spec.id = SessionId(new_short_id());
  spec.grants = ANCHORHOLD_TRY(Host::resolve_grants({{folder.path(), mounts::Mode::rw}}));
  spec.guest = Host::guest_spec(arguments);
  spec.egress = std::move(egress);
  ANCHORHOLD_TRY(session::SessionStore::open_default());
  auto session = ANCHORHOLD_TRY(session::Session::open(std::move(spec), host.session_parts(arguments)));
  auto door = ANCHORHOLD_TRY(open_door(*session, {}, host.console(), host.clock()));
  auto started = session->guest(stop);
  if (!started) {
    session->close("the doctor is done");
    return fail(std::move(started).error());
  }
  auto guest = std::move(*started);
  for (const auto& [stage, time] : guest->stages())
    report.ok(fmt::format("start.{}", session::to_string(stage)),
              fmt::format("{} ms", time / std::chrono::milliseconds(1)));
  if (auto status = try_command(*session, *guest); !status) {
    report.failed("command", status.error());
  } else if (auto answer = read_file(folder.path() / "answer", 100); !answer || *answer != "answer\n") {
    report.failed("command",
                  {ErrorCode::data_loss, "what a command wrote into a granted folder did not arrive", {}});
  } else {
    report.ok("command", "a command ran, read a granted folder and changed it");
  }
  guest.reset();
  session->close("the doctor is done");
  return {};
}

}  // namespace

Result<int> run_doctor_command(const DoctorCommand& command, Console& console, Signals& signals) {
  Report report(console);
  console.progress("looking at this computer");
  hypervisor::DoctorEnvironment environment;
  environment.uri = command.guest.hypervisor_uri;
  for (const auto& check : hypervisor::examine(environment)) report.add(check);
  check_programs(report);
  check_leftovers(report);
  auto host = Host::open(console);
  std::optional<session::EgressSpec> egress;
  if (host)
    egress = check_network(command.guest, **host, report);
  else
    report.failed("event-log", host.error());
  console.progress("checking the guest image");
  bool image = check_image(command.guest.image, report);
  if (!image || report.failures() > 0) {
    report.add({"start", CheckStatus::warn, "a start was not tried", "repair what failed above first"});
  } else {
    std::stop_source stop;
    signals.set_handler([&stop](int) { stop.request_stop(); });
    auto status = try_session(command.guest, std::move(egress), **host, stop.get_token(), report);
    signals.set_handler({});
    if (!status) report.failed("start", status.error());
  }
  const bool ok = report.failures() == 0;
  console.object(Json{{"type", "doctor"}, {"ok", ok}, {"failures", report.failures()}});
  console.line(ok ? "this computer can run guests"
                  : fmt::format("{} must be repaired", report.failures() == 1
                                                           ? std::string("1 thing")
                                                           : fmt::format("{} things", report.failures())));
  return ok ? exit_status::ok : exit_status::not_completed;
}

}  // namespace anchorhold::cli
