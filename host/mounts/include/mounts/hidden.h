// Names that do not exist for the guest: what people keep secrets in. One place for the reader, the keeper
// and the host's own file tools. A hidden name cannot be seen, opened, created, or reached by link or rename,
// at any depth.
//
// Names are compared after Unicode compatibility normalisation and case folding with ignorable code points
// left out, so that no case variant or normal form that some file system takes for the same name gets
// through. A name that is not UTF-8 is compared byte for byte, without regard to the case of ASCII letters.
//
// What a name cannot show: a second, harmless name for the same file (a hard link or a symlink the person
// made) stays visible. It is the name that is hidden, not the content.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace anchorhold::mounts {

// Immutable; safe from any thread.
class HiddenNames {
 public:
  // The list every grant has unless policy says otherwise.
  static const HiddenNames& standard();
  // Patterns of one name each; '*' stands for any bytes, also none. A pattern that begins with '!' makes an
  // exception
  // ("!cacert.pem"). Refuses patterns that are empty, hold '/' or NUL, or would hide everything.
  static Result<HiddenNames> create(std::vector<std::string> patterns);

  bool hides(std::string_view name) const;
  // As they were given, for handing on to another process.
  const std::vector<std::string>& patterns() const { return patterns_; }

 private:
  // Folded patterns by shape: nearly every name is asked about many times, and nearly every pattern is one of
  // these.
  struct PatternSet {
    std::vector<std::string> exact, beginnings, endings, others;  // "a", "a*", "*a", the rest
    void add(std::string folded);
    bool fits(std::string_view folded_name) const;
  };

  HiddenNames() = default;
  std::vector<std::string> patterns_;
  PatternSet hidden_;
  PatternSet exceptions_;
};

// The form in which names are compared.
std::string fold_name(std::string_view name);

}  // namespace anchorhold::mounts
