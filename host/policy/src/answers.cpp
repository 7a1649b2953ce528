#include "policy/answers.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <functional>
#include <optional>

#include "base/files.h"
#include "policy/configuration.h"

namespace anchorhold::policy {
namespace {

constexpr std::string_view preamble =
    "# What was answered \"always\" or \"never\" when a session asked. Anchorhold writes this file:\n"
    "# anchorhold egress rules, anchorhold egress forget. Rules of your own belong in config.toml.\n";

// TOML 1.0, basic strings.
std::string in_quotes(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      out += {'\\', c};
    else if (code < 0x20 || code == 0x7f)
      out += fmt::format("\\u{:04x}", code);
    else
      out += c;
  }
  return out + '"';
}

std::string list_of(const std::vector<std::string>& texts) {
  std::string out;
  for (const auto& text : texts) out += (out.empty() ? "" : ", ") + in_quotes(text);
  return "[" + out + "]";
}

std::string git_of(const GitGrant& grant) {
  std::vector<std::string> operations;
  for (auto operation : grant.operations) operations.emplace_back(to_string(operation));
  std::string out =
      fmt::format("repositories = {}, operations = {}", list_of(grant.repositories), list_of(operations));
  if (!grant.refs.empty()) out += ", refs = " + list_of(grant.refs);
  if (!grant.push_options.empty()) out += ", push_options = " + list_of(grant.push_options);
  return "{ " + out + " }";
}

// The number after the colon of a source of the file.
std::size_t line_of(const EgressRule& rule) {
  std::size_t line = 0;
  std::string_view digits = std::string_view(rule.source).substr(rule.source.rfind(':') + 1);
  std::from_chars(digits.data(), digits.data() + digits.size(), line);
  return line;
}

bool same_destination(const EgressRule& a, const EgressRule& b) {
  return a.host == b.host && a.ports == b.ports;
}

std::string_view trimmed(std::string_view line) {
  auto begin = line.find_first_not_of(" \t\r");
  return begin == std::string_view::npos ? std::string_view() : line.substr(begin);
}

// Takes the rules out of the text, each with the comment right above it.
Result<std::string> cut_out(std::string_view text, const std::vector<EgressRule>& all,
                            const std::function<bool(const EgressRule&)>& goes) {
  std::vector<std::string_view> lines;
  for (std::string_view rest = text; !rest.empty();) {
    auto end = std::min(rest.find('\n'), rest.size() - 1);
    lines.push_back(rest.substr(0, end + 1));
    rest.remove_prefix(end + 1);
  }
  std::vector<bool> gone(lines.size());
  std::size_t staying = 0;
  for (const auto& rule : all) {
    if (!goes(rule)) {
      ++staying;
      continue;
    }
    std::size_t first = line_of(rule) - 1, end = first + 1;
    while (first > 0 && trimmed(lines[first - 1]).starts_with('#')) --first;
    while (end < lines.size() && !trimmed(lines[end]).starts_with('[')) ++end;
    // What stands right above the next rule is that one's.
    while (end > line_of(rule) && end < lines.size() && trimmed(lines[end - 1]).starts_with('#')) --end;
    std::fill(gone.begin() + static_cast<std::ptrdiff_t>(first),
              gone.begin() + static_cast<std::ptrdiff_t>(end), true);
  }
  std::string left;
  for (std::size_t i = 0; i < lines.size(); ++i)
    if (!gone[i]) left += lines[i];
  // Written by hand in another way, perhaps: what is left must be what should be left.
  auto parsed = parse_answers(left);
  bool right = parsed && parsed->size() == staying && std::none_of(parsed->begin(), parsed->end(), goes);
  if (!right)
    return fail(ErrorCode::failed_precondition,
                fmt::format("{} is written in a way that its rules cannot be taken out of it", answers_file),
                "edit it by hand");
  return left;
}

Result<std::filesystem::path> file_in(const std::filesystem::path& folder) {
  const auto path = folder / answers_file;
  std::error_code error;
  if (!std::filesystem::is_symlink(path, error)) return path;
  auto target = std::filesystem::canonical(path, error);
  if (error)
    return fail(ErrorCode::not_found, fmt::format("{} leads to nothing that can be written", path.string()));
  return target;
}

Result<std::string> text_in(const std::filesystem::path& file) {
  auto text = read_file(file, max_configuration_bytes);
  if (!text && text.error().code == ErrorCode::not_found) return std::string();
  return text;
}

Result<FileLock> lock_in(const std::filesystem::path& folder) {
  return FileLock::acquire(folder / ".answers.lock", FileLock::Wait::yes);
}

}  // namespace

