// Asks the person at the terminal, beside whatever a command or a task shows there.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>

#include "console.h"
#include "session/asker.h"

namespace anchorhold::cli {

// Safe from any thread.
class TerminalAsker : public session::Asker {
 public:
  explicit TerminalAsker(Console& console) : console_(console) {}

  std::optional<session::Settled> ask(const session::Question& question, std::stop_token stop) override;
  void settled(const session::Question& question, const session::Settled& end) override;

  // From now on also without a terminal: a question is told, and its answer comes from another program.
  void wait_for_answers() { waits_ = true; }
  // Whether a person could be asked now.
  bool can_ask() const;

  // Whoever reads the terminal stops for as long as `paused`; called on the asking thread. Empty: nobody
  // does; a question that is shown ends with no, and the terminal is as it was when this returns.
  void while_asking(std::function<void(bool paused)> pause);
  // Held while a question is on the terminal; for other questions than these.
  std::timed_mutex& terminal() { return terminal_; }

 private:
  void tell(const session::Question& question);

  Console& console_;
  std::atomic<bool> waits_ = false;
  std::timed_mutex terminal_;
  std::mutex stop_mutex_;
  std::stop_source stop_;   // of the question that is shown
  std::timed_mutex mutex_;  // held while one is shown
  std::function<void(bool)> pause_;
};

}  // namespace anchorhold::cli
