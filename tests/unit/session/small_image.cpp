#include "small_image.h"

#include <openssl/evp.h>

#include "base/files.h"
#include "images/signature.h"

namespace anchorhold::session {
namespace {

std::string sha256(const std::string& bytes) {
  std::string digest(32, '\0');
  EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(digest.data()), nullptr,
             EVP_sha256(), nullptr);
  return digest;
}

std::string hex(const std::string& bytes) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (unsigned char byte : bytes) {
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

// A file of one piece (images/manifest.h, Digest).
Result<images::Component> add_file(const std::filesystem::path& root, const std::string& name,
                                   const std::string& bytes) {
  ANCHORHOLD_CHECK(make_directories((root / name).parent_path()));
  ANCHORHOLD_CHECK(write_file_atomic(root / name, bytes));
  return images::Component{name, bytes.size(), hex(sha256(sha256(bytes)))};
}

}  // namespace

Result<images::ImageStore> make_small_image(const std::filesystem::path& folder) {
  const auto root = folder / "store", keys = folder / "keys";
  auto key = ANCHORHOLD_TRY(images::SigningKey::load_or_create(keys));
  auto store = ANCHORHOLD_TRY(images::ImageStore::open(root, {keys / "trusted"}));
  images::Manifest manifest;
  manifest.name = "small";
  manifest.kernel_version = "6.1.0";
  manifest.builder = "test";
  manifest.kernel = ANCHORHOLD_TRY(add_file(root, "stages/kernel-1/vmlinux", "kernel"));
  manifest.rootfs = ANCHORHOLD_TRY(add_file(root, "stages/rootfs-1/rootfs.img", std::string(8192, 'r')));
  manifest.initrd = ANCHORHOLD_TRY(add_file(root, "stages/initrd-1/initrd", "initrd"));
  manifest.verity = {std::string(64, 'a'), "00", 1};
  const std::string text = images::serialize(manifest);
  ANCHORHOLD_CHECK(make_directories(store.image_folder("small")));
  ANCHORHOLD_CHECK(write_file_atomic(store.image_folder("small") / "manifest.json", text));
  ANCHORHOLD_CHECK(write_file_atomic(store.image_folder("small") / "manifest.sig", key.sign(text)));
  return store;
}

}  // namespace anchorhold::session
