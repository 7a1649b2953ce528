// The work of anchorhold-reaper, also used to sweep what hosts left that died together with their reaper.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"

namespace anchorhold::hypervisor {

// What the host sends, one packet each.
struct WatchMessage {
  std::int32_t process;
  std::uint32_t reserved;
  std::uint64_t start_time;  // clock ticks since boot: proc(5), /proc/[pid]/stat field 22
};

std::optional<std::uint64_t> start_time_of(int process);
// Does this argument vector (proc(5), /proc/[pid]/cmdline: NUL-separated) belong to a QEMU or a program of
// ours, other than a host, that works in the folder?
bool works_in(std::string_view command_line, const std::filesystem::path& folder);

// Ends all of them, and the given ones. False when some still lived at the deadline.
bool end_processes(const std::filesystem::path& folder, std::vector<UniqueFd> also,
                   std::chrono::milliseconds limit);
// The folder and its lock file. Only a folder named embed-… is removed.
Status remove_folder(const std::filesystem::path& folder);
std::filesystem::path lock_of(const std::filesystem::path& folder);
// Every embed-… folder whose host is gone: its processes are ended, and it is removed. Returns how many.
std::size_t sweep(const std::filesystem::path& runtime_directory);

// Reads watch messages until the other side is gone, then ends everything. Returns the program's exit status.
int run_reaper(UniqueFd host, const std::filesystem::path& folder);

}  // namespace anchorhold::hypervisor
