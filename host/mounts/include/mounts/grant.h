// A grant: one folder or file of the person's that a session may use, and how. The path is resolved first and
// judged then; from that moment the opened descriptor is the grant, and renaming or swapping the folder or a
// symlink on the way to it changes nothing.
//
// A folder /home/a/report appears in the guest as /mnt/report. A single file /home/a/data.csv appears as
// /mnt/data.csv/data.csv: a folder with nothing else in it.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "mounts/hidden.h"
#include "mounts/mode.h"

namespace anchorhold::mounts {

struct Grant {
  std::filesystem::path host_path;       // absolute, without symlinks, as it was when it was granted
  UniqueFd root;                         // O_PATH of the folder; of a single file: the folder it is in
  std::optional<std::string> only_file;  // a single file: its name in root
  Mode mode = Mode::ro;
  std::string name;  // one component below /mnt; valid UTF-8, at most 100 bytes, no control characters
  std::string tag;   // of the virtio-fs device: at most 36 bytes of [a-zA-Z0-9._-], one for each name

  // "/mnt/report", "/mnt/data.csv/data.csv".
  std::string guest_path() const;
};

// What a path is judged against.
struct GrantRules {
  std::filesystem::path home;                      // real path
  std::vector<std::filesystem::path> own_folders;  // real paths: our configuration, state, cache, sockets
  const HiddenNames* hidden = &HiddenNames::standard();

  // This person's.
  static Result<GrantRules> current();
};

// Opens, resolves, judges and names. `others` are the grants the session has already.
// Errors: not_found; invalid_argument (neither a folder nor a file); already_exists (granted twice);
// permission_denied (not readable, or for rw modes not writable, by this person; or it must not be granted:
// '/', a home folder itself, system folders, our own folders or one that holds them, a hidden name, a folder
// above or below another grant where that would undo the stricter mode).
Result<Grant> resolve_grant(const std::filesystem::path& path, Mode mode, std::span<const Grant> others,
                            const GrantRules& rules);

// The judgement alone, on a real path: nothing, or why not and what to do. Pure.
std::optional<Error> judge_path(const std::filesystem::path& real_path, const GrantRules& rules);
// The name below /mnt for a folder or file name of any bytes; taken names get "-2", "-3". Pure.
std::string grant_name(std::string_view file_name, std::span<const std::string> taken);
std::string grant_tag(std::string_view name);

}  // namespace anchorhold::mounts
