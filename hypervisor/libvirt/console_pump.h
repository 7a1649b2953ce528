// Takes what a guest prints on its serial console, from the socket that QEMU connects to, into a bounded log.
#pragma once

#include <filesystem>
#include <memory>
#include <thread>

#include "base/error.h"
#include "base/fd.h"
#include "hypervisor/hypervisor.h"
#include "libvirt/bounded_log.h"

namespace anchorhold::hypervisor {

// One thread of its own, which copies bytes and understands none of them.
class ConsolePump {
 public:
  // Listens before it returns.
  static Result<std::unique_ptr<ConsolePump>> start(const std::filesystem::path& socket,
                                                    const ConsoleLog& log);
  // What QEMU had written until now is in the log afterwards. Removes the socket.
  ~ConsolePump();

 private:
  ConsolePump(std::filesystem::path socket, UniqueFd listener, Pipe stop, BoundedLog log);
  void run();
  UniqueFd accept_one();
  bool copy_available(int connection);

  std::filesystem::path socket_;
  UniqueFd listener_;
  Pipe stop_;
  BoundedLog log_;
  std::thread thread_;
};

// The last lines of a console log, with everything that a terminal could obey left out.
std::string last_lines(const std::filesystem::path& log, std::size_t max_lines, std::size_t max_bytes);

}  // namespace anchorhold::hypervisor
