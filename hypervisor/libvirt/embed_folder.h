// The folder in which libvirt's embedded driver of this process works.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/files.h"
#include "hypervisor/reaper.h"

namespace anchorhold::hypervisor {

// The text of etc/qemu.conf. Root's libvirt wants to be told as whom QEMU runs; a user's always runs it as
// the user.
std::string qemu_conf(bool as_root);
// "qemu:///embed?root=…"
std::string embed_uri(const std::filesystem::path& folder);

// Made under a name of its own, locked, watched by a reaper; gone with the object or with the process.
class EmbedFolder {
 public:
  // Sweeps the folders of dead hosts first.
  static Result<std::unique_ptr<EmbedFolder>> create(const std::filesystem::path& runtime_directory,
                                                     const std::filesystem::path& cache_directory);
  ~EmbedFolder();
  const std::filesystem::path& path() const { return path_; }
  Reaper& reaper() { return *reaper_; }

 private:
  EmbedFolder(std::filesystem::path path, FileLock lock) : path_(std::move(path)), lock_(std::move(lock)) {}
  std::filesystem::path path_;
  std::optional<FileLock> lock_;
  std::unique_ptr<Reaper> reaper_;
};

}  // namespace anchorhold::hypervisor
