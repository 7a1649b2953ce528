// Where built images lie. In the store's folder:
//   <name>/manifest.json, <name>/manifest.sig   under images/
//   <kind>-<hash of its inputs>/                 under stages/, shared by all images with the same inputs
//   building/                                    under way, or left by a build that was killed
//   logs/                                        the last output of each stage's build
// Everything appears by a rename of something complete. Safe for several processes at once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/units.h"
#include "images/manifest.h"

namespace anchorhold::images {

struct ImageInfo {
  std::string name;
  // Whether its manifest is signed by a trusted key and its files are there in full size; contents are not
  // read.
  bool usable = false;
  std::string problem;  // when it is not
  std::string description;
  std::string kernel_version;
  std::string key_id;
  ByteSize size;
  std::int64_t built_unix_seconds = 0;
};

struct CollectedGarbage {
  std::vector<std::string> removed;
  ByteSize freed;
  std::vector<std::string> unreadable;  // images without a manifest that can be read: no stage was removed
};

class ImageStore {
 public:
  // `root` is made when it is not there. `trusted` are folders of public keys.
  static Result<ImageStore> open(std::filesystem::path root, std::vector<std::filesystem::path> trusted);
  // The person's own: <cache>/images, keys in <config>/image-keys/trusted and /etc/anchorhold/image-keys.
  static Result<ImageStore> open_default();

  const std::filesystem::path& root() const { return root_; }
  std::filesystem::path image_folder(std::string_view name) const { return root_ / "images" / name; }

  // All images, by name. Does not read their files; see VerifiedImage for that.
  Result<std::vector<ImageInfo>> list() const;
  // Forgets the image; its stages stay until collect_garbage(). Running guests keep what they have open.
  // While a build is under way: unavailable.
  Status remove(const std::string& name) const;
  // Removes builds that were given up and stages that no image uses, as far as that can be said of each
  // image. While a build is under way: unavailable.
  Result<CollectedGarbage> collect_garbage() const;

  // The manifest, after its signature was found good.
  struct SignedManifest {
    Manifest manifest;
    std::string key_id;
  };
  Result<SignedManifest> read_manifest(const std::string& name) const;
  // Held by whoever changes the store.
  Result<FileLock> lock(FileLock::Wait wait) const;

 private:
  ImageStore(std::filesystem::path root, std::vector<std::filesystem::path> trusted)
      : root_(std::move(root)), trusted_(std::move(trusted)) {}
  std::filesystem::path root_;
  std::vector<std::filesystem::path> trusted_;
};

}  // namespace anchorhold::images
