#include "digest.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include "base/files.h"

namespace anchorhold::images {
namespace {

TEST(Digest, Sha256IsTheStandards) {
  Sha256 hash;
  hash.update("abc");
  EXPECT_EQ(to_hex(hash.finish()),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");  // FIPS 180-4
  EXPECT_EQ(to_hex(hash.finish()), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

std::string by_hand(const std::string& bytes) {
  std::string digests;
  for (std::size_t at = 0; at < bytes.size(); at += digest_piece_bytes) {
    Sha256 piece;
    piece.update(std::string_view(bytes).substr(at, digest_piece_bytes));
    digests += piece.finish();
  }
  Sha256 all;
  all.update(digests);
  return to_hex(all.finish());
}

TEST(Digest, OfAFileIsThatOfItsPieces) {
  auto directory = TemporaryDirectory::create("digest-test");
  ASSERT_TRUE(directory);
  auto path = directory->path() / "file";
  for (std::size_t size :
       {std::size_t(1), std::size_t(digest_piece_bytes) - 1, std::size_t(digest_piece_bytes),
        std::size_t(digest_piece_bytes) + 1, std::size_t(5 * digest_piece_bytes + 777)}) {
    std::string bytes(size, '\0');
    for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 2654435761u >> 13);
    ASSERT_TRUE(write_file_atomic(path, bytes));
    UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    auto digest = digest_file(fd.get(), size);
    ASSERT_TRUE(digest);
    EXPECT_EQ(*digest, by_hand(bytes));
    auto longer = digest_file(fd.get(), size + 1);
    ASSERT_FALSE(longer);
    EXPECT_EQ(longer.error().code, ErrorCode::data_loss);
  }
}

TEST(Digest, HexadecimalIsStrict) {
  EXPECT_EQ(from_hex("00ff10", 3), std::string("\0\xff\x10", 3));
  EXPECT_EQ(from_hex("00FF10", 3), "");
  EXPECT_EQ(from_hex("00ff1", 3), "");
  EXPECT_EQ(from_hex("00ff1g", 3), "");
}

}  // namespace
}  // namespace anchorhold::images
