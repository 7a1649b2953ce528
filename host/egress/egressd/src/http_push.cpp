// Pushes of Git in HTTP/1: nothing of one goes on before its commands were read and judged.
#include <fmt/format.h>

#include "egress/git.h"
#include "git_judge.h"
#include "http_exchange.h"
#include "relay.h"

namespace anchorhold::egress {

// Where a body goes that nobody wants, so that the guest gets to the point at which it reads why.
class HttpExchange::Nowhere final : public Stream {
 public:
  Io try_read(std::span<char>) override { return {}; }
  Io try_write(std::string_view bytes) override { return {.state = Io::State::done, .count = bytes.size()}; }
  Io try_shutdown() override { return {.state = Io::State::done}; }
  Awaitable<void> wait(Direction) override { co_return; }
  void cut() override {}
};

Awaitable<bool> HttpExchange::hold_push(RequestHead& head, Outgoing& outgoing) {
  RequestJudgement judgement = judge(head, connection_.decided_);
  bool held = judgement.verdict != RequestJudgement::Verdict::refuse && judgement.git &&
              judgement.git->carries_commands;
  if (!held) co_return true;
  auto limits = connection_.decided_.configuration->limits;
  connection_.deadline_.in(limits.head);
  if (head.expects_continue) {
    // Here and now: the commands come only then. The server is not asked any more.
    std::string go_on = "HTTP/1.1 100 Continue\r\n\r\n";
    if (!co_await write_all(guest_, go_on)) co_return false;
    std::erase_if(head.fields, [](const Field& field) { return is_named(field, "expect"); });
    head.expects_continue = false;
  }
  HeldPush push(head.body, judgement.git->gzip);
  for (;;) {
    auto whole = push.look(reader_.bytes());
    if (!whole) {
      EventReport report = connection_.report_of(EventKind::deny, whole.error().message);
      describe_git(report, *judgement.git, push.push());
      report.violation = true;
      co_await refuse_request(head, 403, std::move(report));
      co_return false;
    }
    if (*whole) break;
    if (!co_await reader_.fill()) co_return false;
  }
  outgoing.push = push.push();
  co_return true;
}

// Whether a request of Git may go on; recorded when it does.
Awaitable<bool> HttpExchange::admit_git(const RequestHead& head, const Decided& decided,
                                        const GitRequest& request, const std::optional<GitPush>& push) {
  GitAdmission admission = judge_git(request, push, *decided.decision.rule);
  EventKind kind = admission.reason.empty() ? EventKind::allow : EventKind::deny;
  EventReport report = connection_.report_of(kind, admission.reason);
  describe_git(report, request, push.value_or(GitPush{}));
  if (!admission.reason.empty()) {
    co_await refuse_push(head, std::move(report), std::move(admission.answer));
    co_return false;
  }
  std::string noted = fmt::format("{} {} {}", report.git_operation, report.git_repository, report.git_refs);
  if (noted == connection_.last_git_ && report.git_refs.empty()) co_return true;
  report.cause = decided.decision.reason;
  report.method = head.method;
  report.path = head.path;
  bool recorded = co_await connection_.record(report);
  if (recorded) {
    connection_.last_git_ = std::move(noted);
  } else {
    report.kind = EventKind::deny;
    report.cause = "what is allowed must be recorded, and was not";
    co_await refuse_request(head, 403, std::move(report));
  }
  co_return recorded;
}

// A client that sends a pack of any size reads what became of it after that, and only then. So the answer
// comes when it has sent everything; one that comes before makes some of them wait for ever.
Awaitable<void> HttpExchange::refuse_push(const RequestHead& head, EventReport report, std::string answer) {
  if (answer.empty()) {
    co_await refuse_request(head, 403, std::move(report));
    co_return;
  }
  report.method = head.method;
  report.path = head.path;
  refused_ = true;
  bool recorded = co_await connection_.record(report);
  if (!recorded) report.cause += " (and it could not be recorded)";
  Nowhere nowhere;
  BodySpec spec;
  spec.framing = head.body;
  auto limits = connection_.proxy_.configuration()->limits;
  spec.moved = [this, limits] { connection_.deadline_.in(limits.head); };
  BodyOutcome outcome = co_await relay_body(reader_, nowhere, std::move(spec));
  if (outcome.kind != BodyOutcome::Kind::whole) co_return;
  RefusalForm form;
  form.git_report = std::move(answer);
  std::string response = refusal_response(403, report, form);
  co_await write_all(guest_, response);
}

}  // namespace anchorhold::egress
