// File name patterns: * and ? within one component, ** for any number of components, [a-z], [!a-z], {a,b},
// \ to quote. Matching takes time proportional to pattern times path, whatever the pattern.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace anchorhold::agent {

class Glob {
 public:
  // A pattern without '/' matches the last component at any depth. invalid_argument: unclosed bracket or
  // brace, or too many alternatives.
  static Result<Glob> parse(std::string_view pattern);
  // `path` is relative, without a leading '/'.
  bool matches(std::string_view path) const;

 private:
  // One alternative of the braces, split at '/'.
  using Components = std::vector<std::string>;
  std::vector<Components> alternatives_;
};

}  // namespace anchorhold::agent
