// The anchor: a file beside the log that names the newest record that is certainly on the disk. Two slots,
// written in turn, each with its own check sum: a write cut short by a crash leaves the other one.
#pragma once

#include <filesystem>
#include <optional>

#include "base/fd.h"
#include "events/event_log.h"

namespace anchorhold::events {

class Anchor {
 public:
  // Opens it; with `create`, makes an empty one (sequence 0) when it is not there. Not there: not_found.
  static Result<Anchor> open(const std::filesystem::path& file, bool create);

  // Holds off other processes while the anchor is compared and moved.
  class Lock {
   public:
    explicit Lock(int fd);
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    int fd_;
  };
  Lock lock() const { return Lock(fd_.get()); }

  // The newest valid slot; an empty file is sequence 0; a file without a valid slot is data_loss.
  Result<Head> read() const;
  // On the disk when it returns.
  Status write(const Head& head) const;

 private:
  explicit Anchor(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace anchorhold::events
