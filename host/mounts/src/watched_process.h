// One sealed process under watch: a thread starts it (so that it dies with the host: PR_SET_PDEATHSIG follows
// the thread that forked), waits until it is ready, passes its reports on, and says why it ended.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/process.h"
#include "mounts/share.h"

namespace anchorhold::mounts {

class WatchedProcess {
 public:
  struct Spec {
    ShareProcess process;
    std::string grant;
    SpawnSpec spawn;
    int reports_fd;  // the number the program expects its report socket at
    std::function<void(const ShareNotice&)> on_notice;
  };
  // Returns when the process reported that it is ready. The descriptors in spawn must stay open until then.
  static Result<std::unique_ptr<WatchedProcess>> start(Spec spec);
  // Lets it end by itself for a moment (its clients are gone), then kills it; no notice.
  ~WatchedProcess();

  pid_t pid() const;
  // To a question it asked. Safe from any thread; one that is no longer asked is let be.
  void answer(const Answered& answer);

 private:
  struct State;
  explicit WatchedProcess(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

}  // namespace anchorhold::mounts
