#include "libvirt/emulator.h"

#include <charconv>
#include <cstdlib>
#include <fmt/format.h>
#include <sstream>
#include <unistd.h>

#include "base/fd.h"
#include "base/process.h"

namespace anchorhold::hypervisor {
namespace {

constexpr const char* program_name = "qemu-system-x86_64";
constexpr const char* install_hint = "sudo apt-get install qemu-system-x86";

}  // namespace

Result<std::filesystem::path> find_emulator(const std::filesystem::path& wanted) {
  if (!wanted.empty()) {
    if (wanted.is_absolute() && access(wanted.c_str(), X_OK) == 0 && !std::filesystem::is_directory(wanted))
      return wanted;
    return fail(ErrorCode::failed_precondition,
                fmt::format("{} is not a program that can be run", wanted.string()), install_hint);
  }
  const char* variable = std::getenv("PATH");
  std::istringstream folders(variable ? variable : "/usr/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    auto candidate = std::filesystem::path(folder) / program_name;
    if (candidate.is_absolute() && access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return fail(ErrorCode::failed_precondition,
              fmt::format("QEMU is not installed: there is no {} in PATH", program_name), install_hint);
}

Result<QemuVersion> parse_qemu_version(std::string_view output) {
  constexpr std::string_view lead = "QEMU emulator version ";
  QemuVersion version;
  bool good = output.starts_with(lead);
  std::string_view rest = good ? output.substr(lead.size()) : output;
  for (unsigned* part : {&version.major, &version.minor, &version.micro}) {
    auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), *part);
    good = good && error == std::errc();
    if (!good) break;
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    if (part != &version.micro) {
      good = rest.starts_with(".");
      if (good) rest.remove_prefix(1);
    }
  }
  if (good) return version;
  return fail(ErrorCode::failed_precondition,
              fmt::format("the program does not say a version as QEMU does, but '{}'",
                          output.substr(0, output.find('\n'))),
              install_hint);
}

Result<QemuVersion> ask_qemu_version(const std::filesystem::path& emulator) {
  Pipe pipe = ANCHORHOLD_TRY(make_pipe());
  SpawnSpec spec;
  spec.argv = {emulator.string(), "--version"};
  spec.descriptors = {{pipe.write_end.get(), 1}};
  Child child = ANCHORHOLD_TRY(Child::spawn(spec));
  pipe.write_end.reset();
  if (!child.wait(std::chrono::seconds(10)))
    return fail(ErrorCode::deadline_exceeded, fmt::format("{} --version did not end", emulator.string()));
  std::string output(4096, '\0');
  output.resize(ANCHORHOLD_TRY(read_full(pipe.read_end.get(), std::as_writable_bytes(std::span(output)))));
  return parse_qemu_version(output);
}

Status check_qemu_version(QemuVersion version) {
  if (version >= oldest_qemu) return {};
  return fail(ErrorCode::failed_precondition,
              fmt::format("QEMU {}.{}.{} is too old: {}.{} or newer is needed", version.major, version.minor,
                          version.micro, oldest_qemu.major, oldest_qemu.minor),
              install_hint);
}

}  // namespace anchorhold::hypervisor
