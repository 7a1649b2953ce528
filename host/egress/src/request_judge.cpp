#include "egress/request_judge.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "egress/text.h"

namespace anchorhold::egress {
namespace {

RequestJudgement refused(std::string reason, bool violation = false) {
  RequestJudgement judgement;
  judgement.verdict = RequestJudgement::Verdict::refuse;
  judgement.reason = std::move(reason);
  judgement.violation = violation;
  return judgement;
}

policy::RequestFacts facts_of(const RequestHead& head) {
  policy::RequestFacts facts{head.method, head.path, {}, std::nullopt};
  for (const Field& field : head.fields) facts.header_names.push_back(lower(field.name));
  if (head.body.kind == BodyFraming::Kind::length) facts.body_size = head.body.length;
  if (head.body.kind == BodyFraming::Kind::none) facts.body_size = 0;
  return facts;
}

}  // namespace

RequestJudgement judge_inner_request(const RequestHead& head, const RequestContext& context) {
  if (head.form == RequestHead::Form::connect)
    return refused("a CONNECT inside a connection: there is one proxy", true);
  if (head.destination != context.destination)
    return refused(fmt::format("the request is for {} on a connection to {}", head.destination.text(),
                               context.destination.text()),
                   true);
  const policy::EgressRule* rule = context.rule;
  if (rule)
    if (auto satisfied = policy::judge_request(*rule, facts_of(head)); !satisfied)
      return refused(satisfied.error().message);
  if (rule && !rule->deny_json_fields.empty())
    for (const Field& field : head.fields)
      if (lower(field.name) == "content-encoding" && lower(trimmed(field.value, " \t")) != "identity")
        return refused("a compressed body, whose fields cannot be looked for, is not allowed");
  std::optional<GitRequest> git;
  if (rule && !rule->git.empty()) {
    auto judged = judge_git_request(head, rule->git);
    if (!judged)
      return refused(fmt::format("{}, by the rule for {} ({})", judged.error().message, rule->host.text(),
                                 rule->source));
    git = std::move(*judged);
  }
  std::optional<CredentialForm> form;
  const CredentialForm* found_form = nullptr;
  if (rule && !rule->credential.empty()) {
    auto found = context.credentials.find(rule->credential);
    if (found == context.credentials.end())
      return refused(fmt::format("this session does not have the credential {} of the rule for {} ({})",
                                 rule->credential, rule->host.text(), rule->source));
    if (!context.tls) return refused("a credential goes over TLS only");
    if (head.method == "TRACE") return refused("TRACE would send the credential back");
    found_form = &found->second;
    form = found->second;
  }
  Provenance provenance = judge_provenance(head, form, context.session_token);
  RequestJudgement judgement;
  judgement.git = std::move(git);
  switch (provenance.verdict) {
    case Provenance::Verdict::plain:
      break;
    case Provenance::Verdict::swap:
      judgement.verdict = RequestJudgement::Verdict::swap;
      judgement.field = provenance.field;
      judgement.form = found_form;
      break;
    case Provenance::Verdict::refused:
      judgement = refused(std::move(provenance.reason), true);
      judgement.foreign_credential = true;
      if (form) judgement.status = 401;
      // A client that knows a name and a password shows them once it is asked to; nobody planted anything
      // yet.
      if (provenance.missing && form->kind == CredentialForm::Kind::basic) {
        judgement.challenge = true;
        judgement.violation = judgement.foreign_credential = false;
      }
      break;
  }
  return judgement;
}

Status judge_trailers(const std::vector<Field>& trailers, std::string_view session_token) {
  constexpr std::array forbidden{"content-length", "transfer-encoding", "host",   "authorization",
                                 "cookie",         "set-cookie",        "te",     "trailer",
                                 "connection",     "upgrade",           "expect", "proxy-authorization",
                                 "x-api-key",      "content-encoding"};
  for (const Field& field : trailers) {
    if (std::find(forbidden.begin(), forbidden.end(), lower(field.name)) != forbidden.end())
      return fail(ErrorCode::permission_denied,
                  fmt::format("the field {} does not belong after a body", lower(field.name)));
    if (holds_token(field.value, session_token) || holds_token(field.name, session_token))
      return fail(ErrorCode::permission_denied, "the session's token stands after a body");
  }
  return {};
}

}  // namespace anchorhold::egress
