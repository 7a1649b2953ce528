#include "way_out.h"

#include <fmt/format.h>

#include "base/log.h"

namespace anchorhold::session {

Result<std::unique_ptr<WayOut>> WayOut::start(EgressSpec spec, SessionId session, Asker* asker,
                                              events::EventSink& events) {
  std::unique_ptr<WayOut> made(new WayOut(std::move(session), asker, events));
  egress::DoorSpec door;
  door.policy = std::move(spec.policy);
  door.session_token = made->token_;
  door.resolver = std::move(spec.resolver);
  door.proxies = std::move(spec.proxies);
  door.trust = std::move(spec.trust);
  egress::DoorHost host;
  host.sink = &events;
  if (asker)
    host.ask = [self = made.get(), limit = door.policy.ask_timeout](
                   const egress::Question& question, std::function<void(egress::Answer)> answer) {
      self->ask(question, limit, std::move(answer));
    };
  host.restarted = [self = made.get()](const std::string& authority) { self->door_restarted(authority); };
  auto started = egress::Door::start(std::move(door), std::move(host));
  if (!started) return fail(with_context(std::move(started).error(), "starting the way to the network"));
  made->door_ = std::move(*started);
  return made;
}

WayOut::~WayOut() {
  desk_.close();
}

void WayOut::adopt(UniqueFd stream) {
  if (auto status = door_->adopt(std::move(stream)); !status) log_warning(status.error().message);
}

Status WayOut::serve(GuestClient& guest) {
  std::lock_guard lock(mutex_);
  ANCHORHOLD_CHECK(guest.configure_network(door_->ca_certificate_pem()));
  guest_ = &guest;
  return {};
}

void WayOut::end_guest() {
  std::lock_guard lock(mutex_);
  guest_ = nullptr;
}

// On the door's thread, which serves the guest and must not wait for it.
void WayOut::door_restarted(const std::string& authority_pem) {
  restarts_.post([this, authority_pem] {
    std::lock_guard lock(mutex_);
    if (!guest_) return;
    if (auto status = guest_->configure_network(authority_pem); !status)
      log_warning("telling the guest of the new authority: " + status.error().message);
  });
}

void WayOut::ask(const egress::Question& question, std::chrono::milliseconds limit,
                 std::function<void(egress::Answer)> answer) {
  Question asked;
  asked.kind = Question::Kind::egress;
  asked.session = session_;
  asked.subject = question.destination.text();
  asked.about = question.method.empty() ? question.destination.text()
                                        : fmt::format("{} {}", question.method, question.path);
  asked.text = fmt::format("the guest wants to reach {}: {}", question.destination.text(), question.reason);
  asked.limit = limit;
  desk_.ask(std::move(asked), [answer = std::move(answer)](Approval given) {
    answer(given == Approval::allow_for_session ? egress::Answer::session
           : given == Approval::allow_once      ? egress::Answer::once
                                                : egress::Answer::deny);
  });
}

}  // namespace anchorhold::session
