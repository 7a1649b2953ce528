// anchorhold egress: what may be reached and why, the questions that wait, and the answers that were kept.
#include <algorithm>
#include <charconv>
#include <fmt/format.h>

#include "answer_words.h"
#include "base/paths.h"
#include "commands.h"
#include "name_lookup.h"
#include "policy/answers.h"
#include "policy/person_rules.h"
#include "session/control.h"
#include "session/session_store.h"

namespace anchorhold::cli {
namespace {

using policy::EgressAction;
using session::SessionState;

constexpr int asked_status = 2;

// The rules by which a new session would decide, or this one does.
struct InForce {
  policy::EgressPolicy rules;
  bool person = true;
};

Result<InForce> rules_of_files() {
  InForce in_force;
  auto folder = ANCHORHOLD_TRY(config_directory());
  auto person = policy::load_person_rules(folder);
  // As in a session whose files have become like this.
  if (!person)
    in_force.rules.broken = person.error().message;
  else
    policy::apply(*person, in_force.rules);
  return in_force;
}

Result<InForce> rules_of(const std::string& session) {
  if (session.empty()) return rules_of_files();
  auto store = ANCHORHOLD_TRY(session::SessionStore::open_default());
  auto record = ANCHORHOLD_TRY(store.find(session));
  if (record.state == SessionState::running) {
    auto client = ANCHORHOLD_TRY(session::ControlClient::connect(record.id));
    auto view = ANCHORHOLD_TRY(client.network());
    return InForce{std::move(view.rules), view.person == policy::Person::present};
  }
  // What it would have when it is resumed.
  auto in_force = ANCHORHOLD_TRY(rules_of_files());
  in_force.rules.session = std::move(record.network);
  in_force.rules.answers = std::move(record.answers);
  return in_force;
}

// The addresses that the destination has now, and whether they may be dialled when the rules allow it.
struct Addresses {
  Status verdict;
  std::vector<policy::Address> all;
};

Addresses judge(const policy::Explanation& explanation) {
  const auto& destination = *explanation.destination;
  Addresses addresses;
  if (destination.host.address()) {
    addresses.all = {*destination.host.address()};
  } else {
    auto found = look_up(destination.host.text());
    if (!found) {
      addresses.verdict = fail(std::move(found).error());
      return addresses;
    }
    addresses.all = std::move(*found);
  }
  auto allowed = explanation.decision;
  allowed.action = EgressAction::allow;
  addresses.verdict = policy::judge_addresses(allowed, destination, addresses.all, own_addresses());
  return addresses;
}

int status_of(EgressAction verdict) {
  return verdict == EgressAction::allow ? exit_status::ok
         : verdict == EgressAction::ask ? asked_status
                                        : exit_status::not_completed;
}

Result<int> explain(const EgressCommand& command, Console& console) {
  auto in_force = ANCHORHOLD_TRY(rules_of(command.session));
  auto explanation = policy::explain(in_force.rules, command.query);
  auto lines = policy::in_words(explanation, command.query);
  auto verdict = explanation.verdict();
  if (verdict == EgressAction::ask && !in_force.person) {
    verdict = EgressAction::deny;
    lines.push_back("Nobody can be asked in this session, so it is denied.");
  }
  Json object{{"type", "explanation"}, {"target", command.query.target}};
  object["destination"] = explanation.destination ? Json(explanation.destination->text()) : Json();
  object["reason"] = explanation.decision.reason;
  if (explanation.decision.rule) object["rule"] = to_json(*explanation.decision.rule);
  if (explanation.decision.origin) object["origin"] = policy::to_string(*explanation.decision.origin);
  object["alone"] = policy::to_string(explanation.alone.action);
  if (explanation.passage) object["passage"] = policy::to_string(*explanation.passage);
  if (explanation.request)
    object["request"] = Json{{"allowed", explanation.request->has_value()},
                             {"reason", *explanation.request ? "" : explanation.request->error().message}};
  if (command.resolve && explanation.destination && explanation.decision.action != EgressAction::deny) {
    auto addresses = judge(explanation);
    Json all = Json::array();
    for (const auto& address : addresses.all) {
      auto kind = policy::to_string(policy::classify(address));
      all.push_back(Json{{"address", address.text()}, {"class", kind}});
      lines.push_back(fmt::format("It has the address {} ({}).", address.text(), kind));
    }
    object["addresses"] = all;
    object["addresses_allowed"] = addresses.verdict.has_value();
    if (!addresses.verdict) {
      verdict = EgressAction::deny;
      object["addresses_reason"] = addresses.verdict.error().message;
      lines.push_back(fmt::format("Denied all the same: {}.", addresses.verdict.error().message));
    }
  }
  object["verdict"] = policy::to_string(verdict);
  object["lines"] = lines;
  for (const auto& line : lines) console.line(one_line(line, 4000));
  console.object(object);
  return status_of(verdict);
}

Result<int> list_rules(const EgressCommand& command, Console& console) {
  auto in_force = ANCHORHOLD_TRY(rules_of(command.session));
  const auto& rules = in_force.rules;
  auto show = [&](const std::vector<policy::EgressRule>& list, std::string_view origin) {
    for (const auto& rule : list) {
      Json object = to_json(rule);
      Json whole{{"type", "rule"}, {"origin", origin}};
      whole.update(object);
      console.object(whole);
      console.line(fmt::format("{}  {}", described(rule), rule.source));
    }
  };
  show(rules.managed, "managed");
  show(rules.user, "user");
  show(rules.kept, "kept answer");
  show(rules.session, "session");
  show(rules.answers, "answer");
  console.object(
      Json{{"type", "default"},
           {"action", policy::to_string(rules.broken.empty() ? rules.unnamed : EgressAction::deny)},
           {"broken", rules.broken}});
  if (rules.broken.empty()) {
    console.line(fmt::format("{:<5}  everything else", policy::to_string(rules.unnamed)));
    return exit_status::ok;
  }
  console.error({ErrorCode::failed_precondition, rules.broken, "everything is denied until this is mended"});
  return exit_status::not_completed;
}

Result<std::vector<session::Questions::Pending>> all_pending() {
  std::vector<session::Questions::Pending> all;
  auto store = ANCHORHOLD_TRY(session::SessionStore::open_default());
  for (const auto& record : ANCHORHOLD_TRY(store.list())) {
    if (record.state != SessionState::running) continue;
    auto client = session::ControlClient::connect(record.id);
    if (!client) continue;  // it begins or ends just now
    auto pending = client->questions();
    if (!pending && pending.error().code != ErrorCode::failed_precondition &&
        pending.error().code != ErrorCode::cancelled)
      return fail(std::move(pending).error());
    if (pending) std::move(pending->begin(), pending->end(), std::back_inserter(all));
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.left < b.left; });
  return all;
}

Result<int> list_pending(Console& console) {
  auto all = ANCHORHOLD_TRY(all_pending());
  for (const auto& [question, left] : all) {
    console.object(to_json(question, left));
    console.line(
        fmt::format("{}  {} s left: {}", question.id(), left / std::chrono::seconds(1), described(question)));
    if (!question.activity.empty()) console.line("  running: " + one_line(question.activity, 400));
    console.line(fmt::format("  anchorhold egress answer {} {}", question.id(), words_for(question.kind)));
  }
  if (all.empty()) console.note("no question waits for an answer");
  return exit_status::ok;
}

Result<int> give_answer(const EgressCommand& command, Console& console) {
  auto dot = command.question.rfind('.');
  std::uint64_t number = 0;
  std::string_view digits = std::string_view(command.question).substr(dot == std::string::npos ? 0 : dot + 1);
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (dot == std::string::npos || error != std::errc() || end != digits.data() + digits.size())
    return fail(ErrorCode::invalid_argument, fmt::format("'{}' names no question", command.question),
                "see which wait: anchorhold egress pending");
  auto store = ANCHORHOLD_TRY(session::SessionStore::open_default());
  auto record = ANCHORHOLD_TRY(store.find(command.question.substr(0, dot)));
  auto client = ANCHORHOLD_TRY(session::ControlClient::connect(record.id));
  auto counts = ANCHORHOLD_TRY(client.answer(number, command.answer));
  const auto id = fmt::format("{}.{}", record.id.value(), number);
  console.object(Json{{"type", "answered"}, {"question", id}, {"answer", word_of(counts)}});
  console.line(fmt::format("question {}: {}", id, word_of(counts)));
  if (counts == command.answer) return exit_status::ok;
  return fail(ErrorCode::unavailable,
              fmt::format("question {} was denied: the answer could not be recorded", id),
              "see whether there is room on the disk of the event log");
}

Result<int> forget(const EgressCommand& command, Console& console) {
  auto folder = ANCHORHOLD_TRY(config_directory());
  auto forgotten = policy::forget_answers(folder, command.rule);
  if (!forgotten && forgotten.error().code == ErrorCode::not_found) {
    auto person = policy::load_person_rules(folder);
    auto destination = policy::Destination::parse(command.rule, 443);
    if (person && destination) {
      policy::EgressPolicy rules;
      policy::apply(*person, rules);
      auto decision = policy::decide(rules, *destination, policy::Person::present);
      if (decision.rule)
        return fail(ErrorCode::not_found,
                    fmt::format("no kept answer is for '{}'; the rule at {} is your own", command.rule,
                                decision.rule->source),
                    fmt::format("edit {}", (folder / policy::configuration_file).string()));
    }
  }
  for (const auto& rule : ANCHORHOLD_TRY(std::move(forgotten))) {
    console.object(Json{{"type", "forgotten"}, {"rule", to_json(rule)}});
    console.line(fmt::format("forgotten: {}", described(rule)));
  }
  return exit_status::ok;
}

}  // namespace

Result<int> run_egress_command(const EgressCommand& command, Console& console) {
  using Action = EgressCommand::Action;
  switch (command.action) {
    case Action::explain:
      return explain(command, console);
    case Action::rules:
      return list_rules(command, console);
    case Action::pending:
      return list_pending(console);
    case Action::answer:
      return give_answer(command, console);
    case Action::forget:
      return forget(command, console);
  }
  return fail(ErrorCode::internal, "an unknown egress command");
}

}  // namespace anchorhold::cli
