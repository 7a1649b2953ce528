#include "glob.h"

#include <fmt/format.h>

namespace anchorhold::agent {
namespace {

constexpr std::size_t max_alternatives = 256;
constexpr std::size_t max_pattern_bytes = 4096;

// The end of the bracket expression that begins at `at`, just after ']'; npos when it is not closed.
std::size_t bracket_end(std::string_view text, std::size_t at) {
  std::size_t i = at + 1;
  if (i < text.size() && (text[i] == '!' || text[i] == '^')) ++i;
  if (i < text.size() && text[i] == ']') ++i;
  for (; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == ']') {
      return i + 1;
    }
  }
  return text.npos;
}

bool in_bracket(std::string_view expression, char c) {
  std::size_t i = 1;
  bool negated = expression[i] == '!' || expression[i] == '^';
  if (negated) ++i;
  bool found = false;
  std::size_t last = expression.size() - 1;
  auto one = [&] {
    if (expression[i] == '\\' && i + 1 < last) ++i;
    return static_cast<unsigned char>(expression[i++]);
  };
  while (i < last) {
    unsigned char low = one();
    unsigned char high = low;
    if (i + 1 < last && expression[i] == '-') {
      ++i;
      high = one();
    }
    found |= low <= static_cast<unsigned char>(c) && static_cast<unsigned char>(c) <= high;
  }
  return found != negated;
}

// One component. Backtracks to the latest star only, which is enough for patterns of stars and single
// characters.
bool component_matches(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = pattern.npos, star_text = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_text = t;
      continue;
    }
    std::size_t width = 1;
    bool same = false;
    if (p < pattern.size()) {
      if (pattern[p] == '?') {
        same = true;
      } else if (pattern[p] == '[') {
        width = bracket_end(pattern, p) - p;
        same = in_bracket(pattern.substr(p, width), text[t]);
      } else if (pattern[p] == '\\' && p + 1 < pattern.size()) {
        width = 2;
        same = pattern[p + 1] == text[t];
      } else {
        same = pattern[p] == text[t];
      }
    }
    if (same) {
      p += width;
      ++t;
    } else if (star != pattern.npos) {
      p = star + 1;
      t = ++star_text;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::vector<std::string_view> split(std::string_view path) {
  std::vector<std::string_view> parts;
  while (!path.empty()) {
    auto slash = path.find('/');
    if (slash != 0) parts.push_back(path.substr(0, slash));
    path.remove_prefix(slash == path.npos ? path.size() : slash + 1);
  }
  return parts;
}

// The same method one level up: ** is the star.
bool components_match(const std::vector<std::string>& pattern, const std::vector<std::string_view>& path) {
  constexpr std::size_t none = SIZE_MAX;
  std::size_t p = 0, t = 0, star = none, star_path = 0;
  while (t < path.size()) {
    if (p < pattern.size() && pattern[p] == "**") {
      star = p++;
      star_path = t;
    } else if (p < pattern.size() && component_matches(pattern[p], path[t])) {
      ++p;
      ++t;
    } else if (star != none) {
      p = star + 1;
      t = ++star_path;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == "**") ++p;
  return p == pattern.size();
}

struct Braces {
  std::size_t open, close;
  std::vector<std::size_t> commas;
};

// The first outermost braces. Nothing found: open is npos.
Result<Braces> find_braces(std::string_view pattern) {
  Braces braces{pattern.npos, pattern.npos, {}};
  std::size_t depth = 0;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    char c = pattern[i];
    if (c == '\\') {
      ++i;
    } else if (c == '[') {
      auto end = bracket_end(pattern, i);
      if (end == pattern.npos) return fail(ErrorCode::invalid_argument, "the pattern has a [ without ]");
      i = end - 1;
    } else if (c == '{') {
      if (depth++ == 0) braces.open = i;
    } else if (c == '}' && depth > 0) {
      if (--depth == 0) {
        braces.close = i;
        return braces;
      }
    } else if (c == ',' && depth == 1) {
      braces.commas.push_back(i);
    }
  }
  if (depth > 0) return fail(ErrorCode::invalid_argument, "the pattern has a { without }");
  return braces;
}

// Depth-first with an own stack: braces may be nested.
Result<std::vector<std::string>> expand(std::string pattern) {
  std::vector<std::string> done;
  std::vector<std::string> open{std::move(pattern)};
  while (!open.empty()) {
    std::string current = std::move(open.back());
    open.pop_back();
    Braces braces = ANCHORHOLD_TRY(find_braces(current));
    if (braces.open == current.npos) {
      done.push_back(std::move(current));
    } else {
      std::size_t begin = braces.open + 1;
      braces.commas.push_back(braces.close);
      for (std::size_t comma : braces.commas) {
        open.push_back(current.substr(0, braces.open) + current.substr(begin, comma - begin) +
                       current.substr(braces.close + 1));
        begin = comma + 1;
      }
    }
    if (done.size() + open.size() > max_alternatives)
      return fail(ErrorCode::invalid_argument,
                  fmt::format("the pattern has more than {} alternatives", max_alternatives));
  }
  return done;
}

}  // namespace

Result<Glob> Glob::parse(std::string_view pattern) {
  if (pattern.size() > max_pattern_bytes) return fail(ErrorCode::invalid_argument, "the pattern is too long");
  while (pattern.starts_with("./")) pattern.remove_prefix(2);
  if (pattern.empty()) return fail(ErrorCode::invalid_argument, "the pattern is empty");
  auto alternatives = ANCHORHOLD_TRY(expand(std::string(pattern)));
  Glob glob;
  for (const std::string& alternative : alternatives) {
    Components components;
    if (alternative.find('/') == alternative.npos) components.emplace_back("**");
    for (std::string_view part : split(alternative)) components.emplace_back(part);
    glob.alternatives_.push_back(std::move(components));
  }
  return glob;
}

bool Glob::matches(std::string_view path) const {
  auto parts = split(path);
  for (const auto& components : alternatives_) {
    if (components_match(components, parts)) return true;
  }
  return false;
}

}  // namespace anchorhold::agent
