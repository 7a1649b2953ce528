// Devices of a guest that wait for a folder. A virtual machine gets its file system devices when it is made;
// what is granted later goes to one of these. Until then a sealed process (anchorhold-spares), which can
// reach no file at all, keeps each device's place; then an ordinary reader, sealed to its folder, takes it.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "mounts/share.h"

namespace anchorhold::mounts {

struct SparesSpec {
  std::filesystem::path folder;  // private, of the guest; the sockets are made in it
  std::size_t count = 0;         // at most spares_fd::most_spares
  bool allow_weak = false;       // see SealPolicy
  // As ShareSpec::on_notice.
  std::function<void(const ShareNotice&)> on_notice{};
};

// Owned by one thread. The destructor ends the process, and with it the devices that it serves.
class Spares {
 public:
  // Returns when the process is sealed and the sockets listen.
  static Result<std::unique_ptr<Spares>> start(SparesSpec spec);
  ~Spares();

  std::size_t count() const;
  // Where the hypervisor connects for each, and the device's tag.
  std::filesystem::path socket_path(std::size_t index) const;
  static std::string tag(std::size_t index);
  // The first that is free.
  std::optional<std::size_t> free() const;
  // Gives its place to the reader that listens at this path (Share::serve_guest). Only while the guest runs.
  // After an error it is as before.
  Status take(std::size_t index, const std::filesystem::path& reader_socket);

  pid_t pid() const;

 private:
  struct State;
  explicit Spares(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace anchorhold::mounts