Result<std::vector<EgressRule>> parse_answers(std::string_view text, std::string_view name) {
  auto configuration = ANCHORHOLD_TRY(parse_configuration(text, name));
  EgressConfiguration usual;
  const auto& egress = configuration.egress;
  if (egress.unnamed != usual.unnamed || egress.ask_timeout != usual.ask_timeout || !egress.extra_ca.empty())
    return fail(ErrorCode::invalid_argument, fmt::format("{} may only hold rules", name),
                "what else is to be configured belongs in config.toml");
  return std::move(configuration.egress.rules);
}

std::string to_toml(const EgressRule& rule) {
  std::string ports;
  for (auto port : rule.ports) ports += fmt::format("{}{}", ports.empty() ? "" : ", ", port);
  std::string text = fmt::format("[[egress.rule]]\nhost = {}\nports = [{}]\naction = {}\n",
                                 in_quotes(rule.host.text()), ports, in_quotes(to_string(rule.action)));
  if (!rule.methods.empty()) text += fmt::format("methods = {}\n", list_of(rule.methods));
  if (!rule.paths.empty()) text += fmt::format("paths = {}\n", list_of(rule.paths));
  if (!rule.credential.empty()) text += fmt::format("credential = {}\n", in_quotes(rule.credential));
  if (!rule.deny_headers.empty()) text += fmt::format("deny_headers = {}\n", list_of(rule.deny_headers));
  if (!rule.deny_json_fields.empty())
    text += fmt::format("deny_json_fields = {}\n", list_of(rule.deny_json_fields));
  std::string grants;
  for (const auto& grant : rule.git) grants += (grants.empty() ? "" : ", ") + git_of(grant);
  if (!grants.empty()) text += fmt::format("git = [{}]\n", grants);
  if (rule.max_upload) text += fmt::format("max_upload = \"{}\"\n", rule.max_upload->bytes);
  if (rule.tunnel_only) text += "tunnel_only = true\n";
  return text;
}

Result<std::string> with_answer(std::string_view text, const EgressRule& answer, std::string_view comment) {
  auto all = ANCHORHOLD_TRY(parse_answers(text));
  auto replaced = [&](const EgressRule& rule) { return same_destination(rule, answer); };
  std::string left = ANCHORHOLD_TRY(cut_out(text, all, replaced));
  if (left.empty()) left = preamble;
  if (!left.ends_with('\n')) left += '\n';
  std::string line(comment);
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  left += fmt::format("\n# {}\n{}", line, to_toml(answer));
  ANCHORHOLD_TRY(parse_answers(left));
  return left;
}

Result<Forgotten> without_answers(std::string_view text, std::string_view which) {
  auto all = ANCHORHOLD_TRY(parse_answers(text));
  auto destination = parse_rule_argument(which, EgressAction::allow);
  auto whole = HostPattern::parse(which);
  auto meant = [&](const EgressRule& rule) {
    if (rule.source == which) return true;
    if (whole) return rule.host == *whole;
    return destination && rule.host == destination->host && rule.ports == destination->ports;
  };
  Forgotten forgotten;
  std::copy_if(all.begin(), all.end(), std::back_inserter(forgotten.rules), meant);
  if (forgotten.rules.empty())
    return fail(ErrorCode::not_found, fmt::format("no kept answer is for '{}'", which),
                "see which there are: anchorhold egress rules");
  auto goes = [&](const EgressRule& rule) {
    return std::any_of(forgotten.rules.begin(), forgotten.rules.end(), [&](const EgressRule& gone) {
      return gone.host == rule.host && gone.ports == rule.ports && gone.action == rule.action;
    });
  };
  forgotten.text = ANCHORHOLD_TRY(cut_out(text, all, goes));
  return forgotten;
}

Status keep_answer(const std::filesystem::path& folder, const EgressRule& answer, std::string_view comment) {
  auto lock = ANCHORHOLD_TRY(lock_in(folder));
  auto file = ANCHORHOLD_TRY(file_in(folder));
  std::string text = ANCHORHOLD_TRY(text_in(file));
  std::string longer = ANCHORHOLD_TRY(with_answer(text, answer, comment));
  return write_file_atomic(file, longer);
}

Result<std::vector<EgressRule>> forget_answers(const std::filesystem::path& folder, std::string_view which) {
  auto lock = ANCHORHOLD_TRY(lock_in(folder));
  auto file = ANCHORHOLD_TRY(file_in(folder));
  std::string text = ANCHORHOLD_TRY(text_in(file));
  auto forgotten = ANCHORHOLD_TRY(without_answers(text, which));
  ANCHORHOLD_CHECK(write_file_atomic(file, forgotten.text));
  return std::move(forgotten.rules);
}

}  // namespace anchorhold::policy
