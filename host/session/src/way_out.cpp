#include "way_out.h"

#include <algorithm>
#include <ctime>
#include <fmt/format.h>
#include <optional>

#include "base/log.h"
#include "egress/control.h"
#include "policy/answers.h"
#include "session/credentials.h"

namespace anchorhold::session {
namespace {

egress::Answer answer_of(Approval given) {
  switch (given) {
    case Approval::allow_once:
      return egress::Answer::once;
    case Approval::allow_for_session:
      return egress::Answer::session;
    case Approval::allow_always:
      return egress::Answer::always;
    case Approval::deny_always:
      return egress::Answer::never;
    case Approval::deny:
      break;
  }
  return egress::Answer::deny;
}

// The certificates of the person's own, which programs in the guest need as well: they verify what is
// tunnelled.
Result<std::string> own_certificates(egress::TrustSpec trust) {
  trust.system = false;
  return trust.pem();
}

// What the guest may hear of a fault in the person's files: where it is, and nothing of what stands there.
std::string fault_for_the_guest(const Error& fault) {
  auto place = fault.message.substr(0, fault.message.find(": "));
  bool is_place = place.find(".toml:") != std::string::npos && place.find_first_of(" /") == std::string::npos;
  return fmt::format("{} not understood, so that nothing is allowed until that is mended",
                     is_place ? place + " is" : "the rules are");
}

std::string today() {
  std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}", local.tm_year + 1900, local.tm_mon + 1, local.tm_mday,
                     local.tm_hour, local.tm_min);
}

// The person's part of a policy, the credentials it has included, as one text.
std::string fingerprint(const egress::DoorPolicy& policy, const std::string& trust) {
  policy::EgressPolicy part;
  part.user = policy.rules.user;
  part.kept = policy.rules.kept;
  part.unnamed = policy.rules.unnamed;
  std::string credentials;
  for (const auto& [name, form] : policy.credentials)
    credentials +=
        fmt::format("{} {} {} {}\n", name, static_cast<int>(form.kind), form.header_name, form.user);
  return fmt::format("{}\n{}{}\n{}", egress::encode_rules(part), credentials, policy.ask_timeout.count(),
                     trust);
}

}  // namespace

Result<std::unique_ptr<WayOut>> WayOut::start(EgressSpec spec, WayOutParts parts, events::EventSink& events) {
  std::unique_ptr<WayOut> made(new WayOut(std::move(spec), std::move(parts), events));
  if (auto started = made->start_door(); !started)
    return fail(with_context(std::move(started).error(), "starting the way to the network"));
  if (!made->spec_.rules.empty()) ANCHORHOLD_CHECK(made->start_watch());
  return made;
}

Status WayOut::start_door() {
  also_trusted_ = ANCHORHOLD_TRY(own_certificates(spec_.trust));
  egress::DoorSpec door;
  door.policy = spec_.policy;
  grant_credentials(door.policy);
  door.session_token = token_;
  door.resolver = spec_.resolver;
  door.proxies = spec_.proxies;
  door.trust = spec_.trust;
  egress::DoorHost host;
  host.sink = &events_;
  if (parts_.asks) {
    host.ask = [this](const egress::Question& question, std::function<void(egress::Answer)> answer) {
      ask(question, std::move(answer));
    };
    host.withdrawn = [this](std::uint64_t question) { withdrawn(question); };
  }
  host.restarted = [this](const std::string&) { tell_guest(); };
  // The vault may take its time; the door serves the guest.
  if (spec_.credentials)
    host.secret = [this](const egress::SecretRequest& request,
                         std::function<void(Result<std::string>)> give) {
      vault_.post([credentials = spec_.credentials, request, give = std::move(give)] {
        give(credentials->secret(request));
      });
    };
  std::string trusted = ANCHORHOLD_TRY(door.trust.pem());
  in_force_ = fingerprint(door.policy, trusted);
  door_ = ANCHORHOLD_TRY(egress::Door::start(std::move(door), std::move(host)));
  return {};
}

Status WayOut::start_watch() {
  std::vector<std::filesystem::path> also;
  if (spec_.credentials) also.push_back(ANCHORHOLD_TRY(spec_.credentials->list_file()));
  watch_ = ANCHORHOLD_TRY(
      RulesWatch::start(spec_.rules,
                        {.good = [this](const policy::PersonRules& rules) { apply(rules); },
                         .broken = [this](const Error& fault) { deny_all(fault); },
                         .check = [this](const policy::PersonRules& rules) { return check(rules); }},
                        std::move(also)));
  return {};
}

WayOut::~WayOut() {
  if (!door_) return;
  parts_.questions->finish();
  watch_.reset();
}

Result<egress::FetchedPage> WayOut::fetch(const std::string& url, std::stop_token stop) {
  constexpr std::chrono::seconds for_the_page(60);
  egress::FetchRequest request{.url = url};
  request.limit = for_the_page + ask_timeout_.load();
  egress::FetchRoute route;
  route.adopt = [this](UniqueFd stream) { return door_->adopt(std::move(stream)); };
  route.trust_pem = ANCHORHOLD_TRY(spec_.trust.pem());
  route.trust_pem += door_->ca_certificate_pem();
  return egress::fetch_page(request, route, std::move(stop));
}

void WayOut::adopt(UniqueFd stream) {
  if (auto status = door_->adopt(std::move(stream)); !status) log_warning(status.error().message);
}

Status WayOut::serve(GuestClient& guest) {
  std::lock_guard lock(mutex_);
  ANCHORHOLD_CHECK(guest.configure_network(door_->ca_certificate_pem() + also_trusted_));
  guest_ = &guest;
  return {};
}

