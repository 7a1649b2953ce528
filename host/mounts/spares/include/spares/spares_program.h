// anchorhold-spares: keeps the places of devices that a guest has and no folder is behind yet. Sealed without
// any right to files; the guest's memory passes through as a descriptor and is never mapped.
#pragma once

#include <memory>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "base/seal.h"
#include "mounts/report.h"
#include "vsock/device_holder.h"

namespace anchorhold::mounts {

struct SparesArguments {
  unsigned count = 0;
  bool allow_weak = false;
};

// What the process may still do, with these descriptors.
SealPolicy spares_policy(const SparesArguments& arguments);

class SparesProgram {
 public:
  // Takes over the descriptors of mounts/programs.h and seals this process.
  static Result<SparesProgram> seal(const SparesArguments& arguments);
  // Until every front end or the host is gone; an error is what a front end or a reader did wrong.
  Status run();
  Reporter& reports() { return *reports_; }

 private:
  struct Spare {
    UniqueFd listener;
    vsock::EventLoop::Watch listening;
    std::unique_ptr<vsock::DeviceHolder> holder;
  };
  void accept(Spare& spare);
  void take_order();
  Status attach(std::uint32_t index, std::vector<UniqueFd> descriptors);

  std::unique_ptr<Reporter> reports_;
  UniqueFd control_;
  std::vector<Spare> spares_;
  std::unique_ptr<vsock::EventLoop> loop_;
  std::size_t over_ = 0;  // connections that have ended
};

}  // namespace anchorhold::mounts
