#include "signals.h"

#include <array>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

namespace anchorhold::cli {
namespace {

constexpr std::array taken{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH};
constexpr int end_of_service = SIGUSR2;

sigset_t taken_set() {
  sigset_t set;
  sigemptyset(&set);
  for (int number : taken) sigaddset(&set, number);
  sigaddset(&set, end_of_service);
  return set;
}

// What would have happened without us.
void end_by(int number) {
  signal(number, SIG_DFL);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, number);
  raise(number);
  pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
  _exit(128 + number);
}

}  // namespace

Signals::Signals() {
  sigset_t set = taken_set();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
  thread_ = std::thread([this] { serve(); });
}

Signals::~Signals() {
  pthread_kill(thread_.native_handle(), end_of_service);
  thread_.join();
}

void Signals::set_handler(Handler handler) {
  std::lock_guard lock(mutex_);
  handler_ = std::move(handler);
}

void Signals::serve() {
  sigset_t set = taken_set();
  for (;;) {
    siginfo_t info{};
    int number = sigwaitinfo(&set, &info);
    if (number < 0) continue;
    if (number == end_of_service) {
      if (info.si_pid == getpid()) return;
      continue;
    }
    std::lock_guard lock(mutex_);
    if (handler_) {
      handler_(number);
    } else if (number != SIGWINCH) {
      end_by(number);
    }
  }
}

}  // namespace anchorhold::cli
