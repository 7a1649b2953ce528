// An image that was checked just now: the proof that a hypervisor asks for before it starts anything.
// Manifest and signature, then every byte of kernel, root file system and initial RAM disk. There is no other
// way to make one.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "images/manifest.h"
#include "images/store.h"

namespace anchorhold::images {

class VerifiedImage {
 public:
  // Reads the whole image, about 0.3 s on two cores with SHA instructions; call it on a worker. An error
  // names the file that is wrong and the command that repairs it.
  static Result<VerifiedImage> verify(const ImageStore& store, const std::string& name);

  struct File {
    std::filesystem::path path;
    UniqueFd descriptor;  // read-only, of the bytes that were checked
  };
  const std::string& name() const { return manifest_.name; }
  const Manifest& manifest() const { return manifest_; }
  const std::string& key_id() const { return key_id_; }
  const File& kernel() const { return kernel_; }
  const File& rootfs() const { return rootfs_; }
  const File& initrd() const { return initrd_; }

  // The kernel's words for a root file system that lies on `device` ("/dev/vda"): dm-verity makes /dev/dm-0
  // of it, which the agent mounts under an overlay of at most `scratch` bytes. A read of a changed block
  // stops the guest.
  std::string kernel_command_line(std::string_view device, ByteSize scratch) const;

 private:
  VerifiedImage() = default;
  Manifest manifest_;
  std::string key_id_;
  File kernel_;
  File rootfs_;
  File initrd_;
};

}  // namespace anchorhold::images
