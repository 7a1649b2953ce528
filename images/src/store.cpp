#include "images/store.h"

#include <algorithm>
#include <cerrno>
#include <fmt/format.h>
#include <set>
#include <sys/stat.h>

#include "base/id.h"
#include "base/paths.h"
#include "images/signature.h"

namespace anchorhold::images {
namespace fs = std::filesystem;
namespace {

std::string build_hint(const std::string& name) {
  return fmt::format("run: anchorhold image build {}", name);
}

// Bytes on disk of everything below a path.
ByteSize size_of_tree(const fs::path& path) {
  ByteSize size;
  std::error_code error;
  for (fs::recursive_directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    struct stat info;
    if (lstat(it->path().c_str(), &info) == 0) size.bytes += static_cast<std::uint64_t>(info.st_blocks) * 512;
  }
  return size;
}

Status remove_tree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) return fail_errno(error.value(), fmt::format("removing {}", path.string()));
  return {};
}

Result<std::vector<fs::path>> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    entries.push_back(it->path());
  if (error) return fail_errno(error.value(), fmt::format("reading {}", folder.string()));
  std::sort(entries.begin(), entries.end());
  return entries;
}

struct UsedStages {
  std::set<std::string> folders;
  std::vector<std::string> unreadable;  // images of which it cannot be said what they use
};

// Signatures do not count: garbage collection loses nothing that a person could still want to look at.
Result<UsedStages> stages_in_use(const fs::path& images) {
  UsedStages used;
  for (const auto& folder : ANCHORHOLD_TRY(entries_of(images))) {
    auto text = read_file(folder / "manifest.json", max_manifest_bytes);
    if (!text && text.error().code == ErrorCode::not_found) continue;
    auto manifest = text ? parse_manifest(*text) : Result<Manifest>(fail(text.error()));
    if (!manifest) {
      used.unreadable.push_back(folder.filename());
      continue;
    }
    for (const auto* component : {&manifest->kernel, &manifest->rootfs, &manifest->initrd})
      used.folders.insert(fs::path(component->file).parent_path().filename());
  }
  return used;
}

// Removing does not wait for a build, which may take minutes.
Result<FileLock> lock_for_removal(const ImageStore& store) {
  auto held = store.lock(FileLock::Wait::no);
  if (!held && held.error().code == ErrorCode::unavailable)
    return fail(ErrorCode::unavailable, "an image is being built in this store",
                "try again when the build has ended");
  return held;
}

std::string size_problem(const fs::path& root, const Manifest& manifest) {
  for (const auto* component : {&manifest.kernel, &manifest.rootfs, &manifest.initrd}) {
    struct stat info;
    auto path = root / component->file;
    if (stat(path.c_str(), &info) != 0) return fmt::format("{} is missing", path.string());
    if (static_cast<std::uint64_t>(info.st_size) != component->size)
      return fmt::format("{} is {} bytes long instead of {}", path.string(), info.st_size, component->size);
  }
  return {};
}

}  // namespace

Result<ImageStore> ImageStore::open(fs::path root, std::vector<fs::path> trusted) {
  for (const char* part : {"images", "stages", "building", "logs"})
    ANCHORHOLD_CHECK(make_directories(root / part));
  return ImageStore(std::move(root), std::move(trusted));
}

Result<ImageStore> ImageStore::open_default() {
  auto cache = ANCHORHOLD_TRY(cache_directory());
  auto config = ANCHORHOLD_TRY(config_directory());
  return open(cache / "images", {config / "image-keys" / "trusted", "/etc/anchorhold/image-keys"});
}

Result<FileLock> ImageStore::lock(FileLock::Wait wait) const {
  return FileLock::acquire(root_ / "lock", wait);
}

