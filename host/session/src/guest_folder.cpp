#include "guest_folder.h"

#include "base/id.h"
#include "session/leftovers.h"

namespace anchorhold::session {
namespace {

constexpr const char* lock_name = "lock";

}  // namespace

std::size_t sweep_guest_folders(const std::filesystem::path& parent) {
  std::size_t removed = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(parent, error)) {
    if (!std::filesystem::exists(entry.path() / lock_name, error)) continue;  // being made just now
    if (auto lock = FileLock::acquire(entry.path() / lock_name, FileLock::Wait::no); lock) {
      std::filesystem::remove_all(entry.path(), error);
      ++removed;
    }
  }
  return removed;
}

std::size_t remove_leftovers(const std::filesystem::path& runtime_directory) {
  return sweep_guest_folders(guests_folder(runtime_directory));
}

std::filesystem::path guests_folder(const std::filesystem::path& runtime_directory) {
  return runtime_directory / "guests";
}

Result<GuestFolder> GuestFolder::create(const std::filesystem::path& parent) {
  ANCHORHOLD_CHECK(make_directories(parent));
  // Nobody sweeps between the making of a folder and the taking of its lock.
  auto making = ANCHORHOLD_TRY(FileLock::acquire(parent.string() + ".lock", FileLock::Wait::yes));
  sweep_guest_folders(parent);
  hypervisor::MachineId id(new_short_id());
  auto path = parent / id.value();
  ANCHORHOLD_CHECK(make_directories(path));
  auto lock = ANCHORHOLD_TRY(FileLock::acquire(path / lock_name, FileLock::Wait::no));
  return GuestFolder(std::move(id), std::move(path), std::move(lock));
}

GuestFolder::~GuestFolder() {
  if (path_.empty()) return;
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace anchorhold::session
