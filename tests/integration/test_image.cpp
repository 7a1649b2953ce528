#include "test_image.h"

#include <cstdlib>
#include <stdexcept>

#include "images/build.h"
#include "images/store.h"

namespace anchorhold::testing {
namespace {

template <typename T>
T need(Result<T> result) {
  if (!result) throw std::runtime_error("ANCHORHOLD_TEST_IMAGE: " + result.error().message);
  return std::move(*result);
}

std::optional<TestImage> find_test_image() {
  const char* variable = std::getenv("ANCHORHOLD_TEST_IMAGE");
  if (!variable || !*variable) return std::nullopt;
  std::filesystem::path named(variable);
  auto store = need(named.has_parent_path() ? images::ImageStore::open(named.parent_path().parent_path(), {})
                                            : images::ImageStore::open_default());
  TestImage image;
  image.store = store.root();
  image.keys = need(images::default_key_folder());
  image.name = named.filename().string();
  auto manifest = need(store.read_manifest(image.name)).manifest;
  image.kernel = store.root() / manifest.kernel.file;
  image.rootfs = store.root() / manifest.rootfs.file;
  return image;
}

}  // namespace

const std::optional<TestImage>& test_image() {
  static const std::optional<TestImage> image = find_test_image();
  return image;
}

}  // namespace anchorhold::testing
