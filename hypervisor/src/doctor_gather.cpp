#include <cerrno>
#include <fmt/format.h>
#include <fstream>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/files.h"
#include "base/id.h"
#include "base/paths.h"
#include "base/seal.h"
#include "libvirt/driver.h"
#include "reaper/reaping.h"
#include "src/doctor_facts.h"

namespace anchorhold::hypervisor {
namespace {

// What a guest's memory is: a sealed-size file in memory, mapped shared.
int try_memfd() {
  UniqueFd fd(memfd_create("anchorhold-doctor", MFD_CLOEXEC));
  if (!fd || ftruncate(fd.get(), 4096) != 0) return errno;
  void* memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return errno;
  munmap(memory, 4096);
  return 0;
}

int try_user_namespace() {
  pid_t child = fork();
  if (child < 0) return errno;
  if (child == 0) _exit(unshare(CLONE_NEWUSER) == 0 ? 0 : errno);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : EPERM;
}

std::string forbidding_settings(const std::filesystem::path& proc) {
  struct Setting {
    const char* path;
    const char* name;
    const char* forbids;
  };
  constexpr Setting settings[] = {
      {"sys/user/max_user_namespaces", "user.max_user_namespaces", "0"},
      {"sys/kernel/unprivileged_userns_clone", "kernel.unprivileged_userns_clone", "0"},
      {"sys/kernel/apparmor_restrict_unprivileged_userns", "kernel.apparmor_restrict_unprivileged_userns",
       "1"}};
  std::string found;
  for (const auto& setting : settings) {
    std::string value;
    if (std::ifstream(proc / setting.path) >> value && value == setting.forbids)
      found += fmt::format("{}{}={}", found.empty() ? "" : ", ", setting.name, value);
  }
  return found;
}

std::optional<std::filesystem::path> find_libvirt_driver(const std::filesystem::path& wanted) {
  std::error_code error;
  std::vector<std::filesystem::path> candidates = {wanted};
  if (wanted.empty()) {
    candidates = {"/usr/lib64", "/usr/lib"};
    for (const auto& entry : std::filesystem::directory_iterator("/usr/lib", error))
      if (entry.path().filename().native().find("-linux-gnu") != std::string::npos)
        candidates.push_back(entry.path());
    for (auto& candidate : candidates) candidate /= "libvirt/connection-driver/libvirt_driver_qemu.so";
  }
  for (const auto& candidate : candidates)
    if (std::filesystem::exists(candidate, error)) return candidate;
  return std::nullopt;
}

FolderFacts look_at_folder(const char* use, const std::filesystem::path& given,
                           Result<std::filesystem::path> (*standard)()) {
  FolderFacts facts{use, given, std::nullopt, {}};
  if (given.empty()) {
    auto path = standard();
    if (!path) {
      facts.problem = path.error();
      return facts;
    }
    facts.path = *path;
  }
  Status written = make_directories(facts.path);
  auto trial = facts.path / (".doctor-" + random_hex(4));
  if (written) written = write_file_atomic(trial, "anchorhold doctor\n");
  unlink(trial.c_str());
  if (!written) {
    facts.problem = Error{
        written.error().code, fmt::format("the {} folder cannot be used: {}", use, written.error().message),
        fmt::format("see: ls -ld {} && df -h {}", facts.path.string(), facts.path.string())};
    return facts;
  }
  struct statvfs space;
  if (statvfs(facts.path.c_str(), &space) == 0)
    facts.free = {static_cast<std::uint64_t>(space.f_bavail) * space.f_frsize};
  return facts;
}

std::vector<std::filesystem::path> find_stale_folders(const std::filesystem::path& runtime) {
  std::vector<std::filesystem::path> stale;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(runtime, error)) {
    const auto& path = entry.path();
    if (path.extension() != ".lock" || !path.filename().native().starts_with("embed-")) continue;
    if (FileLock::acquire(path, FileLock::Wait::no)) stale.push_back(path.parent_path() / path.stem());
  }
  return stale;
}

}  // namespace

DoctorFacts gather(const DoctorEnvironment& environment) {
  DoctorFacts facts;
  facts.as_root = geteuid() == 0;
  facts.emulator = find_emulator(environment.emulator);
  if (facts.emulator) facts.qemu_version = ask_qemu_version(*facts.emulator);
  facts.libvirt_driver = find_libvirt_driver(environment.libvirt_driver);
  for (const char* program : {"anchorhold-reaper", "anchorhold-qemu"})
    if (auto found = own_program(program); !found && !facts.missing_program)
      facts.missing_program = found.error();
  facts.kvm_device = environment.kvm_device;
  facts.kvm = probe_kvm(environment.kvm_device);
  facts.memfd_error = try_memfd();
  facts.user_namespace_error = try_user_namespace();
  facts.user_namespace_limits = forbidding_settings(environment.proc);
  facts.landlock_abi = landlock_abi();
  facts.seccomp = prctl(PR_GET_SECCOMP) >= 0;
  facts.free_space_wanted = environment.free_space_wanted;
  facts.folders = {look_at_folder("runtime", environment.runtime_directory, runtime_directory),
                   look_at_folder("cache", environment.cache_directory, cache_directory),
                   look_at_folder("state", environment.state_directory, state_directory)};
  if (!facts.folders[0].problem) facts.stale_folders = find_stale_folders(facts.folders[0].path);
  LibvirtOptions options;
  options.uri = environment.uri;
  options.runtime_directory = environment.runtime_directory;
  options.cache_directory = environment.cache_directory;
  if (auto driver = Driver::open(options)) {
    facts.backend = (*driver)->description();
  } else {
    facts.connection = driver.error();
  }
  return facts;
}

}  // namespace anchorhold::hypervisor