void WayOut::end_guest() {
  std::lock_guard lock(mutex_);
  guest_ = nullptr;
}

// May be on the door's thread, which serves the guest and must not wait for it.
void WayOut::tell_guest() {
  restarts_.post([this] {
    std::lock_guard lock(mutex_);
    if (!guest_) return;
    if (auto status = guest_->configure_network(door_->ca_certificate_pem() + also_trusted_); !status)
      log_warning("telling the guest whom to trust: " + status.error().message);
  });
}

// Without the vault every rule that names a credential denies. The person hears of a fault once.
void WayOut::grant_credentials(egress::DoorPolicy& policy) {
  if (!spec_.credentials) return;
  auto notes = spec_.credentials->grant(policy);
  auto missing = notes ? std::move(*notes) : std::vector{std::move(notes).error().message};
  for (const auto& note : missing)
    if (std::find(missing_.begin(), missing_.end(), note) == missing_.end()) tell_person(note);
  missing_ = std::move(missing);
}

std::map<std::string, std::string> WayOut::variables() const {
  return spec_.credentials ? spec_.credentials->variables(token_) : std::map<std::string, std::string>();
}

void WayOut::tell_person(const std::string& text) const {
  if (parts_.notice) parts_.notice(text);
}

void WayOut::ask(const egress::Question& question, std::function<void(egress::Answer)> answer) {
  Question asked;
  asked.kind = Question::Kind::egress;
  asked.subject = question.destination.text();
  asked.about = question.method.empty() ? question.destination.text()
                                        : fmt::format("{} {}", question.method, question.path);
  asked.text = fmt::format("the guest wants to reach {}: {}", question.destination.text(), question.reason);
  asked.limit = ask_timeout_;
  asked.bytes_waiting = question.bytes_waiting;
  std::lock_guard lock(asked_mutex_);
  asked_[question.id] =
      parts_.questions->ask(std::move(asked), [this, question, answer = std::move(answer)](Approval given) {
        {
          std::lock_guard forget(asked_mutex_);
          asked_.erase(question.id);
        }
        answered(question, given, answer);
      });
}

void WayOut::withdrawn(std::uint64_t question) {
  std::optional<std::uint64_t> number;
  {
    std::lock_guard lock(asked_mutex_);
    if (auto found = asked_.find(question); found != asked_.end()) number = found->second;
  }
  if (number) parts_.questions->withdraw(*number);
}

// On a thread of the desk's.
void WayOut::answered(const egress::Question& question, Approval given,
                      const std::function<void(egress::Answer)>& answer) {
  auto said = answer_of(given);
  if (!spec_.rules.empty() && (said == egress::Answer::always || said == egress::Answer::never))
    keep(question, said);
  answer(said);
  if (said != egress::Answer::once && said != egress::Answer::deny && parts_.answered)
    parts_.answered(door_->policy().rules.answers);
}

// In force before the answer is given, so that the rule of the file is the one that counts and can be
// forgotten.
void WayOut::keep(const egress::Question& question, egress::Answer answer) {
  const auto rules = door_->policy().rules;
  auto decision = policy::decide(rules, question.destination, policy::Person::present);
  auto rule = egress::rule_of_answer(question.destination, answer, decision.rule);
  auto comment = fmt::format("{} session {}: {}", today(), parts_.questions->session().value(),
                             egress::to_string(answer));
  if (auto kept = policy::keep_answer(spec_.rules, rule, comment); !kept) {
    tell_person(
        fmt::format("the answer could not be kept, it holds for this session: {}", kept.error().message));
    return;
  }
  watch_->refresh();
}

egress::TrustSpec WayOut::trust_of(const policy::PersonRules& rules) const {
  egress::TrustSpec trust = spec_.trust;
  trust.extra_ca = rules.configured.extra_ca;
  return trust;
}

Status WayOut::check(const policy::PersonRules& rules) const {
  auto pem = trust_of(rules).pem();
  if (pem) return {};
  return fail(with_context(std::move(pem).error(), fmt::format("{}: extra_ca", policy::configuration_file)));
}

void WayOut::apply(const policy::PersonRules& rules) {
  auto next = spec_.policy;
  policy::apply(rules, next.rules);
  next.ask_timeout = rules.configured.ask_timeout;
  grant_credentials(next);
  ask_timeout_ = next.ask_timeout;
  auto trust = trust_of(rules);
  auto pem = trust.pem();
  auto own = own_certificates(trust);
  if (!pem || !own) return deny_all(pem ? own.error() : pem.error());
  auto said = fingerprint(next, *pem);
  if (said == in_force_ && !broken_) return;
  bool trusts_others = false;
  {
    std::lock_guard lock(mutex_);
    trusts_others = std::exchange(also_trusted_, *own) != *own;
  }
  // First whom to trust, then where to go.
  if (auto status = door_->replace_trust(trust); !status) return deny_all(status.error());
  in_force_ = std::move(said);
  replace(next);
  if (trusts_others) tell_guest();
  if (std::exchange(broken_, false))
    tell_person("the rules for the network are understood again and in force");
}

void WayOut::deny_all(const Error& fault) {
  broken_ = true;
  if (auto status =
          events_.record(events::Event(events::policy_reject).set(events::key::cause, fault.message));
      !status)
    log_error(status.error().message);
  auto none = spec_.policy;
  none.rules.broken = fault_for_the_guest(fault);
  replace(none);
  tell_person(fmt::format("{}: nothing on the network is allowed until this is mended", fault.message));
}

void WayOut::replace(egress::DoorPolicy policy) {
  if (auto status = door_->replace_policy(std::move(policy)); !status) {
    in_force_.clear();
    log_error(status.error().message);
  }
}

}  // namespace anchorhold::session
