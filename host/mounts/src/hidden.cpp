#include "mounts/hidden.h"

#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
#include <memory>
#include <utf8proc.h>

namespace anchorhold::mounts {
namespace {

// Where people and programs keep keys, tokens and passwords.
const char* const standard_patterns[] = {
    // Settings with secrets in them.
    ".env*",
    // Keys and certificates with keys.
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "*.ppk",
    "*.asc.key",
    "id_*",
    // Key stores and password safes.
    "*.jks",
    "*.keystore",
    "*.kdb",
    "*.kdbx",
    "*.keychain",
    "*.keychain-db",
    "login.keyring",
    // Folders of credentials.
    ".ssh",
    ".aws",
    ".gnupg",
    ".azure",
    ".kube",
    ".docker",
    ".password-store",
    // Files of credentials.
    ".netrc",
    "_netrc",
    ".npmrc",
    ".pypirc",
    ".pgpass",
    ".my.cnf",
    ".git-credentials",
    ".htpasswd",
    // The public certificates that Python packages ship (certifi, pip): no secret, and pip cannot live
    // without them.
    "!cacert.pem",
};

// '*' stands for any bytes. Linear in practice: only the last star is ever tried again.
bool matches(std::string_view pattern, std::string_view name) {
  std::size_t p = 0, n = 0, star = std::string_view::npos, mark = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::string lower_ascii(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

}  // namespace

std::string fold_name(std::string_view name) {
  if (is_ascii(name)) return lower_ascii(name);
  utf8proc_uint8_t* mapped = nullptr;
  auto options = static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_COMPAT | UTF8PROC_CASEFOLD |
                                                UTF8PROC_IGNORE | UTF8PROC_STABLE);
  auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(name.data()),
                           static_cast<utf8proc_ssize_t>(name.size()), &mapped, options);
  std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> owned(mapped, std::free);
  if (size < 0) return lower_ascii(name);
  return std::string(reinterpret_cast<const char*>(owned.get()), static_cast<std::size_t>(size));
}

const HiddenNames& HiddenNames::standard() {
  static const HiddenNames names = [] {
    auto made = create(std::vector<std::string>(std::begin(standard_patterns), std::end(standard_patterns)));
    if (!made) std::abort();
    return std::move(*made);
  }();
  return names;
}

Result<HiddenNames> HiddenNames::create(std::vector<std::string> patterns) {
  HiddenNames names;
  for (const auto& pattern : patterns) {
    bool exception = pattern.starts_with('!');
    std::string folded = fold_name(std::string_view(pattern).substr(exception ? 1 : 0));
    if (folded.find_first_not_of('*') == std::string::npos || folded.find('/') != std::string::npos ||
        folded.find('\0') != std::string::npos)
      return fail(ErrorCode::invalid_argument,
                  fmt::format("'{}' cannot be a pattern of hidden names", pattern),
                  "a pattern is one name, such as '.env*' or '*.pem'");
    (exception ? names.exceptions_ : names.hidden_).add(std::move(folded));
  }
  names.patterns_ = std::move(patterns);
  return names;
}

void HiddenNames::PatternSet::add(std::string folded) {
  auto stars = std::count(folded.begin(), folded.end(), '*');
  if (stars == 0) {
    exact.push_back(std::move(folded));
  } else if (stars == 1 && folded.back() == '*') {
    folded.pop_back();
    beginnings.push_back(std::move(folded));
  } else if (stars == 1 && folded.front() == '*') {
    endings.push_back(folded.substr(1));
  } else {
    others.push_back(std::move(folded));
  }
}

bool HiddenNames::PatternSet::fits(std::string_view name) const {
  auto any = [](const std::vector<std::string>& patterns, auto fits_one) {
    return std::any_of(patterns.begin(), patterns.end(), fits_one);
  };
  return any(exact, [&](const std::string& p) { return name == p; }) ||
         any(beginnings, [&](const std::string& p) { return name.starts_with(p); }) ||
         any(endings, [&](const std::string& p) { return name.ends_with(p); }) ||
         any(others, [&](const std::string& p) { return matches(p, name); });
}

bool HiddenNames::hides(std::string_view name) const {
  std::string folded = fold_name(name);
  return hidden_.fits(folded) && !exceptions_.fits(folded);
}

}  // namespace anchorhold::mounts
