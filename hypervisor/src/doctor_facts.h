// The doctor in two halves: facts, gathered by the steps of a real start, and what they mean, which is a pure
// function.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "hypervisor/doctor.h"
#include "libvirt/emulator.h"
#include "libvirt/kvm_probe.h"

namespace anchorhold::hypervisor {

struct FolderFacts {
  std::string use;  // "runtime", "cache", "state"
  std::filesystem::path path;
  std::optional<Error> problem;  // it cannot be made or written
  ByteSize free;
};

struct DoctorFacts {
  bool as_root = false;
  Result<std::filesystem::path> emulator = std::filesystem::path();
  Result<QemuVersion> qemu_version = oldest_qemu;
  std::optional<std::filesystem::path> libvirt_driver;
  std::optional<Error> missing_program;  // of ours
  KvmVerdict kvm;
  std::filesystem::path kvm_device;
  int memfd_error = 0;                // errno of making shared memory
  int user_namespace_error = 0;       // errno of making a user namespace
  std::string user_namespace_limits;  // the settings that forbid it, "" when none does
  int landlock_abi = 0;
  bool seccomp = true;
  std::vector<FolderFacts> folders;
  std::vector<std::filesystem::path> stale_folders;  // of hosts that died together with their reaper
  ByteSize free_space_wanted;
  std::optional<Error> connection;  // why libvirt could not be opened; asked last
  std::string backend;              // "libvirt 9.0.0, QEMU 7.2.22"
};

DoctorFacts gather(const DoctorEnvironment& environment);
std::vector<Check> judge(const DoctorFacts& facts);

}  // namespace anchorhold::hypervisor
