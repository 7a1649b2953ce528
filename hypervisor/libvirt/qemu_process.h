// The process that runs one guest of the embedded driver. The descriptor of a process says for certain that
// it has ended, at once, and a signal through it reaches nobody else; libvirt asks by number and in steps of
// 0.2 s.
#pragma once

#include <filesystem>
#include <optional>

#include "base/fd.h"

namespace anchorhold::hypervisor {

class QemuProcess {
 public:
  // Nothing when the file is not there (yet), or names a process that is not a QEMU working in the folder.
  static std::optional<QemuProcess> find(const std::filesystem::path& pid_file,
                                         const std::filesystem::path& folder);
  int pidfd() const { return pidfd_.get(); }
  int number() const { return number_; }
  void kill() const;

 private:
  QemuProcess(int number, UniqueFd pidfd) : number_(number), pidfd_(std::move(pidfd)) {}
  int number_;
  UniqueFd pidfd_;
};

}  // namespace anchorhold::hypervisor
