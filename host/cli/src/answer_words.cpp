#include "answer_words.h"

#include <fmt/format.h>

#include "base/units.h"
#include "policy/explain.h"

namespace anchorhold::cli {

using session::Approval;
using session::Question;

std::string_view word_of(Approval answer) {
  switch (answer) {
    case Approval::deny:
      return "deny";
    case Approval::allow_once:
      return "once";
    case Approval::allow_for_session:
      return "session";
    case Approval::allow_always:
      return "always";
    case Approval::deny_always:
      return "never";
  }
  return "unknown";
}

std::optional<Approval> answer_of_word(std::string_view word) {
  using enum Approval;
  for (auto answer : {deny, allow_once, allow_for_session, allow_always, deny_always})
    if (word_of(answer) == word) return answer;
  return std::nullopt;
}

std::string words_for(Question::Kind kind) {
  std::string words;
  for (auto answer : session::answers_to(kind))
    words += fmt::format("{}{}", words.empty() ? "" : "|", word_of(answer));
  return words;
}

Json to_json(const Question& question, std::chrono::milliseconds left) {
  Json answers = Json::array();
  for (auto answer : session::answers_to(question.kind)) answers.push_back(word_of(answer));
  return Json{{"type", "question"},
              {"question", question.id()},
              {"session", question.session.value()},
              {"kind", session::to_string(question.kind)},
              {"subject", question.subject},
              {"about", question.about},
              {"text", question.text},
              {"running", question.activity},
              {"bytes_waiting", question.bytes_waiting},
              {"left_seconds", left / std::chrono::seconds(1)},
              {"answers", answers}};
}

std::string described(const Question& question) {
  std::string text =
      fmt::format("{} (now: {})", one_line(question.text, 1000), one_line(question.about, 200));
  if (question.bytes_waiting > 0)
    text += fmt::format(", {} wait", to_string(ByteSize{question.bytes_waiting}));
  return text;
}

std::string described(const policy::EgressRule& rule) {
  auto text = fmt::format("{:<5}  {}:{}", policy::to_string(rule.action), rule.host.text(),
                          fmt::join(rule.ports, ","));
  if (rule.tunnel_only) text += "  (never opened)";
  if (rule.inspecting()) text += fmt::format("  ({})", policy::demands_of(rule));
  return text;
}

Json to_json(const policy::EgressRule& rule) {
  Json json{{"action", policy::to_string(rule.action)},
            {"host", rule.host.text()},
            {"ports", rule.ports},
            {"source", rule.source}};
  if (!rule.methods.empty()) json["methods"] = rule.methods;
  if (!rule.paths.empty()) json["paths"] = rule.paths;
  if (!rule.credential.empty()) json["credential"] = rule.credential;
  if (!rule.deny_headers.empty()) json["deny_headers"] = rule.deny_headers;
  if (!rule.deny_json_fields.empty()) json["deny_json_fields"] = rule.deny_json_fields;
  if (rule.max_upload) json["max_upload"] = rule.max_upload->bytes;
  if (rule.tunnel_only) json["tunnel_only"] = true;
  if (rule.inspecting()) json["demands"] = policy::demands_of(rule);
  return json;
}

}  // namespace anchorhold::cli
