#include "boot_words.h"

#include <charconv>
#include <fmt/format.h>
#include <utility>

namespace anchorhold::guest {
namespace {

constexpr std::string_view prefix = "anchorhold.";

// Takes the next word off the front; quotes are dropped from the word.
std::string next_word(std::string_view& rest) {
  std::string word;
  bool quoted = false;
  std::size_t i = 0;
  for (; i < rest.size(); ++i) {
    char c = rest[i];
    if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && (c == ' ' || c == '\t' || c == '\n')) {
      break;
    } else {
      word.push_back(c);
    }
  }
  rest.remove_prefix(i);
  return word;
}

Status take(BootWords& words, std::string_view name, std::string_view value) {
  if (name == "root") {
    if (!value.starts_with("/dev/") || value.find('\0') != value.npos || value.find("..") != value.npos)
      return fail(ErrorCode::invalid_argument, fmt::format("anchorhold.root={} is not a device", value));
    words.root = value;
    return {};
  }
  if (name == "scratch") {
    std::uint64_t bytes = 0;
    auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), bytes);
    if (error != std::errc() || end != value.data() + value.size() || bytes == 0)
      return fail(ErrorCode::invalid_argument,
                  fmt::format("anchorhold.scratch={} is not a number of bytes", value));
    words.scratch_bytes = bytes;
    return {};
  }
  return fail(ErrorCode::invalid_argument,
              fmt::format("this agent does not know the word anchorhold.{}", name));
}

}  // namespace

Result<BootWords> parse_boot_words(std::string_view rest) {
  BootWords words;
  while (!rest.empty()) {
    if (rest.front() == ' ' || rest.front() == '\t' || rest.front() == '\n') {
      rest.remove_prefix(1);
      continue;
    }
    std::string word = next_word(rest);
    // What follows " -- " is for init's own arguments.
    if (word == "--") break;
    if (!word.starts_with(prefix)) continue;
    std::string_view body = std::string_view(word).substr(prefix.size());
    auto equals = body.find('=');
    std::string_view value = equals == body.npos ? std::string_view() : body.substr(equals + 1);
    ANCHORHOLD_CHECK(take(words, body.substr(0, equals), value));
  }
  return words;
}

}  // namespace anchorhold::guest
