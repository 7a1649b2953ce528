// Nothing boots whose bytes are not the signed ones: every file, every kind of damage.
#include "images/verified_image.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tiny_recipe.h"

namespace anchorhold::images {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

void flip(const fs::path& path, off_t offset) {
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(fd) << path;
  char byte = 0;
  ASSERT_EQ(pread(fd.get(), &byte, 1, offset), 1);
  byte = static_cast<char>(byte ^ 1);
  ASSERT_EQ(pwrite(fd.get(), &byte, 1, offset), 1);
}

class VerifiedImageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto built = tiny_.build();
    ASSERT_TRUE(built) << built.error().message;
    manifest_ = built->manifest;
  }
  fs::path file(const Component& component) { return tiny_.path("store") / component.file; }
  fs::path folder() { return tiny_.store().image_folder("tiny"); }
  // The image is refused, the error names the file and how to repair it, and building does.
  void expect_refusal(const std::string& name, bool repairable = true) {
    auto image = tiny_.verify();
    ASSERT_FALSE(image) << name;
    EXPECT_THAT(image.error().message, HasSubstr(name));
    EXPECT_THAT(image.error().hint, HasSubstr("anchorhold image build tiny"));
    if (!repairable) return;
    auto built = tiny_.build();
    ASSERT_TRUE(built) << name << ": " << built.error().message;
    EXPECT_TRUE(built->changed);
    EXPECT_TRUE(tiny_.verify()) << name;
  }

  TinyRecipe tiny_;
  Manifest manifest_;
};

TEST_F(VerifiedImageTest, AFlippedByteAnywhereIsRefused) {
  for (const auto* component : {&manifest_.kernel, &manifest_.rootfs, &manifest_.initrd}) {
    auto path = file(*component);
    for (off_t offset :
         {off_t(0), static_cast<off_t>(component->size / 2), static_cast<off_t>(component->size - 1)}) {
      flip(path, offset);
      expect_refusal(path.filename());
    }
  }
}

TEST_F(VerifiedImageTest, AFlippedByteInTheHashTreeIsRefused) {
  ASSERT_GT(manifest_.rootfs.size, manifest_.verity.data_blocks * verity_block_bytes);
  flip(file(manifest_.rootfs), static_cast<off_t>(manifest_.verity.data_blocks * verity_block_bytes));
  expect_refusal("rootfs.img");
}

TEST_F(VerifiedImageTest, EveryByteOfManifestAndSignatureCounts) {
  for (const char* name : {"manifest.json", "manifest.sig"}) {
    auto size = static_cast<off_t>(fs::file_size(folder() / name));
    // The last byte of a signature file is the line's end, which means nothing.
    for (off_t offset = 0; offset < size - 1; ++offset) {
      flip(folder() / name, offset);
      auto image = tiny_.verify();
      ASSERT_FALSE(image) << name << " at " << offset;
      EXPECT_THAT(image.error().message, HasSubstr(name));
      flip(folder() / name, offset);
    }
    ASSERT_TRUE(tiny_.verify());
    flip(folder() / name, size / 2);
    expect_refusal(name);
  }
}

TEST_F(VerifiedImageTest, TruncatedAndLengthenedFilesAreRefused) {
  for (const auto* component : {&manifest_.kernel, &manifest_.rootfs, &manifest_.initrd}) {
    auto path = file(*component);
    fs::resize_file(path, component->size - 1);
    expect_refusal(path.filename());
    fs::resize_file(path, 0);
    expect_refusal(path.filename());
    fs::resize_file(path, component->size + 1);
    expect_refusal(path.filename());
  }
  for (const char* name : {"manifest.json", "manifest.sig"}) {
    fs::resize_file(folder() / name, fs::file_size(folder() / name) / 2);
    expect_refusal(name);
    fs::resize_file(folder() / name, 0);
    expect_refusal(name);
  }
}

TEST_F(VerifiedImageTest, MissingFilesAreRefused) {
  for (const auto* component : {&manifest_.kernel, &manifest_.rootfs, &manifest_.initrd}) {
    fs::remove(file(*component));
    expect_refusal(file(*component).filename());
  }
  fs::remove(folder() / "manifest.sig");
  expect_refusal("manifest.sig");
  fs::remove(folder() / "manifest.json");
  expect_refusal("there is no image \"tiny\"");
}

TEST_F(VerifiedImageTest, OddFilesAreRefusedWithoutWaiting) {
  auto kernel = file(manifest_.kernel);
  fs::rename(kernel, tiny_.path("elsewhere"));
  fs::create_symlink(tiny_.path("elsewhere"), kernel);
  EXPECT_FALSE(tiny_.verify());  // the right bytes, but not in the store
  fs::remove(kernel);
  ASSERT_EQ(mkfifo(kernel.c_str(), 0600), 0);
  expect_refusal("vmlinux");
}

TEST_F(VerifiedImageTest, AnotherPersonsSignatureIsRefused) {
  auto theirs = SigningKey::load_or_create(tiny_.path("their-keys"));
  ASSERT_TRUE(theirs);
  auto text = read_file(folder() / "manifest.json", 100000);
  ASSERT_TRUE(text);
  ASSERT_TRUE(write_file_atomic(folder() / "manifest.sig", theirs->sign(*text)));
  expect_refusal("not trusted");
}

TEST_F(VerifiedImageTest, AnImageUnderAnotherNameIsRefused) {
  fs::copy(folder(), tiny_.store().image_folder("other"));
  auto image = VerifiedImage::verify(tiny_.store(), "other");
  ASSERT_FALSE(image);
  EXPECT_THAT(image.error().message, HasSubstr("it is the manifest of \"tiny\""));
}

TEST_F(VerifiedImageTest, NamesThatAreNoNamesAreRefused) {
  for (const char* name : {"", ".", "..", "../images/tiny", "/etc", "Tiny"})
    EXPECT_FALSE(VerifiedImage::verify(tiny_.store(), name)) << name;
}

TEST_F(VerifiedImageTest, KeepsTheCheckedBytesOpen) {
  auto image = tiny_.verify();
  ASSERT_TRUE(image);
  auto path = image->kernel().path;
  ASSERT_TRUE(write_file_atomic(path, "replaced"));
  std::string bytes(manifest_.kernel.size, '\0');
  ASSERT_EQ(pread(image->kernel().descriptor.get(), bytes.data(), bytes.size(), 0),
            static_cast<ssize_t>(bytes.size()));
  EXPECT_THAT(bytes, HasSubstr("Linux version 6.1-tiny"));
  EXPECT_NE(fcntl(image->kernel().descriptor.get(), F_GETFL) & O_ACCMODE, O_RDWR);
}

TEST_F(VerifiedImageTest, TheCommandLineHasTheTreesParameters) {
  auto image = tiny_.verify();
  ASSERT_TRUE(image);
  EXPECT_EQ(image->kernel_command_line("/dev/vda", ByteSize::mib(1)),
            "dm-mod.create=\"root,,,ro,0 40 verity 1 /dev/vda /dev/vda 4096 4096 5 5 sha256 " +
                manifest_.verity.root_hash +
                " 616e63686f72686f6c64 1 panic_on_corruption\" anchorhold.root=/dev/dm-0 "
                "anchorhold.scratch=1048576");
}

}  // namespace
}  // namespace anchorhold::images
