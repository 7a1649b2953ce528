// Signals as calls on a thread. SIGINT, SIGTERM, SIGHUP, SIGQUIT and SIGWINCH are blocked everywhere from the
// beginning of main, so that no library's thread ever runs a handler, and taken up one by one by the thread
// here.
#pragma once

#include <functional>
#include <mutex>
#include <thread>

namespace anchorhold::cli {

class Signals {
 public:
  using Handler = std::function<void(int number)>;

  // Before any other thread is started.
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  // Until somebody takes them, the ending ones end the process. Called on the thread of the signals; the
  // handler that was there before is not called again once this returned.
  void set_handler(Handler handler);

 private:
  void serve();

  std::mutex mutex_;
  Handler handler_;
  std::thread thread_;
};

}  // namespace anchorhold::cli
