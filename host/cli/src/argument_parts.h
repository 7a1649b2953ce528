// What the words of several commands have in common.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/arguments.h"

namespace anchorhold::cli {

inline constexpr const char* wait_for_answers_text =
    "Ask also without a terminal; to be answered with: anchorhold egress answer";

// Longer times do not fit the clocks, which count nanoseconds.
inline constexpr std::chrono::milliseconds longest_time = std::chrono::hours(24 * 3653);
// A limit of no time would end what it limits before it begins.
CLI::Validator limit_validator(std::optional<std::chrono::milliseconds>& into);
void add_json(CLI::App* command, bool& json);
// A command of a command, with --json.
template <typename Command>
CLI::App* add_action(CLI::App* parent, const char* name, const char* text, bool& json, Command& into,
                     typename Command::Action action) {
  auto* sub = parent->add_subcommand(name, text);
  add_json(sub, json);
  sub->callback([&into, action] { into.action = action; });
  return sub;
}
void add_session_id(CLI::App* command, std::string& into);

// --ro, --rw and --rw-no-delete, and afterwards what they named, in the order of the command line.
void add_grant_options(CLI::App* command);
void collect_grants(const CLI::App* command, std::vector<GrantArgument>& into);

Status check_model(const std::string& model, const CLI::App* command);
// Nothing has an empty name, and an unset variable of a script must not stand for all or for what is usual.
Status refuse_empty(const CLI::App* command);
// "--name=" as two words: the library would take the next word for its value.
std::vector<std::string> with_empty_values(std::vector<std::string>::const_iterator begin,
                                           std::vector<std::string>::const_iterator end);
// With the command's own help as the hint.
tl::unexpected<Error> usage_error(std::string message, const CLI::App* command);
const CLI::App* deepest(const CLI::App* app);

}  // namespace anchorhold::cli
