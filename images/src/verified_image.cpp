#include "images/verified_image.h"

#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include "digest.h"

namespace anchorhold::images {
namespace {

tl::unexpected<Error> refuse(const std::filesystem::path& path, const std::string& name, ErrorCode code,
                             std::string_view why) {
  return fail(code, fmt::format("image \"{}\": {} {}", name, path.string(), why),
              fmt::format("run: anchorhold image build {}", name));
}

Result<VerifiedImage::File> open_component(const ImageStore& store, const std::string& name,
                                           const Component& component) {
  VerifiedImage::File file{store.root() / component.file, {}};
  file.descriptor.reset(open(file.path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file.descriptor && errno == ENOENT)
    return refuse(file.path, name, ErrorCode::failed_precondition, "is missing");
  if (!file.descriptor)
    return fail_errno(errno, fmt::format("image \"{}\": opening {}", name, file.path.string()));
  struct stat info;
  if (fstat(file.descriptor.get(), &info) != 0 || !S_ISREG(info.st_mode))
    return refuse(file.path, name, ErrorCode::data_loss, "is not a regular file");
  if (static_cast<std::uint64_t>(info.st_size) != component.size)
    return refuse(file.path, name, ErrorCode::data_loss,
                  fmt::format("is {} bytes long instead of {}", info.st_size, component.size));
  return file;
}

Status check_component(const VerifiedImage::File& file, const std::string& name, const Component& component) {
  auto digest = digest_file(file.descriptor.get(), component.size);
  if (!digest) return refuse(file.path, name, digest.error().code, digest.error().message);
  if (*digest != component.digest)
    return refuse(file.path, name, ErrorCode::data_loss, "was changed: its digest is not the signed one");
  return {};
}

}  // namespace

Result<VerifiedImage> VerifiedImage::verify(const ImageStore& store, const std::string& name) {
  auto signed_manifest = ANCHORHOLD_TRY(store.read_manifest(name));
  VerifiedImage image;
  image.manifest_ = std::move(signed_manifest.manifest);
  image.key_id_ = std::move(signed_manifest.key_id);
  const Manifest& manifest = image.manifest_;
  image.kernel_ = ANCHORHOLD_TRY(open_component(store, name, manifest.kernel));
  image.rootfs_ = ANCHORHOLD_TRY(open_component(store, name, manifest.rootfs));
  image.initrd_ = ANCHORHOLD_TRY(open_component(store, name, manifest.initrd));
  ANCHORHOLD_CHECK(check_component(image.kernel_, name, manifest.kernel));
  ANCHORHOLD_CHECK(check_component(image.initrd_, name, manifest.initrd));
  ANCHORHOLD_CHECK(check_component(image.rootfs_, name, manifest.rootfs));
  return image;
}

std::string VerifiedImage::kernel_command_line(std::string_view device, ByteSize scratch) const {
  const Verity& verity = manifest_.verity;
  // dm-mod.create: Linux, Documentation/admin-guide/device-mapper/dm-init.rst. Sizes of the table are
  // 512-byte sectors.
  return fmt::format(
      "dm-mod.create=\"root,,,ro,0 {} verity 1 {} {} {} {} {} {} sha256 {} {} 1 panic_on_corruption\" "
      "anchorhold.root=/dev/dm-0 anchorhold.scratch={}",
      verity.data_blocks * (verity_block_bytes / 512), device, device, verity_block_bytes, verity_block_bytes,
      verity.data_blocks, verity.data_blocks, verity.root_hash, verity.salt, scratch.bytes);
}

}  // namespace anchorhold::images
