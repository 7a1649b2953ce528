#include "reaper.h"

#include <cerrno>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

namespace anchorhold::guest {

Result<std::unique_ptr<Reaper>> Reaper::create(vsock::EventLoop& loop) {
  std::unique_ptr<Reaper> reaper(new Reaper);
  sigset_t children;
  sigemptyset(&children);
  sigaddset(&children, SIGCHLD);
  reaper->signals_.reset(signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!reaper->signals_) return fail_errno(errno, "signalfd");
  reaper->watch_ = ANCHORHOLD_TRY(loop.watch(reaper->signals_.get(), vsock::ready::readable,
                                             [self = reaper.get()](std::uint32_t) { self->reap(); }));
  return reaper;
}

void Reaper::claim(pid_t pid, Ended ended) {
  --expected_;
  if (pid > 0) {
    if (auto early = unclaimed_.extract(pid); !early.empty()) {
      if (ended) ended(early.mapped());
    } else if (ended) {
      claimed_[pid] = std::move(ended);
    }
  }
  if (expected_ == 0) unclaimed_.clear();
}

void Reaper::reap() {
  signalfd_siginfo info;
  while (read(signals_.get(), &info, sizeof info) > 0) {
  }
  for (;;) {
    ChildEnd end;
    pid_t pid = wait4(-1, &end.status, WNOHANG, &end.usage);
    if (pid < 0 && errno == EINTR) continue;
    if (pid <= 0) return;
    if (auto claimed = claimed_.extract(pid); !claimed.empty()) {
      claimed.mapped()(end);
    } else if (expected_ > 0) {
      unclaimed_[pid] = end;
    }
  }
}

}  // namespace anchorhold::guest
