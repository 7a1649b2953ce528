#include <cstring>
#include <fmt/format.h>

#include "libvirt/acceleration.h"
#include "src/doctor_facts.h"

namespace anchorhold::hypervisor {
namespace {

// Below this nothing can be started, whatever is wanted.
constexpr ByteSize least_space = ByteSize::mib(64);

Check passed(std::string name, std::string what) {
  return {std::move(name), CheckStatus::ok, std::move(what), ""};
}
// What fails has a fix: the error's own, or what usually helps.
Check failed(std::string name, const Error& error) {
  std::string fix = error.hint;
  if (fix.empty() && error.code == ErrorCode::resource_exhausted) fix = "make room: df -h, free -h";
  if (fix.empty() && error.code == ErrorCode::permission_denied)
    fix = "see whose it is and who may use it: ls -ld PATH";
  if (fix.empty())
    fix = "sudo apt-get install --reinstall qemu-system-x86 libvirt0 libvirt-daemon-driver-qemu";
  return {std::move(name), CheckStatus::fail, error.message, std::move(fix)};
}

Check judge_qemu(const DoctorFacts& facts) {
  if (!facts.emulator) return failed("qemu", facts.emulator.error());
  if (!facts.qemu_version)
    return failed("qemu", with_context(facts.qemu_version.error(), facts.emulator->string()));
  if (auto old = check_qemu_version(*facts.qemu_version); !old)
    return failed("qemu", with_context(old.error(), facts.emulator->string()));
  const auto& version = *facts.qemu_version;
  return passed("qemu", fmt::format("{} is version {}.{}.{}", facts.emulator->string(), version.major,
                                    version.minor, version.micro));
}

Check judge_libvirt(const DoctorFacts& facts) {
  if (!facts.libvirt_driver)
    return {"libvirt", CheckStatus::fail,
            "libvirt's driver for QEMU is not installed (libvirt_driver_qemu.so)",
            "sudo apt-get install libvirt-daemon-driver-qemu"};
  return passed("libvirt", fmt::format("{} is there", facts.libvirt_driver->string()));
}

Check judge_kvm(const DoctorFacts& facts) {
  if (facts.kvm.outcome == KvmVerdict::Outcome::works)
    return passed("kvm", explain(facts.kvm, facts.kvm_device));
  return {"kvm", CheckStatus::warn,
          explain(facts.kvm, facts.kvm_device) + "; guests are emulated, about ten times slower",
          fix_for(facts.kvm, facts.kvm_device)};
}

Check judge_memfd(const DoctorFacts& facts) {
  if (facts.memfd_error == 0) return passed("memfd", "memory can be shared with our devices");
  return {
      "memfd", CheckStatus::fail,
      fmt::format("shared memory for a guest cannot be made: {}", std::strerror(facts.memfd_error)),
      "use a kernel with CONFIG_MEMFD_CREATE, and allow memfd_create where a container's filter forbids it"};
}

Check judge_user_namespaces(const DoctorFacts& facts) {
  constexpr const char* name = "user-namespaces";
  if (facts.user_namespace_error == 0) return passed(name, "user namespaces can be made");
  std::string what =
      fmt::format("user namespaces cannot be made ({}){}: an image is built through fakechroot instead",
                  std::strerror(facts.user_namespace_error),
                  facts.user_namespace_limits.empty() ? "" : ", " + facts.user_namespace_limits);
  return {name, CheckStatus::warn, what,
          "sudo sysctl user.max_user_namespaces=15000 kernel.unprivileged_userns_clone=1, "
          "kernel.apparmor_restrict_unprivileged_userns=0 where that exists"};
}

Check judge_landlock(const DoctorFacts& facts) {
  constexpr const char* name = "landlock";
  if (facts.landlock_abi <= 0)
    return {name, CheckStatus::fail,
            "this kernel has no Landlock, so our sealed processes could reach all files of the person",
            "boot a kernel of version 5.13 or newer with CONFIG_SECURITY_LANDLOCK and 'landlock' in its lsm= "
            "list"};
  std::string lacking;
  auto add = [&](int abi, const char* right) {
    if (facts.landlock_abi < abi) lacking += (lacking.empty() ? "" : ", ") + std::string(right);
  };
  add(2, "moving files between folders");
  add(3, "shortening files");
  add(4, "TCP");
  add(5, "device requests");
  add(6, "signals and abstract sockets");
  std::string what = fmt::format("Landlock has version {}", facts.landlock_abi);
  if (!lacking.empty())
    what += fmt::format("; it cannot yet restrict {} (the system-call filter does)", lacking);
  if (facts.landlock_abi >= 2) return passed(name, what);
  return {name, CheckStatus::warn, what, "a kernel of version 5.19 or newer knows more"};
}

Check judge_seccomp(const DoctorFacts& facts) {
  if (facts.seccomp) return passed("seccomp", "system calls can be filtered");
  return {"seccomp", CheckStatus::fail, "this kernel cannot filter system calls",
          "use a kernel with CONFIG_SECCOMP_FILTER"};
}

void judge_folders(const DoctorFacts& facts, std::vector<Check>& checks) {
  for (const auto& folder : facts.folders) {
    std::string name = folder.use + "-folder";
    if (folder.problem) {
      checks.push_back(failed(name, *folder.problem));
      continue;
    }
    checks.push_back(passed(name, fmt::format("{} can be written", folder.path.string())));
    std::string space = fmt::format("{} free for {}", to_string(folder.free), folder.path.string());
    std::string disk = "disk-" + folder.use;
    // What is needed at run time is small; images and state are not.
    ByteSize wanted = folder.use == "runtime" ? least_space : facts.free_space_wanted;
    std::string fix = fmt::format("free some space: df -h {}", folder.path.string());
    if (folder.free < least_space) {
      checks.push_back({disk, CheckStatus::fail, "the disk is full: " + space, fix});
    } else if (folder.free < wanted) {
      checks.push_back({disk, CheckStatus::warn, "the disk is nearly full: " + space, fix});
    } else {
      checks.push_back(passed(disk, space));
    }
  }
}

Check judge_locks(const DoctorFacts& facts) {
  if (facts.stale_folders.empty()) return passed("locks", "no locks of dead hosts");
  return {"locks", CheckStatus::warn,
          fmt::format("{} folder(s) of hosts that died, the first is {}", facts.stale_folders.size(),
                      facts.stale_folders.front().string()),
          "nothing to do: the next start ends what is left there and removes it"};
}

}  // namespace

std::string_view to_string(CheckStatus status) {
  switch (status) {
    case CheckStatus::ok:
      return "ok";
    case CheckStatus::warn:
      return "warn";
    case CheckStatus::fail:
      return "fail";
  }
  return "unknown";
}

std::vector<Check> judge(const DoctorFacts& facts) {
  std::vector<Check> checks = {judge_qemu(facts),   judge_libvirt(facts),         judge_kvm(facts),
                               judge_memfd(facts),  judge_user_namespaces(facts), judge_landlock(facts),
                               judge_seccomp(facts)};
  if (facts.missing_program) {
    checks.push_back(failed("programs", *facts.missing_program));
  } else {
    checks.push_back(passed("programs", "our programs are there"));
  }
  judge_folders(facts, checks);
  checks.push_back(judge_locks(facts));
  if (facts.connection) {
    checks.push_back(failed("hypervisor", *facts.connection));
  } else {
    checks.push_back(passed("hypervisor", facts.backend + " answers"));
  }
  return checks;
}

std::vector<Check> examine(const DoctorEnvironment& environment) {
  return judge(gather(environment));
}

}  // namespace anchorhold::hypervisor