Result<ImageStore::SignedManifest> ImageStore::read_manifest(const std::string& name) const {
  if (!is_valid_name(name))
    return fail(ErrorCode::invalid_argument, fmt::format("\"{}\" is not a name of an image", name),
                "run: anchorhold image list");
  auto folder = image_folder(name);
  auto text = read_file(folder / "manifest.json", max_manifest_bytes);
  if (!text && text.error().code == ErrorCode::not_found)
    return fail(ErrorCode::not_found, fmt::format("there is no image \"{}\"", name), build_hint(name));
  if (!text) return fail(text.error());
  auto blame = [&](Error error, const char* file) {
    error = with_context(std::move(error), (folder / file).string());
    error.hint = build_hint(name);
    return fail(std::move(error));
  };
  auto signature = read_file(folder / "manifest.sig", 4096);
  if (!signature && signature.error().code == ErrorCode::not_found)
    return blame({ErrorCode::failed_precondition, "the signature is missing", {}}, "manifest.sig");
  if (!signature) return blame(signature.error(), "manifest.sig");
  auto keys = ANCHORHOLD_TRY(load_trusted_keys(trusted_));
  auto key_id = check_signature(*text, *signature, keys);
  if (!key_id) return blame(key_id.error(), "manifest.json or manifest.sig");
  auto manifest = parse_manifest(*text);
  if (!manifest) return blame(manifest.error(), "manifest.json");
  if (manifest->name != name)
    return blame(
        {ErrorCode::failed_precondition, fmt::format("it is the manifest of \"{}\"", manifest->name), {}},
        "manifest.json");
  return SignedManifest{*std::move(manifest), *std::move(key_id)};
}

Result<std::vector<ImageInfo>> ImageStore::list() const {
  std::vector<ImageInfo> images;
  for (const auto& folder : ANCHORHOLD_TRY(entries_of(root_ / "images"))) {
    ImageInfo info;
    info.name = folder.filename();
    if (!is_valid_name(info.name)) continue;
    struct stat stats;
    if (stat((folder / "manifest.json").c_str(), &stats) == 0) info.built_unix_seconds = stats.st_mtime;
    auto signed_manifest = read_manifest(info.name);
    if (signed_manifest) {
      const auto& manifest = signed_manifest->manifest;
      info.description = manifest.description;
      info.kernel_version = manifest.kernel_version;
      info.key_id = signed_manifest->key_id;
      info.size.bytes = manifest.kernel.size + manifest.rootfs.size + manifest.initrd.size;
      info.problem = size_problem(root_, manifest);
    } else {
      info.problem = signed_manifest.error().message;
    }
    info.usable = info.problem.empty();
    images.push_back(std::move(info));
  }
  return images;
}

Status ImageStore::remove(const std::string& name) const {
  std::error_code error;
  if (!is_valid_name(name) || !fs::exists(image_folder(name), error))
    return fail(ErrorCode::not_found, fmt::format("there is no image \"{}\"", name),
                "run: anchorhold image list");
  auto held = ANCHORHOLD_TRY(lock_for_removal(*this));
  // Out of sight at once, then gone.
  auto aside = root_ / "building" / ("removed-" + random_hex(6));
  fs::rename(image_folder(name), aside, error);
  if (error == std::errc::no_such_file_or_directory) return {};
  if (error) return fail_errno(error.value(), fmt::format("removing the image {}", name));
  return remove_tree(aside);
}

Result<CollectedGarbage> ImageStore::collect_garbage() const {
  auto held = ANCHORHOLD_TRY(lock_for_removal(*this));
  UsedStages used = ANCHORHOLD_TRY(stages_in_use(root_ / "images"));
  CollectedGarbage garbage;
  garbage.unreadable = used.unreadable;
  auto drop = [&](const fs::path& path) -> Status {
    garbage.freed.bytes += size_of_tree(path).bytes;
    ANCHORHOLD_CHECK(remove_tree(path));
    garbage.removed.push_back(fs::relative(path, root_));
    return {};
  };
  for (const auto& path : ANCHORHOLD_TRY(entries_of(root_ / "building"))) ANCHORHOLD_CHECK(drop(path));
  if (!used.unreadable.empty()) return garbage;
  for (const auto& path : ANCHORHOLD_TRY(entries_of(root_ / "stages")))
    if (!used.folders.contains(path.filename())) ANCHORHOLD_CHECK(drop(path));
  return garbage;
}

}  // namespace anchorhold::images
