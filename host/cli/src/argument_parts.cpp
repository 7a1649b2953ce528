#include "argument_parts.h"

#include <array>
#include <fmt/format.h>

#include "base/units.h"

namespace anchorhold::cli {
namespace {

struct GrantOption {
  const char* name;
  mounts::Mode mode;
  const char* text;
};
constexpr std::array grant_options{
    GrantOption{"--ro", mounts::Mode::ro, "A folder or file to read, at /mnt/NAME in the guest"},
    GrantOption{"--rw", mounts::Mode::rw, "A folder or file to read and change"},
    GrantOption{"--rw-no-delete", mounts::Mode::rw_no_delete,
                "The same, but nothing that is there already can be removed or renamed"}};

}  // namespace

CLI::Validator limit_validator(std::optional<std::chrono::milliseconds>& into) {
  return CLI::Validator(
      [&into](std::string& text) -> std::string {
        auto parsed = parse_duration(text);
        if (!parsed) return parsed.error().message;
        if (parsed->count() == 0) return "must be more than no time; leave it out for no limit";
        if (*parsed > longest_time) return fmt::format("'{}' is more than ten years", text);
        into = *parsed;
        return {};
      },
      "");
}

void add_json(CLI::App* command, bool& json) {
  command->add_flag("--json", json, "One JSON object per line on standard output");
}

void add_session_id(CLI::App* command, std::string& into) {
  command->add_option("id", into, "The session, or the beginning of its id")->required()->type_name("ID");
}

void add_grant_options(CLI::App* command) {
  // Read again in collect_grants(), where their order is known.
  for (const auto& [name, mode, text] : grant_options)
    command->add_option(name, "")
        ->type_name("PATH")
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->description(text);
}

// CLI11 keeps the values of each option apart; the order of a clash ("-2") is the order on the command line.
void collect_grants(const CLI::App* command, std::vector<GrantArgument>& into) {
  std::array<std::size_t, grant_options.size()> next{};
  for (const CLI::Option* option : command->parse_order())
    for (std::size_t kind = 0; kind < grant_options.size(); ++kind)
      if (option->check_name(grant_options[kind].name) && next[kind] < option->results().size())
        into.push_back({option->results()[next[kind]++], grant_options[kind].mode});
}

tl::unexpected<Error> usage_error(std::string message, const CLI::App* command) {
  std::string name = command && command->get_parent() ? command->get_name() : std::string();
  for (auto* parent = command ? command->get_parent() : nullptr; parent && parent->get_parent();
       parent = parent->get_parent())
    name = parent->get_name() + " " + name;
  return fail(ErrorCode::invalid_argument, std::move(message),
              name.empty() ? "see: anchorhold --help" : fmt::format("see: anchorhold {} --help", name));
}

const CLI::App* deepest(const CLI::App* app) {
  auto chosen = app->get_subcommands();
  return chosen.empty() ? app : deepest(chosen.front());
}

Status refuse_empty(const CLI::App* command) {
  for (const auto* option : command->get_options())
    for (const auto& value : option->results())
      if (value.empty()) return usage_error(fmt::format("{} is empty", option->get_name()), command);
  return {};
}

std::vector<std::string> with_empty_values(std::vector<std::string>::const_iterator begin,
                                           std::vector<std::string>::const_iterator end) {
  std::vector<std::string> words;
  for (auto word = begin; word != end; ++word) {
    bool empty = word->starts_with("--") && word->find('=') == word->size() - 1;
    words.push_back(empty ? word->substr(0, word->size() - 1) : *word);
    if (empty) words.emplace_back();
  }
  return words;
}

Status check_model(const std::string& model, const CLI::App* command) {
  if (model.empty()) return {};
  std::size_t colon = model.find(':');
  std::string kind = model.substr(0, colon);
  if ((kind == "anthropic" || kind == "openai" || kind == "scripted") && colon != std::string::npos &&
      colon + 1 < model.size())
    return {};
  return usage_error(fmt::format("--model is anthropic:NAME, openai:NAME or scripted:FILE, not '{}'", model),
                     command);
}

}  // namespace anchorhold::cli
