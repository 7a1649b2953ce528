#include "images/manifest.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "digest.h"
#include "json_number.h"

namespace anchorhold::images {
namespace {

using nlohmann::json;

constexpr std::uint64_t max_component_bytes = std::uint64_t(1) << 40;

bool is_lower_alnum(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

// "stages/rootfs-0123/rootfs.img": cannot leave the store, whatever it says.
bool is_plain_path(std::string_view path) {
  if (path.empty() || path.size() > 200) return false;
  for (std::size_t start = 0; start <= path.size();) {
    std::size_t end = std::min(path.find('/', start), path.size());
    std::string_view part = path.substr(start, end - start);
    if (part.empty() || part.front() == '.') return false;
    if (!std::all_of(part.begin(), part.end(), [](char c) {
          return is_lower_alnum(c) || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' || c == '.';
        }))
      return false;
    start = end + 1;
  }
  return true;
}

// A line for people: printable, short.
bool is_line(std::string_view text) {
  return text.size() <= 400 &&
         std::none_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

Result<Component> read_component(const json& document) {
  Component component;
  component.file = document.at("file").get<std::string>();
  component.size = unsigned_at(document, "size");
  component.digest = document.at("digest").get<std::string>();
  if (component.size == 0 || component.size > max_component_bytes)
    return fail(ErrorCode::invalid_argument, "a size is out of range");
  if (!is_plain_path(component.file)) return fail(ErrorCode::invalid_argument, "a file name is not allowed");
  if (!is_hex(component.digest, 64)) return fail(ErrorCode::invalid_argument, "a digest is malformed");
  return component;
}

Result<Verity> read_verity(const json& document, const Component& rootfs) {
  Verity verity;
  verity.root_hash = document.at("root_hash").get<std::string>();
  verity.salt = document.at("salt").get<std::string>();
  verity.data_blocks = unsigned_at(document, "data_blocks");
  if (!is_hex(verity.root_hash, 64)) return fail(ErrorCode::invalid_argument, "the root hash is malformed");
  if (verity.salt.empty() || verity.salt.size() > 512 || verity.salt.size() % 2 != 0 ||
      !is_hex(verity.salt, verity.salt.size()))
    return fail(ErrorCode::invalid_argument, "the salt is malformed");
  if (verity.data_blocks == 0 || verity.data_blocks > rootfs.size / verity_block_bytes)
    return fail(ErrorCode::invalid_argument, "there are more data blocks than the root file system has");
  return verity;
}

Result<Manifest> read_manifest(const json& document) {
  if (document.at("format") != Manifest::current_format)
    return fail(ErrorCode::unsupported, fmt::format("its format is {}, this program knows {}",
                                                    document.at("format").dump(), Manifest::current_format));
  Manifest manifest;
  manifest.name = document.at("name").get<std::string>();
  manifest.description = document.at("description").get<std::string>();
  manifest.kernel_version = document.at("kernel_version").get<std::string>();
  manifest.builder = document.at("builder").get<std::string>();
  if (!is_valid_name(manifest.name)) return fail(ErrorCode::invalid_argument, "the name is not allowed");
  if (!is_line(manifest.description) || !is_line(manifest.kernel_version) || !is_line(manifest.builder))
    return fail(ErrorCode::invalid_argument, "a text is not allowed");
  manifest.kernel = ANCHORHOLD_TRY(read_component(document.at("kernel")));
  manifest.rootfs = ANCHORHOLD_TRY(read_component(document.at("rootfs")));
  manifest.initrd = ANCHORHOLD_TRY(read_component(document.at("initrd")));
  manifest.verity = ANCHORHOLD_TRY(read_verity(document.at("verity"), manifest.rootfs));
  return manifest;
}

nlohmann::ordered_json to_json(const Component& component) {
  return {{"file", component.file}, {"size", component.size}, {"digest", component.digest}};
}

}  // namespace

bool is_valid_name(std::string_view name) {
  return !name.empty() && name.size() <= 32 && is_lower_alnum(name.front()) &&
         std::all_of(name.begin(), name.end(), [](char c) { return is_lower_alnum(c) || c == '-'; });
}

Result<Manifest> parse_manifest(std::string_view text) {
  if (text.size() > max_manifest_bytes) return fail(ErrorCode::invalid_argument, "the manifest is too large");
  try {
    auto manifest = read_manifest(json::parse(text));
    if (!manifest) return fail(with_context(manifest.error(), "the manifest is not valid"));
    return manifest;
  } catch (const json::exception& error) {
    return fail(ErrorCode::invalid_argument, fmt::format("the manifest is not valid: {}", error.what()));
  }
}

std::string serialize(const Manifest& manifest) {
  nlohmann::ordered_json document;
  document["format"] = Manifest::current_format;
  document["name"] = manifest.name;
  document["description"] = manifest.description;
  document["kernel_version"] = manifest.kernel_version;
  document["builder"] = manifest.builder;
  document["kernel"] = to_json(manifest.kernel);
  document["rootfs"] = to_json(manifest.rootfs);
  document["initrd"] = to_json(manifest.initrd);
  document["verity"] = {{"root_hash", manifest.verity.root_hash},
                        {"salt", manifest.verity.salt},
                        {"data_blocks", manifest.verity.data_blocks}};
  return document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace anchorhold::images
