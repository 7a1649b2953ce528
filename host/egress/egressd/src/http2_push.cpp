// Pushes of Git in HTTP/2: nothing of one goes on before its commands were read and judged.
#include <fmt/format.h>

#include "git_judge.h"
#include "http2_bridge.h"

namespace anchorhold::egress {

void Http2Bridge::begin_push(const Shared& exchange, const GitRequest& request) {
  exchange->push.emplace(request.gzip);
  if (exchange->up.ends) take_commands(exchange, {}, true);
}

// Once the commands are whole, the request is judged again, with them and by what is in force then.
void Http2Bridge::take_commands(const Shared& exchange, std::string_view bytes, bool ends) {
  exchange->held += bytes;
  if (exchange->commands_whole) return;
  auto whole = exchange->push->take(bytes);
  Status fault;
  if (!whole)
    fault = fail(whole.error());
  else if (!*whole && ends)
    fault = exchange->push->end();
  if (!fault) {
    EventReport report = connection_.report_of(EventKind::deny, fault.error().message);
    if (auto request = git_request(exchange->head)) describe_git(report, *request, exchange->push->push());
    report.violation = true;
    refuse(exchange, 403, std::move(report));
    return;
  }
  exchange->commands_whole = *whole || ends;
  if (exchange->commands_whole) judge(exchange);
}

// Recorded before anything of it goes on.
Awaitable<void> Http2Bridge::admit_git(Shared exchange, RequestJudgement judgement, Decided decided) {
  std::optional<GitPush> push;
  if (exchange->push) push = exchange->push->push();
  GitAdmission admission = judge_git(*judgement.git, push, *decided.decision.rule);
  EventReport report = connection_.report_of(EventKind::deny, admission.reason);
  describe_git(report, *judgement.git, push.value_or(GitPush{}));
  report.method = exchange->head.method;
  report.path = exchange->head.path;
  bool admitted = false;
  if (admission.reason.empty()) {
    report.kind = EventKind::allow;
    report.cause = decided.decision.reason;
    std::string noted = fmt::format("{} {} {}", report.git_operation, report.git_repository, report.git_refs);
    admitted = noted == connection_.last_git() && report.git_refs.empty();
    if (!admitted) admitted = co_await connection_.record(report);
    if (admitted) connection_.last_git() = std::move(noted);
    report.kind = EventKind::deny;
    report.cause = "what is allowed must be recorded, and was not";
  }
  bool open = of_guest(exchange->guest_id) == exchange;
  if (open && admitted) {
    go_on(exchange, std::move(judgement), std::move(decided));
  } else if (open) {
    RefusalForm form;
    form.git_report = std::move(admission.answer);
    refuse(exchange, 403, std::move(report), std::move(form));
  }
  if (--running_ == 0) ended_.set();
}

}  // namespace anchorhold::egress
