// The guest image that ANCHORHOLD_TEST_IMAGE names: an image of the person's store, or the folder of an image
// in another store. Without the variable no guest is started and tests skip, loudly; a name that is no image
// is an exception, which fails the test: whoever set it wants guests.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace anchorhold::testing {

struct TestImage {
  std::filesystem::path store;
  std::filesystem::path keys;
  std::string name;
  std::filesystem::path kernel;
  std::filesystem::path rootfs;  // EROFS, with its hash tree behind
};

const std::optional<TestImage>& test_image();
// Why tests skip without one.
inline constexpr const char* no_test_image =
    "ANCHORHOLD_TEST_IMAGE names no guest image: no guest is started";

}  // namespace anchorhold::testing
