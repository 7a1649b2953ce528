#include "vault/vault_file.h"

#include <gtest/gtest.h>

namespace anchorhold::vault {
namespace {

Secret passphrase(std::string_view words = "correct horse") {
  return Secret::of(words);
}

Entries some_entries() {
  Entries entries;
  entries["aws"] = Secret::of("secret-key\nsession-token");
  entries["github"] = Secret::of("ghp_0123456789");
  return entries;
}

struct Sealed {
  VaultKey key;
  std::string file;
};
Sealed sealed(KeySource source = KeySource::passphrase) {
  Secret material = source == KeySource::passphrase ? passphrase() : Secret::of(std::string(32, 'k'));
  Sealed made;
  made.key = *new_vault_key(source, material, PassphraseCost::interactive);
  made.file = seal_vault(made.key, some_entries());
  return made;
}

TEST(VaultFile, GivesBackWhatWasWritten) {
  for (KeySource source : {KeySource::passphrase, KeySource::login_key}) {
    auto [key, file] = sealed(source);
    EXPECT_EQ(file.find("ghp_"), std::string::npos);
    EXPECT_EQ(file.find("github"), std::string::npos);
    auto header = parse_vault_header(file);
    ASSERT_TRUE(header) << header.error().message;
    EXPECT_EQ(header->source, source);
    EXPECT_TRUE(header->same_key(key.header));
    auto opened = open_vault(file, key.key);
    ASSERT_TRUE(opened) << opened.error().message;
    ASSERT_EQ(opened->size(), 2u);
    EXPECT_EQ(opened->at("aws").expose(), "secret-key\nsession-token");
    EXPECT_EQ(opened->at("github").expose(), "ghp_0123456789");
  }
}

TEST(VaultFile, IsAnotherFileEachTimeAndTellsNoLength) {
  auto [key, file] = sealed();
  auto again = seal_vault(key, some_entries());
  EXPECT_NE(again, file);
  EXPECT_EQ(seal_vault(key, {}).size(), file.size());
}

TEST(VaultFile, AnotherPassphraseIsToldFromDamage) {
  auto [key, file] = sealed();
  auto header = *parse_vault_header(file);
  EXPECT_TRUE(vault_key(header, passphrase()));
  EXPECT_EQ(vault_key(header, passphrase("wrong")).error().code, ErrorCode::permission_denied);
  EXPECT_EQ(vault_key(header, passphrase("")).error().code, ErrorCode::permission_denied);
}

TEST(VaultFile, EveryFlippedBitIsFoundAndNothingIsGivenOut) {
  auto [key, file] = sealed();
  // Each bit of what is not secret and of the first and last bytes that are.
  for (std::size_t at = 0; at < file.size(); at += at < 200 || at + 40 > file.size() ? 1 : 97) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = file;
      changed[at] = static_cast<char>(changed[at] ^ 1 << bit);
      auto opened = open_vault(changed, key.key);
      ASSERT_FALSE(opened) << "bit " << bit << " of byte " << at;
      EXPECT_EQ(opened.error().code, ErrorCode::data_loss);
    }
  }
}

TEST(VaultFile, EveryTruncationIsFound) {
  auto [key, file] = sealed();
  for (std::size_t size = 0; size < file.size(); size += size < 200 ? 1 : 61)
    ASSERT_FALSE(open_vault(file.substr(0, size), key.key)) << size;
  EXPECT_FALSE(open_vault(file + '\0', key.key));
  EXPECT_FALSE(open_vault(file + file, key.key));
}

TEST(VaultFile, AHeaderThatAsksForTooMuchWorkIsRefused) {
  auto file = sealed().file;
  auto with = [&](std::size_t at, std::uint64_t value) {
    std::string changed = file;
    for (std::size_t i = 0; i < 8; ++i) changed[at + i] = static_cast<char>(value >> (8 * i));
    return parse_vault_header(changed).has_value();
  };
  EXPECT_TRUE(with(16, 3));
  EXPECT_FALSE(with(16, 0));
  EXPECT_FALSE(with(16, 1u << 20));
  EXPECT_TRUE(with(24, 256u << 20));
  EXPECT_FALSE(with(24, 0));
  EXPECT_FALSE(with(24, std::uint64_t{1} << 40));
  EXPECT_FALSE(with(8, 3));
  EXPECT_FALSE(with(8, 2)) << "a login key takes no work";
}

TEST(VaultFile, EntriesAreReadStrictly) {
  using namespace std::string_literals;
  EXPECT_TRUE(parse_entries("\0\0"s));
  EXPECT_TRUE(parse_entries("\1\0a\3\0\0\0xyz\0\0\0\0"s));
  const std::string bad[] = {
      ""s,
      "\0"s,
      "\1\0a"s,
      "\1\0a\3\0\0\0xy"s,
      "\1\0a\xff\xff\xff\xffxyz\0\0"s,
      "\xff\xff"s + "a",
      "\0\0x"s,
      "\1\0a\1\0\0\0x\1\0a\1\0\0\0y\0\0"s,
      "\1\0a\3\0\0\0xyz"s,
  };
  for (const auto& bytes : bad) EXPECT_FALSE(parse_entries(bytes)) << bytes;
}

}  // namespace
}  // namespace anchorhold::vault
