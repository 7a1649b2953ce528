#include "launcher/view.h"

#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <linux/securebits.h>
#include <nlohmann/json.hpp>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/seal.h"

namespace anchorhold::hypervisor {
namespace {

constexpr std::uint64_t right_refer = 1ull << 13;     // Landlock 2
constexpr std::uint64_t right_truncate = 1ull << 14;  // Landlock 3

std::uint64_t handled_rights(int abi) {
  std::uint64_t rights = (1ull << 13) - 1;
  if (abi >= 2) rights |= right_refer;
  if (abi >= 3) rights |= right_truncate;
  return rights;
}

constexpr std::uint64_t read_rights =
    LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR | LANDLOCK_ACCESS_FS_EXECUTE;
constexpr std::uint64_t write_rights = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR |
                                       LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG |
                                       LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_REMOVE_FILE |
                                       right_truncate;
constexpr std::uint64_t file_rights = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_WRITE_FILE |
                                      LANDLOCK_ACCESS_FS_READ_FILE | right_truncate;

Status add_rule(int ruleset, const std::filesystem::path& path, std::uint64_t rights) {
  UniqueFd fd(open(path.c_str(), O_PATH | O_CLOEXEC));
  if (!fd) return {};
  struct stat info;
  if (fstat(fd.get(), &info) != 0) return fail_errno(errno, path.string());
  landlock_path_beneath_attr rule{};
  rule.parent_fd = fd.get();
  rule.allowed_access = S_ISDIR(info.st_mode) ? rights : rights & file_rights;
  if (syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) != 0)
    return fail_errno(errno, fmt::format("allowing {}", path.string()));
  return {};
}

}  // namespace

std::string encode_view(const QemuView& view) {
  nlohmann::json json = {{"read", nlohmann::json::array()}, {"write", nlohmann::json::array()}};
  for (const auto& path : view.read) json["read"].push_back(path.native());
  for (const auto& path : view.write) json["write"].push_back(path.native());
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Result<QemuView> decode_view(std::string_view text) {
  auto json = nlohmann::json::parse(text, nullptr, false);
  QemuView view;
  for (auto [name, paths] : {std::pair("read", &view.read), std::pair("write", &view.write)}) {
    if (!json.is_object() || !json.contains(name) || !json[name].is_array())
      return fail(ErrorCode::invalid_argument,
                  fmt::format("the view of QEMU's files has no list '{}'", name));
    for (const auto& path : json[name]) {
      if (!path.is_string() || !path.get_ref<const std::string&>().starts_with('/'))
        return fail(ErrorCode::invalid_argument,
                    "the view of QEMU's files names something that is not an absolute path");
      paths->emplace_back(path.get<std::string>());
    }
  }
  return view;
}

std::vector<std::filesystem::path> system_files() {
  return {"/usr/bin",
          "/usr/lib",
          "/usr/lib64",
          "/lib",
          "/lib64",
          "/usr/libexec",
          "/usr/share/qemu",
          "/usr/share/seabios",
          "/etc/ld.so.cache",
          "/dev/urandom",
          "/dev/zero",
          "/proc/self",
          "/sys/devices/system",
          "/proc/sys/vm",
          "/sys/kernel/mm/transparent_hugepage",
          "/sys/module/kvm",
          "/sys/module/kvm_intel",
          "/sys/module/kvm_amd"};
}

Status restrict_to(const QemuView& view) {
  int abi = landlock_abi();
  if (abi <= 0)
    return fail(ErrorCode::unsupported,
                "this kernel has no Landlock, so QEMU would see all files of the person",
                "boot a kernel with CONFIG_SECURITY_LANDLOCK and 'landlock' in its lsm= list");
  const std::uint64_t handled = handled_rights(abi);
  landlock_ruleset_attr attributes{};
  attributes.handled_access_fs = handled;
  UniqueFd ruleset(static_cast<int>(
      syscall(SYS_landlock_create_ruleset, &attributes, sizeof attributes.handled_access_fs, 0)));
  if (!ruleset) return fail_errno(errno, "landlock_create_ruleset");
  for (const auto& path : system_files())
    ANCHORHOLD_CHECK(add_rule(ruleset.get(), path, read_rights & handled));
  for (const auto& path : view.read)
    ANCHORHOLD_CHECK(add_rule(ruleset.get(), path, (read_rights & ~LANDLOCK_ACCESS_FS_EXECUTE) & handled));
  for (const auto& path : view.write) ANCHORHOLD_CHECK(add_rule(ruleset.get(), path, write_rights & handled));
  for (const char* device : {"/dev/null", "/dev/kvm"})
    ANCHORHOLD_CHECK(add_rule(ruleset.get(), device, write_rights & handled));
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return fail_errno(errno, "no_new_privs");
  if (syscall(SYS_landlock_restrict_self, ruleset.get(), 0) != 0)
    return fail_errno(errno, "landlock_restrict_self");
  return {};
}

Status drop_capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  if (syscall(SYS_capget, &header, data) != 0) return fail_errno(errno, "capget");
  // Without the secure bits a program that root executes has every capability again.
  constexpr std::uint32_t setpcap = 1u << CAP_SETPCAP;
  if ((data[0].effective & setpcap) != 0 &&
      prctl(PR_SET_SECUREBITS,
            SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP | SECBIT_NO_SETUID_FIXUP_LOCKED, 0,
            0, 0) != 0)
    return fail_errno(errno, "PR_SET_SECUREBITS");
  data[0] = data[1] = {};
  if (syscall(SYS_capset, &header, data) != 0) return fail_errno(errno, "capset");
  return {};
}

}  // namespace anchorhold::hypervisor
