// The questions of a session that wait for a person: any number at once, each with its own time. Whoever
// answers first decides.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "session/asker.h"

namespace anchorhold::session {

// Safe from any thread.
class Questions {
 public:
  struct Pending {
    Question question;
    std::chrono::milliseconds left{0};
  };
  virtual ~Questions() = default;

  virtual std::vector<Pending> pending() const = 0;  // oldest first
  // Returns when the answer counts; gives back what it became (deny when it could not be recorded).
  // not_found: there is no such question; failed_precondition: it has its answer, the message says which and
  // whose; invalid_argument: that cannot be answered to it. `how` ends a sentence: "by another program".
  virtual Result<Approval> answer(std::uint64_t number, Approval answer, std::string_view how) = 0;
  // Called after each change of the list, on any thread; must not block, nor call add_listener or
  // remove_listener. Not any more when remove_listener has returned.
  virtual std::uint64_t add_listener(std::function<void()> changed) = 0;
  virtual void remove_listener(std::uint64_t listener) = 0;
};

}  // namespace anchorhold::session
