#include "credential_arguments.h"

#include <fmt/format.h>

#include "argument_parts.h"
#include "policy/configuration.h"

namespace anchorhold::cli {
namespace {

// Throws for the library, which puts it before the usage.
void take_use(const std::string& text, GuestArguments& into) {
  auto equals = text.find('=');
  std::string name = text.substr(0, equals);
  if (name.empty()) throw CLI::ValidationError("--credential", "needs the name of a credential");
  if (equals != std::string::npos) {
    auto rule = policy::parse_rule_argument(text.substr(equals + 1), policy::EgressAction::allow);
    if (!rule) throw CLI::ValidationError("--credential", rule.error().message);
    // It goes over TLS only.
    if (rule->ports.size() > 1) rule->ports = {443};
    rule->credential = name;
    rule->source = fmt::format("--credential {}", text);
    into.network.push_back(std::move(*rule));
  }
  if (!into.credentials) into.credentials.emplace();
  into.credentials->push_back(std::move(name));
}

void add_add(CLI::App* add, CredentialCommand& into) {
  auto& credential = into.credential;
  add->footer(
      "The secret is read from standard input, and asked for when that is a terminal. That of aws-sigv4 is "
      "the "
      "secret access key; a session token may follow on a second line.");
  add->add_option_function<std::string>(
         "--kind",
         [&credential](const std::string& text) {
           auto kind = vault::parse_kind(text);
           if (!kind) throw CLI::ValidationError("--kind", "is bearer, basic, header, aws-sigv4 or git");
           credential.kind = *kind;
         },
         "bearer, basic, header, aws-sigv4 or git (bearer)")
      ->type_name("KIND");
  add->add_option("--user", credential.user, "The user of basic and git; the access key id of aws-sigv4")
      ->type_name("USER");
  add->add_option("--header", credential.header, "The header that holds it, such as X-Api-Key")
      ->type_name("NAME");
  add->add_option("--region", credential.region, "aws-sigv4: sign for this region only")->type_name("REGION");
  add->add_option("--service", credential.service, "aws-sigv4: sign for this service only")
      ->type_name("SERVICE");
  add->add_option("--variable", credential.variables, "A variable that has the token in the guest")
      ->allow_extra_args(false)
      ->type_name("NAME");
  add->add_option_function<std::string>(
         "--store",
         [&into](const std::string& text) {
           into.store = vault::parse_store(text);
           if (!into.store) throw CLI::ValidationError("--store", "is secret-service or file");
         },
         "secret-service or file (the Secret Service where one runs)")
      ->type_name("STORE");
  add->add_flag("--passphrase", into.passphrase, "Protect a new file of secrets with a passphrase");
  add->add_flag("--replace", into.replace, "Put it in the place of one with the same name");
}

}  // namespace

void add_credential_command(CLI::App& app, CredentialCommand& into, bool& json) {
  using Action = CredentialCommand::Action;
  auto* command = app.add_subcommand("credential", "Secrets that requests of a guest get on their way out");
  command->require_subcommand(1);
  auto action = [&](const char* name, Action what, const char* text) {
    auto* sub = add_action(command, name, text, json, into, what);
    if (what != Action::list && what != Action::passphrase)
      sub->add_option("name", into.credential.name, "Its name")->required()->type_name("NAME");
    return sub;
  };
  add_add(action("add", Action::add, "Keep a secret; rules name it: credential = \"NAME\""), into);
  action("list", Action::list, "All of them, without their secrets");
  action("rm", Action::remove, "Forget one");
  action("test", Action::test, "Make a request with one, from this computer")
      ->add_option("url", into.url, "To where a rule names it; else to the first such host")
      ->type_name("URL");
  auto* passphrase =
      action("passphrase", Action::passphrase, "Protect the encrypted file with another passphrase");
  passphrase->footer(
      "The new passphrase is read from standard input, and asked for when that is a terminal; the present "
      "one "
      "is asked for, or read from the file that ANCHORHOLD_VAULT_PASSPHRASE_FILE names.");
  passphrase->add_flag("--none", into.none, "With a key file beside it, and no passphrase");
}

void add_credential_option(CLI::App& command, GuestArguments& into) {
  command
      .add_option_function<std::vector<std::string>>(
          "--credential",
          [&into](const std::vector<std::string>& texts) {
            for (const auto& text : texts) take_use(text, into);
          },
          "Of the credentials that rules name, give it this one only; with =HOST, allow it there and use it")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("NAME[=HOST[:PORT]]");
}

}  // namespace anchorhold::cli
