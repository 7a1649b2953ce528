#include "egress_arguments.h"

#include "answer_words.h"
#include "argument_parts.h"

namespace anchorhold::cli {

void add_egress_command(CLI::App& app, EgressCommand& into, bool& json) {
  auto* command =
      app.add_subcommand("egress", "What may be reached on the network, and what is asked about it");
  command->require_subcommand(1);
  using Action = EgressCommand::Action;
  auto action = [&](const char* name, Action what, const char* text) {
    return add_action(command, name, text, json, into, what);
  };
  auto* explain =
      action("explain", Action::explain, "Say what the rules decide about a destination, and which one");
  explain->add_option("host", into.query.target, "As a program would name it; without a port, 443")
      ->required()
      ->type_name("HOST[:PORT]");
  explain->add_option("--method", into.query.method, "And a request with this method")->type_name("METHOD");
  explain->add_option("--path", into.query.path, "And a request for this path")->type_name("PATH");
  explain->add_flag("--resolve", into.resolve, "Also look up its addresses and judge them");
  explain->footer("Exit status: 0 allowed, 1 denied, 2 a person is asked.");
  auto* rules = action("rules", Action::rules, "The rules in force, and where each comes from");
  for (auto* sub : {explain, rules})
    sub->add_option("--session", into.session, "What this session may reach, not a new one")->type_name("ID");
  action("pending", Action::pending, "The questions of all running sessions that wait for an answer");
  auto* answer = action("answer", Action::answer, "Answer a question");
  answer->add_option("question", into.question, "As pending shows it")->required()->type_name("QUESTION");
  answer
      ->add_option_function<std::string>(
          "answer",
          [&into](const std::string& word) {
            auto given = answer_of_word(word);
            if (!given) throw CLI::ValidationError("answer", "is once, session, always, never or deny");
            into.answer = *given;
          },
          "once, session, always, never or deny")
      ->required()
      ->type_name("ANSWER");
  auto* forget = action("forget", Action::forget, "Forget what was answered always or never");
  forget->add_option("rule", into.rule, "HOST, HOST:PORT or answers.toml:LINE, as rules shows them")
      ->required()
      ->type_name("RULE");
}

}  // namespace anchorhold::cli
