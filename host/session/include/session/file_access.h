// The agent's way to files (agent/file_access.h), over a session's grants: the same policy and the same
// keepers as the guest's own accesses, and it works without a guest.
#pragma once

#include "agent/file_access.h"
#include "session/session.h"

namespace anchorhold::session {

class SessionFiles : public agent::FileAccess {
 public:
  // The session outlives it.
  explicit SessionFiles(Session& session) : files_(session.files()) {}

  Result<agent::FileInfo> stat(const std::string& path) override;
  Result<std::string> read(const std::string& path, std::uint64_t offset, std::size_t max_bytes) override;
  Status write(const std::string& path, std::string_view bytes) override;
  Result<agent::DirectoryListing> list(const std::string& path, std::size_t max_entries) override;

 private:
  const mounts::FileAccess& files_;
};

}  // namespace anchorhold::session
