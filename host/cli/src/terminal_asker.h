// Asks the person at the terminal, beside whatever a command or a task shows there.
#pragma once

#include <functional>
#include <mutex>

#include "console.h"
#include "session/asker.h"

namespace anchorhold::cli {

// Safe from any thread.
class TerminalAsker : public session::Asker {
 public:
  explicit TerminalAsker(Console& console) : console_(console) {}

  session::Approval ask(const session::Question& question, std::stop_token stop) override;

  // Whether a person could be asked now.
  bool can_ask() const;

  // Whoever reads the terminal stops for as long as `paused`; called on the asking thread. Empty: nobody does;
  // a question that is shown ends with no, and the terminal is as it was when this returns.
  void while_asking(std::function<void(bool paused)> pause);
  // Held while a question is on the terminal; for other questions than these.
  std::timed_mutex& terminal() { return terminal_; }

 private:
  Console& console_;
  std::timed_mutex terminal_;
  std::mutex stop_mutex_;
  std::stop_source stop_;   // of the question that is shown
  std::timed_mutex mutex_;  // held while one is shown
  std::function<void(bool)> pause_;
};

}  // namespace anchorhold::cli
