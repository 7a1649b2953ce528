#include "policy/git_grant.h"

#include <algorithm>

namespace anchorhold::policy {
namespace {

bool matches(std::string_view pattern, std::string_view text) {
  if (pattern.ends_with('*')) return text.starts_with(pattern.substr(0, pattern.size() - 1));
  return text == pattern;
}

bool any_matches(const std::vector<std::string>& patterns, std::string_view text) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return matches(pattern, text); });
}

template <typename Question>
bool any_grant(const std::vector<GitGrant>& grants, std::string_view repository, Question question) {
  return std::any_of(grants.begin(), grants.end(), [&](const GitGrant& grant) {
    return grant.names_repository(repository) && question(grant);
  });
}

// Segments between slashes, each of which has to satisfy this.
template <typename Check>
bool each_segment(std::string_view path, Check check) {
  for (;;) {
    auto slash = path.find('/');
    if (!check(path.substr(0, slash))) return false;
    if (slash == std::string_view::npos) return true;
    path.remove_prefix(slash + 1);
  }
}

}  // namespace

std::string_view to_string(GitOperation operation) {
  switch (operation) {
    case GitOperation::fetch:
      return "fetch";
    case GitOperation::push:
      return "push";
    case GitOperation::deletes:
      return "delete";
    case GitOperation::lfs:
      return "lfs";
  }
  return "unknown";
}

bool GitGrant::names_repository(std::string_view repository) const {
  return any_matches(repositories, repository);
}

bool GitGrant::allows(GitOperation operation) const {
  return std::find(operations.begin(), operations.end(), operation) != operations.end();
}

bool GitGrant::names_ref(std::string_view ref) const {
  return any_matches(refs, ref);
}

bool GitGrant::names_option(std::string_view option) const {
  return any_matches(push_options, option);
}

bool git_allows(const std::vector<GitGrant>& grants, std::string_view repository, GitOperation operation) {
  return any_grant(grants, repository, [&](const GitGrant& grant) { return grant.allows(operation); });
}

bool git_allows_ref(const std::vector<GitGrant>& grants, std::string_view repository, GitOperation operation,
                    std::string_view ref) {
  return any_grant(grants, repository,
                   [&](const GitGrant& grant) { return grant.allows(operation) && grant.names_ref(ref); });
}

bool git_allows_option(const std::vector<GitGrant>& grants, std::string_view repository,
                       std::string_view option) {
  return any_grant(grants, repository, [&](const GitGrant& grant) {
    return grant.allows(GitOperation::push) && grant.names_option(option);
  });
}

std::string git_refs_of(const std::vector<GitGrant>& grants, std::string_view repository) {
  std::string names;
  for (const GitGrant& grant : grants)
    if (grant.names_repository(repository) && grant.allows(GitOperation::push))
      for (const auto& ref : grant.refs) names += (names.empty() ? "" : ", ") + ref;
  return names;
}

std::string canonical_repository(std::string_view path) {
  if (path.ends_with(".git")) path.remove_suffix(4);
  bool plain = each_segment(path, [](std::string_view segment) {
    return !segment.empty() && segment != "." && segment != ".." && segment != ".git";
  });
  return plain ? std::string(path) : std::string();
}

bool is_ref_name(std::string_view ref) {
  if (!ref.starts_with("refs/") || ref.ends_with('.')) return false;
  for (char c : ref)
    if (static_cast<unsigned char>(c) <= 0x20 || c == 0x7f ||
        std::string_view("~^:?*[\\").find(c) != std::string_view::npos)
      return false;
  if (ref.find("..") != std::string_view::npos || ref.find("@{") != std::string_view::npos) return false;
  return each_segment(ref, [](std::string_view segment) {
    return !segment.empty() && segment[0] != '.' && !segment.ends_with(".lock");
  });
}

}  // namespace anchorhold::policy
