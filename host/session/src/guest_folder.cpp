#include "guest_folder.h"

#include "base/id.h"
#include "session/leftovers.h"

namespace anchorhold::session {
namespace {

constexpr const char* lock_name = "lock";

// Nobody sweeps between the making of a folder and the taking of its lock.
Result<FileLock> lock_making(const std::filesystem::path& parent) {
  return FileLock::acquire(parent.string() + ".lock", FileLock::Wait::yes);
}

// Removes the folders whose host is gone; gives back how many.
std::size_t sweep(const std::filesystem::path& parent) {
  std::size_t removed = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(parent, error)) {
    if (auto lock = FileLock::acquire(entry.path() / lock_name, FileLock::Wait::no); lock) {
      std::filesystem::remove_all(entry.path(), error);
      ++removed;
    }
  }
  return removed;
}

}  // namespace

std::size_t remove_leftovers(const std::filesystem::path& runtime_directory) {
  auto parent = guests_folder(runtime_directory);
  if (!std::filesystem::exists(parent)) return 0;
  auto making = lock_making(parent);
  return making ? sweep(parent) : 0;
}

std::filesystem::path guests_folder(const std::filesystem::path& runtime_directory) {
  return runtime_directory / "guests";
}

Result<GuestFolder> GuestFolder::create(const std::filesystem::path& parent) {
  ANCHORHOLD_CHECK(make_directories(parent));
  auto making = ANCHORHOLD_TRY(lock_making(parent));
  sweep(parent);
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
