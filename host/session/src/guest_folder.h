// A guest's folder below the runtime directory: its sockets and its console. Removed at the guest's end; what
// a killed host left behind is removed by the next one.
#pragma once

#include <filesystem>
#include <optional>

#include "base/error.h"
#include "base/files.h"
#include "hypervisor/hypervisor.h"

namespace anchorhold::session {

class GuestFolder {
 public:
  static Result<GuestFolder> create(const std::filesystem::path& parent);
  GuestFolder(GuestFolder&& other) noexcept = default;
  GuestFolder& operator=(GuestFolder&&) = delete;
  ~GuestFolder();

  const hypervisor::MachineId& id() const { return id_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  GuestFolder(hypervisor::MachineId id, std::filesystem::path path, FileLock lock)
      : id_(std::move(id)), path_(std::move(path)), lock_(std::move(lock)) {}
  hypervisor::MachineId id_;
  std::filesystem::path path_;
  std::optional<FileLock> lock_;  // shows that the host lives
};

std::filesystem::path guests_folder(const std::filesystem::path& runtime_directory);

}  // namespace anchorhold::session
