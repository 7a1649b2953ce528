// The mode table (docs/mounts.md) as one pure function: what a mode says to an operation, given facts about
// the objects.
#pragma once

#include <string_view>

#include "mounts/mode.h"

namespace anchorhold::mounts {

enum class Operation {
  create,          // a new file, folder or symlink where there is nothing
  link,            // one more name for an object
  write,           // open for writing, truncate, reshape: the content may change from now on
  set_attributes,  // mode, times, user xattrs
  remove,          // unlink, rmdir
  rename,          // also over a target
  exchange,        // two names swapped
};

// What there is to know about one object before it is changed.
struct Subject {
  bool exists = false;
  // There when the session began, or not known to be the session's own.
  bool pre_existing = false;
  // Made by the session, but it took the place of something pre-existing: its name must not vanish either.
  bool stands_for_pre_existing = false;
};

struct Facts {
  Subject object;
  Subject target;  // rename: what is at the new name; exchange: the other one
};

struct Decision {
  int error = 0;               // 0: do it
  std::string_view reason;     // for the report
  bool keep_object = false;    // its content (and everything else of it) is kept before the change
  bool record_object = false;  // its attributes are kept
  bool keep_target = false;
  bool record_target = false;
  bool target_passes_on =
      false;  // what takes the target's place stands for something pre-existing from now on
};

Decision decide(Mode mode, Operation operation, const Facts& facts);

}  // namespace anchorhold::mounts
