#include "session/file_access.h"

namespace anchorhold::session {
namespace {

agent::FileInfo convert(const mounts::FileInfo& info) {
  agent::FileInfo converted;
  converted.size = info.size;
  converted.modified = info.modified;
  switch (info.kind) {
    case mounts::FileKind::file:
      converted.kind = agent::FileKind::file;
      break;
    case mounts::FileKind::directory:
      converted.kind = agent::FileKind::directory;
      break;
    case mounts::FileKind::symlink:
      converted.kind = agent::FileKind::symlink;
      break;
    case mounts::FileKind::other:
      converted.kind = agent::FileKind::other;
      break;
  }
  return converted;
}

}  // namespace

Result<agent::FileInfo> SessionFiles::stat(const std::string& path) {
  return convert(ANCHORHOLD_TRY(files_.stat(path)));
}

Result<std::string> SessionFiles::read(const std::string& path, std::uint64_t offset, std::size_t max_bytes) {
  return files_.read(path, offset, max_bytes);
}

Status SessionFiles::write(const std::string& path, std::string_view bytes) {
  return files_.write(path, bytes);
}

Result<agent::DirectoryListing> SessionFiles::list(const std::string& path, std::size_t max_entries) {
  auto listing = ANCHORHOLD_TRY(files_.list(path, max_entries));
  agent::DirectoryListing converted;
  converted.truncated = listing.truncated;
  for (auto& entry : listing.entries)
    converted.entries.push_back({std::move(entry.name), convert(entry.info)});
  return converted;
}

}  // namespace anchorhold::session
