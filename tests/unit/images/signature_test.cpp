#include "images/signature.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/files.h"

namespace anchorhold::images {
namespace {

class SignatureTest : public ::testing::Test {
 protected:
  std::filesystem::path folder(const char* name) { return directory_->path() / name; }
  SigningKey key(const char* name) { return SigningKey::load_or_create(folder(name)).value(); }
  std::vector<PublicKey> trusted(const char* name) {
    return load_trusted_keys({folder(name) / "trusted"}).value();
  }

  Result<TemporaryDirectory> directory_ = TemporaryDirectory::create("signature-test");
};

TEST_F(SignatureTest, OwnKeyIsMadeOnceAndTrusted) {
  auto first = key("a");
  auto second = key("a");
  EXPECT_EQ(first.public_key().id, second.public_key().id);
  struct stat info;
  ASSERT_EQ(stat((folder("a") / "signing.key").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  auto id = check_signature("text", second.sign("text"), trusted("a"));
  ASSERT_TRUE(id) << id.error().message;
  EXPECT_EQ(*id, first.public_key().id);
}

TEST_F(SignatureTest, AnotherKeyOrAnotherTextIsRefused) {
  auto ours = key("a");
  auto theirs = key("b");
  auto unknown = check_signature("text", theirs.sign("text"), trusted("a"));
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::permission_denied);
  EXPECT_FALSE(check_signature("Text", ours.sign("text"), trusted("a")));
  EXPECT_FALSE(check_signature("", ours.sign("text"), trusted("a")));
  // Their signature under our key's name.
  auto forged = theirs.sign("text");
  forged.replace(forged.find(theirs.public_key().id), 16, ours.public_key().id);
  auto result = check_signature("text", forged, trusted("a"));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::data_loss);
}

TEST_F(SignatureTest, EveryChangedCharacterCounts) {
  auto ours = key("a");
  auto keys = trusted("a");
  auto good = ours.sign("text");
  for (std::size_t i = 0; i + 1 < good.size(); ++i) {
    auto bad = good;
    bad[i] = bad[i] == '0' ? '1' : '0';
    EXPECT_FALSE(check_signature("text", bad, keys)) << i;
    EXPECT_FALSE(check_signature("text", good.substr(0, i), keys)) << i;
  }
}

TEST_F(SignatureTest, NobodyIsTrustedWhereThereAreNoKeys) {
  auto keys = load_trusted_keys({folder("absent")});
  ASSERT_TRUE(keys);
  EXPECT_TRUE(keys->empty());
  EXPECT_FALSE(check_signature("text", key("a").sign("text"), *keys));
}

TEST_F(SignatureTest, AMalformedKeyIsAnErrorThatNamesIt) {
  key("a");
  ASSERT_TRUE(write_file_atomic(folder("a") / "trusted" / "x.pub", "anchorhold-ed25519 zz\n"));
  auto keys = load_trusted_keys({folder("a") / "trusted"});
  ASSERT_FALSE(keys);
  EXPECT_NE(keys.error().message.find("x.pub"), std::string::npos);
}

TEST_F(SignatureTest, ASecretKeyThatOthersCanReadIsRefused) {
  key("a");
  ASSERT_EQ(chmod((folder("a") / "signing.key").c_str(), 0644), 0);
  auto again = SigningKey::load_or_create(folder("a"));
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::permission_denied);
  EXPECT_NE(again.error().message.find("signing.key"), std::string::npos);
}

}  // namespace
}  // namespace anchorhold::images
