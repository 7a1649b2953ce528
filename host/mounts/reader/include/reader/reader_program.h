// The reader as a program: mounts/programs.h says how it is started.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "mounts/mode.h"
#include "mounts/report.h"
#include "reader/owners.h"

namespace anchorhold::mounts {

struct ReaderArguments {
  std::string name;
  Mode mode = Mode::ro;
  std::string only_file;
  std::vector<std::string> hidden;
  bool watch = false;
  bool allow_weak = false;
};

// What the reader of a sealed process works with. Made before sealing, run after.
class ReaderProgram {
 public:
  // Takes over the descriptors of mounts/programs.h, and seals the process.
  static Result<ReaderProgram> seal(const ReaderArguments& arguments);
  // Serves one front end until it goes. An error with invalid_argument is what the guest or the front end
  // did.
  Status run();
  Reporter& reports() { return *reports_; }

 private:
  ReaderProgram() = default;
  ReaderArguments arguments_;
  Owners owners_ = Owners::current();
  std::unique_ptr<Reporter> reports_;
  UniqueFd listener_;
  UniqueFd root_;
  UniqueFd own_descriptors_;
  UniqueFd keeper_;
  UniqueFd watch_;
  UniqueFd events_;
};

}  // namespace anchorhold::mounts
