#include "images/manifest.h"

#include <functional>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace anchorhold::images {
namespace {

Manifest example() {
  Manifest manifest;
  manifest.name = "base";
  manifest.description = "shell and Python";
  manifest.kernel_version = "6.1.0-anchorhold";
  manifest.builder = "anchorhold 0.1.0";
  manifest.kernel = {"stages/kernel-01/vmlinux", 4096, std::string(64, 'a')};
  manifest.rootfs = {"stages/rootfs-02/rootfs.img", 8 * 4096, std::string(64, 'b')};
  manifest.initrd = {"stages/initrd-03/initrd.img", 512, std::string(64, 'c')};
  manifest.verity = {std::string(64, 'd'), "00ff", 7};
  return manifest;
}

TEST(Manifest, ComesBackAsItWas) {
  auto manifest = parse_manifest(serialize(example()));
  ASSERT_TRUE(manifest) << manifest.error().message;
  EXPECT_EQ(*manifest, example());
  EXPECT_EQ(serialize(*manifest), serialize(example()));
}

struct Breakage {
  const char* what;
  std::function<void(nlohmann::json&)> apply;
};

TEST(Manifest, RefusesWhatBreaksItsRules) {
  const Breakage breakages[] = {
      {"another format", [](auto& d) { d["format"] = 2; }},
      {"format as text", [](auto& d) { d["format"] = "1"; }},
      {"no name", [](auto& d) { d.erase("name"); }},
      {"a path as name", [](auto& d) { d["name"] = "../base"; }},
      {"an empty name", [](auto& d) { d["name"] = ""; }},
      {"a long name", [](auto& d) { d["name"] = std::string(33, 'a'); }},
      {"control characters", [](auto& d) { d["description"] = "a\x1b[31mb"; }},
      {"a huge text", [](auto& d) { d["builder"] = std::string(1000, 'x'); }},
      {"no kernel", [](auto& d) { d.erase("kernel"); }},
      {"kernel as text", [](auto& d) { d["kernel"] = "vmlinux"; }},
      {"an absolute file", [](auto& d) { d["kernel"]["file"] = "/etc/shadow"; }},
      {"a file outside", [](auto& d) { d["rootfs"]["file"] = "stages/../../x"; }},
      {"a hidden file", [](auto& d) { d["initrd"]["file"] = "stages/.x"; }},
      {"a double slash", [](auto& d) { d["initrd"]["file"] = "stages//x"; }},
      {"a trailing slash", [](auto& d) { d["initrd"]["file"] = "stages/x/"; }},
      {"an odd character", [](auto& d) { d["initrd"]["file"] = "stages/x,y"; }},
      {"size zero", [](auto& d) { d["kernel"]["size"] = 0; }},
      {"a negative size", [](auto& d) { d["kernel"]["size"] = -1; }},
      {"a fraction", [](auto& d) { d["kernel"]["size"] = 4096.5; }},
      {"a huge size", [](auto& d) { d["kernel"]["size"] = std::uint64_t(1) << 60; }},
      {"a short digest", [](auto& d) { d["kernel"]["digest"] = "aa"; }},
      {"a digest in capitals", [](auto& d) { d["kernel"]["digest"] = std::string(64, 'A'); }},
      {"no root hash", [](auto& d) { d["verity"].erase("root_hash"); }},
      {"a root hash with a space", [](auto& d) { d["verity"]["root_hash"] = std::string(63, 'a') + " "; }},
      {"an odd salt", [](auto& d) { d["verity"]["salt"] = "abc"; }},
      {"a salt that ends the word", [](auto& d) { d["verity"]["salt"] = "ab\" init=/bin/sh"; }},
      {"an empty salt", [](auto& d) { d["verity"]["salt"] = ""; }},
      {"no blocks", [](auto& d) { d["verity"]["data_blocks"] = 0; }},
      {"more blocks than bytes", [](auto& d) { d["verity"]["data_blocks"] = 9; }},
  };
  for (const auto& breakage : breakages) {
    auto document = nlohmann::json::parse(serialize(example()));
    breakage.apply(document);
    EXPECT_FALSE(parse_manifest(document.dump())) << breakage.what;
  }
}

TEST(Manifest, RefusesWhatIsNoDocument) {
  std::string text = serialize(example());
  EXPECT_FALSE(parse_manifest(""));
  EXPECT_FALSE(parse_manifest("[]"));
  EXPECT_FALSE(parse_manifest(std::string(100000, '[')));
  EXPECT_FALSE(parse_manifest(text + std::string(max_manifest_bytes, ' ')));
  EXPECT_FALSE(parse_manifest(text + "x"));
  for (std::size_t length = 0; length + 2 < text.size(); ++length)
    EXPECT_FALSE(parse_manifest(text.substr(0, length))) << length;
}

TEST(Manifest, NamesAreShortAndPlain) {
  for (const char* name : {"base", "full", "a", "0", "my-image-2"}) EXPECT_TRUE(is_valid_name(name)) << name;
  for (const char* name : {"", "-a", "A", "a_b", "a.b", "a/b", "..", "a b", "ä"})
    EXPECT_FALSE(is_valid_name(name)) << name;
}

}  // namespace
}  // namespace anchorhold::images
