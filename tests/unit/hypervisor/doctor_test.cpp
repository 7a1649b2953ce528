#include "hypervisor/doctor.h"

#include <cerrno>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "reaper/reaping.h"
#include "src/doctor_facts.h"

namespace anchorhold::hypervisor {
namespace {

using testing::HasSubstr;

DoctorFacts healthy() {
  DoctorFacts facts;
  facts.emulator = std::filesystem::path("/usr/bin/qemu-system-x86_64");
  facts.qemu_version = QemuVersion{7, 2, 22};
  facts.libvirt_driver = "/usr/lib/x86_64-linux-gnu/libvirt/connection-driver/libvirt_driver_qemu.so";
  facts.kvm = {KvmVerdict::Outcome::works, ""};
  facts.kvm_device = "/dev/kvm";
  facts.landlock_abi = 6;
  facts.free_space_wanted = ByteSize::gib(2);
  for (const char* use : {"runtime", "cache", "state"})
    facts.folders.push_back({use, "/f", std::nullopt, ByteSize::gib(50)});
  facts.backend = "libvirt 9.0.0, QEMU 7.2.22";
  return facts;
}

const Check* find(const std::vector<Check>& checks, std::string_view name) {
  for (const auto& check : checks)
    if (check.name == name) return &check;
  return nullptr;
}

TEST(Doctor, IsContentWithAHealthyComputer) {
  for (const auto& check : judge(healthy())) {
    EXPECT_EQ(check.status, CheckStatus::ok) << check.name << ": " << check.what;
    EXPECT_TRUE(check.fix.empty()) << check.name;
    EXPECT_FALSE(check.what.empty()) << check.name;
  }
}

struct Illness {
  const char* check;
  CheckStatus status;
  const char* what;
  const char* fix;
  std::function<void(DoctorFacts&)> infect;
};

TEST(Doctor, NamesEachMissingPieceAndItsFix) {
  using Outcome = KvmVerdict::Outcome;
  const auto warn = CheckStatus::warn, bad = CheckStatus::fail;
  const std::vector<Illness> illnesses = {
      {"qemu", bad, "not installed", "apt-get install qemu-system-x86",
       [](auto& f) {
         f.emulator = fail(ErrorCode::failed_precondition, "QEMU is not installed",
                           "sudo apt-get install qemu-system-x86");
       }},
      {"qemu", bad, "6.2.0 is too old", "apt-get install",
       [](auto& f) {
         f.qemu_version = QemuVersion{6, 2, 0};
       }},
      {"qemu", bad, "does not say", "apt-get install",
       [](auto& f) {
         f.qemu_version = fail(ErrorCode::failed_precondition, "the program does not say a version",
                               "sudo apt-get install qemu-system-x86");
       }},
      {"libvirt", bad, "not installed", "apt-get install libvirt-daemon-driver-qemu",
       [](auto& f) { f.libvirt_driver.reset(); }},
      {"kvm", warn, "has no /dev/kvm", "firmware",
       [](auto& f) {
         f.kvm = {Outcome::absent, ""};
       }},
      {"kvm", warn, "may not open /dev/kvm", "usermod -aG kvm",
       [](auto& f) {
         f.kvm = {Outcome::no_permission, ""};
       }},
      {"kvm", warn, "does not run guests: it hangs", "nested",
       [](auto& f) {
         f.kvm = {Outcome::broken, "it hangs"};
       }},
      {"memfd", bad, "Function not implemented", "CONFIG_MEMFD_CREATE",
       [](auto& f) { f.memfd_error = ENOSYS; }},
      {"user-namespaces", warn, "user.max_user_namespaces=0", "sysctl",
       [](auto& f) {
         f.user_namespace_error = ENOSPC;
         f.user_namespace_limits = "user.max_user_namespaces=0";
       }},
      {"landlock", bad, "no Landlock", "lsm=", [](auto& f) { f.landlock_abi = 0; }},
      {"landlock", warn, "moving files between folders", "5.19", [](auto& f) { f.landlock_abi = 1; }},
      {"seccomp", bad, "cannot filter", "CONFIG_SECCOMP_FILTER", [](auto& f) { f.seccomp = false; }},
      {"programs", bad, "anchorhold-reaper is missing", "install",
       [](auto& f) {
         f.missing_program = Error{ErrorCode::failed_precondition, "anchorhold-reaper is missing",
                                   "install the package again"};
       }},
      {"runtime-folder", bad, "not private", "remove it",
       [](auto& f) {
         f.folders[0].problem = Error{ErrorCode::permission_denied, "/f is not private", "remove it"};
       }},
      {"disk-cache", bad, "disk is full", "df -h", [](auto& f) { f.folders[1].free = ByteSize::mib(10); }},
      {"disk-state", warn, "nearly full", "df -h", [](auto& f) { f.folders[2].free = ByteSize::mib(900); }},
      {"locks", warn, "1 folder(s) of hosts that died", "next start",
       [](auto& f) { f.stale_folders = {"/r/embed-1"}; }},
      {"hypervisor", bad, "libvirt-qemu' do not exist", "adduser",
       [](auto& f) {
         f.connection = Error{ErrorCode::failed_precondition, "'libvirt-qemu' do not exist", "adduser …"};
       }},
  };
  for (const auto& illness : illnesses) {
    DoctorFacts facts = healthy();
    illness.infect(facts);
    auto checks = judge(facts);
    const Check* check = find(checks, illness.check);
    ASSERT_TRUE(check) << illness.check;
    EXPECT_EQ(check->status, illness.status) << illness.check << ": " << check->what;
    EXPECT_THAT(check->what, HasSubstr(illness.what));
    EXPECT_THAT(check->fix, HasSubstr(illness.fix));
    for (const auto& other : checks) {
      if (other.name == illness.check) continue;
      EXPECT_EQ(other.status, CheckStatus::ok) << other.name << " with " << illness.check;
    }
  }
}

TEST(Doctor, WhateverFailsHasAFix) {
  for (auto code : {ErrorCode::internal, ErrorCode::resource_exhausted, ErrorCode::permission_denied,
                    ErrorCode::unavailable, ErrorCode::failed_precondition}) {
    const Error silent{code, "a library says something long", {}};
    DoctorFacts facts = healthy();
    facts.emulator = fail(silent);
    facts.missing_program = silent;
    facts.folders[0].problem = silent;
    facts.connection = silent;
    int failed = 0;
    for (const auto& check : judge(facts)) {
      if (check.status != CheckStatus::fail) continue;
      ++failed;
      EXPECT_FALSE(check.fix.empty()) << check.name << ": " << to_string(code);
    }
    EXPECT_EQ(failed, 4);
  }
}

TEST(Doctor, SaysWhatAnOldLandlockLacks) {
  DoctorFacts facts = healthy();
  facts.landlock_abi = 2;
  auto checks = judge(facts);
  EXPECT_EQ(find(checks, "landlock")->status, CheckStatus::ok);
  EXPECT_THAT(find(checks, "landlock")->what, HasSubstr("cannot yet restrict shortening files, TCP"));
}

TEST(Doctor, FindsWhatIsWrongInTheEnvironmentItIsGiven) {
  auto folder = TemporaryDirectory::create().value();
  std::ofstream(folder.path() / "file") << "x";
  std::filesystem::create_directory(folder.path() / "run");
  std::ofstream(lock_of(folder.path() / "run" / "embed-0")) << "";
  DoctorEnvironment environment;
  environment.kvm_device = folder.path() / "kvm";
  environment.emulator = folder.path() / "qemu";
  environment.libvirt_driver = folder.path() / "driver.so";
  environment.runtime_directory = folder.path() / "run";
  environment.cache_directory = folder.path() / "file";
  environment.state_directory = folder.path() / "state";
  environment.uri = "nonsense:///";
  auto checks = examine(environment);
  EXPECT_THAT(find(checks, "kvm")->what, HasSubstr("has no"));
  EXPECT_EQ(find(checks, "qemu")->status, CheckStatus::fail);
  EXPECT_EQ(find(checks, "libvirt")->status, CheckStatus::fail);
  EXPECT_EQ(find(checks, "runtime-folder")->status, CheckStatus::ok);
  EXPECT_EQ(find(checks, "locks")->status, CheckStatus::warn);
  EXPECT_EQ(find(checks, "cache-folder")->status, CheckStatus::fail);
  EXPECT_EQ(find(checks, "state-folder")->status, CheckStatus::ok);
  EXPECT_EQ(find(checks, "hypervisor")->status, CheckStatus::fail);
  EXPECT_THAT(find(checks, "hypervisor")->fix, HasSubstr("leave --hypervisor out"));
  EXPECT_EQ(find(checks, "memfd")->status, CheckStatus::ok);
}

}  // namespace
}  // namespace anchorhold::hypervisor
