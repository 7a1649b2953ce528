#include <algorithm>
#include <fmt/format.h>
#include <set>

#include "hypervisor/hypervisor.h"
#include "hypervisor/memory.h"

namespace anchorhold::hypervisor {
namespace {

constexpr std::size_t max_id_length = 40;
constexpr std::size_t max_tag_length = 36;           // virtio 1.2, 5.11.4: the tag field of virtio-fs
constexpr std::size_t max_socket_path_length = 107;  // unix(7): sun_path
constexpr std::size_t max_path_length = 4095;
constexpr std::size_t max_command_line = 2047;  // COMMAND_LINE_SIZE of x86 without the final NUL

bool is_lower_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}
bool is_control(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
}

tl::unexpected<Error> invalid(std::string message, std::string hint = {}) {
  return fail(ErrorCode::invalid_argument, std::move(message), std::move(hint));
}

Status check_path(std::string_view field, const std::filesystem::path& path, std::size_t longest) {
  const std::string& text = path.native();
  if (!path.is_absolute()) return invalid(fmt::format("the {} '{}' is not an absolute path", field, text));
  if (std::any_of(text.begin(), text.end(), is_control))
    return invalid(fmt::format("the {} holds a control character", field));
  if (text.size() > longest)
    return invalid(
        fmt::format("the {} is too long ({} bytes, at most {}): {}", field, text.size(), longest, text),
        longest == max_socket_path_length ? "set XDG_RUNTIME_DIR to a folder with a shorter name" : "");
  return {};
}

Status check_id(const MachineId& id) {
  const std::string& text = id.value();
  if (text.empty() || text.size() > max_id_length ||
      !std::all_of(text.begin(), text.end(), [](char c) { return is_lower_or_digit(c) || c == '-'; }))
    return invalid(
        fmt::format("the machine id '{}' is not 1 to {} characters of [a-z0-9-]", text, max_id_length));
  return {};
}

Status check_shares(const std::vector<ShareSpec>& shares) {
  if (shares.size() > max_shares)
    return invalid(
        fmt::format("{} folders are too many for one machine (at most {})", shares.size(), max_shares),
        "grant a common parent folder instead");
  std::set<std::string_view> seen;
  for (const auto& share : shares) {
    auto allowed = [](char c) {
      return is_lower_or_digit(c) || (c >= 'A' && c <= 'Z') || c == '.' || c == '_' || c == '-';
    };
    if (share.tag.empty() || share.tag.size() > max_tag_length ||
        !std::all_of(share.tag.begin(), share.tag.end(), allowed))
      return invalid(fmt::format("the share's tag '{}' is not 1 to {} characters of [a-zA-Z0-9._-]",
                                 share.tag, max_tag_length));
    if (!seen.insert(share.tag).second)
      return invalid(fmt::format("two shares have the tag '{}'", share.tag));
    ANCHORHOLD_CHECK(check_path(fmt::format("socket of the share '{}'", share.tag), share.socket_path,
                                max_socket_path_length));
  }
  return {};
}

Status check_kernel_words(const std::vector<std::string>& words) {
  std::size_t length = 0;
  for (const auto& word : words) {
    if (word.empty() || std::any_of(word.begin(), word.end(), is_control))
      return invalid(fmt::format("the kernel word '{}' is empty or holds a control character", word));
    length += word.size() + 1;
  }
  // What the backend puts before them is below 200 bytes.
  if (length > max_command_line - 200)
    return invalid(fmt::format("the kernel command line is too long ({} bytes, at most {})", length,
                               max_command_line - 200));
  return {};
}

}  // namespace

Status validate_memory(ByteSize memory) {
  if (memory < min_memory || memory > max_memory)
    return invalid(fmt::format("{} of memory are not possible ({} to {})", to_string(memory),
                               to_string(min_memory), to_string(max_memory)),
                   "give the guest more or less memory, such as 2G");
  if (memory.bytes % ByteSize::mib(1).bytes != 0)
    return invalid(fmt::format("the memory of {} bytes is not a whole number of MiB", memory.bytes),
                   "give a whole number of mebibytes, such as 2048M");
  return {};
}

Status validate(const MachineSpec& spec) {
  ANCHORHOLD_CHECK(check_id(spec.id));
  ANCHORHOLD_CHECK(check_path("kernel", spec.kernel, max_path_length));
  if (!spec.initrd.empty()) ANCHORHOLD_CHECK(check_path("initrd", spec.initrd, max_path_length));
  if (!spec.rootfs.empty()) ANCHORHOLD_CHECK(check_path("root file system", spec.rootfs, max_path_length));
  if (spec.initrd.empty() && spec.rootfs.empty())
    return invalid("the machine has neither an initrd nor a root file system, so nothing could run in it");
  ANCHORHOLD_CHECK(check_kernel_words(spec.kernel_words));
  if (spec.vcpus < 1 || spec.vcpus > max_vcpus)
    return invalid(fmt::format("{} processors are not possible (1 to {})", spec.vcpus, max_vcpus),
                   fmt::format("give the guest 1 to {} processors", max_vcpus));
  ANCHORHOLD_CHECK(validate_memory(spec.memory));
  if (!spec.vsock_socket.empty())
    ANCHORHOLD_CHECK(check_path("vsock socket", spec.vsock_socket, max_socket_path_length));
  ANCHORHOLD_CHECK(check_shares(spec.shares));
  ANCHORHOLD_CHECK(check_path("console log", spec.console.path, max_path_length));
  if (spec.console.limit < ByteSize::kib(4))
    return invalid(
        fmt::format("the console log's limit of {} is below 4 KiB", to_string(spec.console.limit)));
  if (spec.wall_time && spec.wall_time->count() <= 0)
    return invalid("the machine's time limit is not positive");
  return {};
}

std::string_view to_string(MachineState state) {
  switch (state) {
    case MachineState::made:
      return "made";
    case MachineState::starting:
      return "starting";
    case MachineState::running:
      return "running";
    case MachineState::stopping:
      return "stopping";
    case MachineState::ended:
      return "ended";
  }
  return "unknown";
}

std::string_view to_string(ExitCause cause) {
  switch (cause) {
    case ExitCause::guest_shutdown:
      return "guest_shutdown";
    case ExitCause::guest_reset:
      return "guest_reset";
    case ExitCause::stopped:
      return "stopped";
    case ExitCause::time_limit:
      return "time_limit";
    case ExitCause::process_lost:
      return "process_lost";
    case ExitCause::start_failed:
      return "start_failed";
  }
  return "unknown";
}

}  // namespace anchorhold::hypervisor
