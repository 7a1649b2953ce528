// What a rule grants of Git on its host: which repositories, what may be done with them, and which refs a
// push may change. A rule with such grants lets nothing else through but Git. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace anchorhold::policy {

enum class GitOperation {
  fetch,    // clone, fetch, ls-remote
  push,     // creates and updates the refs that are granted; whether an update is forced cannot be seen
  deletes,  // a push may delete them, too
  lfs,      // large files: their batch and lock interfaces and the objects below the repository, both ways
};
std::string_view to_string(GitOperation operation);  // "fetch", "push", "delete", "lfs"

struct GitGrant {
  // "team/app" (app.git is the same one), "team/*": '*' stands for any characters, at the end only. Compared
  // letter by letter, as cases may or may not matter to the server.
  std::vector<std::string> repositories;
  std::vector<GitOperation> operations = {GitOperation::fetch};
  std::vector<std::string> refs;  // "refs/heads/agent/*"; none: no push
  std::vector<std::string>
      push_options;  // "ci.skip", "merge_request.*"; none: a push with options is refused

  bool names_repository(std::string_view repository) const;
  bool allows(GitOperation operation) const;
  bool names_ref(std::string_view ref) const;
  bool names_option(std::string_view option) const;
};

// Each is answered by any one grant that names the repository; grants do not add up within one question.
bool git_allows(const std::vector<GitGrant>& grants, std::string_view repository, GitOperation operation);
bool git_allows_ref(const std::vector<GitGrant>& grants, std::string_view repository, GitOperation operation,
                    std::string_view ref);
bool git_allows_option(const std::vector<GitGrant>& grants, std::string_view repository,
                       std::string_view option);
// The refs that a push to this repository may change, for whoever is told that another one is not among them.
std::string git_refs_of(const std::vector<GitGrant>& grants, std::string_view repository);

// Without slashes around it and without one ".git" at its end; empty when it is none (empty or dot segments).
std::string canonical_repository(std::string_view path);
// As git-check-ref-format(1) has it, and below refs/.
bool is_ref_name(std::string_view ref);

}  // namespace anchorhold::policy
