#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/file_time.h"
#include "base/files.h"
#include "mounts/review.h"
#include "review_wire.h"

namespace anchorhold::mounts {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::size_t max_place_bytes = 64 * 1024;

std::string path_in(const Json& object, const char* key) {
  // Written by us, and only by us.
  if (auto hex = object.find(std::string(key) + "_hex"); hex != object.end() && hex->is_string()) {
    std::string bytes;
    const auto& text = hex->get_ref<const std::string&>();
    for (std::size_t i = 0; i + 1 < text.size(); i += 2)
      bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
    return bytes;
  }
  return object.value(key, "");
}

Result<LedgerPlace> read_place(const std::filesystem::path& grant_folder) {
  auto text = ANCHORHOLD_TRY(read_file(grant_folder / "grant.json", max_place_bytes));
  auto bad = [&] {
    return fail(ErrorCode::data_loss, (grant_folder / "grant.json").string() + " cannot be understood");
  };
  try {
    auto object = Json::parse(text);
    LedgerPlace place;
    place.folder = keepers_folder(grant_folder);
    place.name = object.at("name");
    place.host_path = path_in(object, "host_path");
    if (object.contains("only_file")) place.only_file = path_in(object, "only_file");
    auto mode = parse_mode(object.at("mode").get<std::string>());
    if (!mode || !place.host_path.is_absolute()) return bad();
    place.mode = *mode;
    place.device = object.at("device");
    place.inode = object.at("inode");
    place.birth_ns = object.at("birth_ns");
    place.quota_bytes = object.at("quota_bytes");
    return place;
  } catch (const std::exception&) {
    return bad();
  }
}

}  // namespace

std::filesystem::path keepers_folder(const std::filesystem::path& grant_folder) {
  return grant_folder / "ledger";
}

Status write_ledger_place(const std::filesystem::path& grant_folder, const Grant& grant,
                          std::uint64_t quota_bytes) {
  struct statx info;
  if (statx(grant.root.get(), "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &info) != 0)
    return fail_errno(errno, grant.host_path.string());
  Json object{{"version", 1}, {"name", grant.name}, {"mode", to_string(grant.mode)}};
  put_bytes(object, "host_path", grant.host_path.native());
  if (grant.only_file) put_bytes(object, "only_file", *grant.only_file);
  object["device"] = std::uint64_t{makedev(info.stx_dev_major, info.stx_dev_minor)};
  object["inode"] = std::uint64_t{info.stx_ino};
  object["birth_ns"] = info.stx_mask & STATX_BTIME
                           ? file_time_nanoseconds(info.stx_btime.tv_sec, info.stx_btime.tv_nsec)
                           : std::int64_t{0};
  object["quota_bytes"] = quota_bytes == 0 ? default_ledger_quota : quota_bytes;
  return write_file_atomic(grant_folder / "grant.json",
                           object.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

Result<std::vector<LedgerPlace>> ledgers_of_session(const std::filesystem::path& session_folder) {
  std::vector<LedgerPlace> places;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(session_folder, error))
    if (std::filesystem::exists(entry.path() / "grant.json", error))
      places.push_back(ANCHORHOLD_TRY(read_place(entry.path())));
  std::sort(places.begin(), places.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return places;
}

Status forget_ledgers(const std::filesystem::path& session_folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::vector<FileLock> locks;
  for (const auto& entry : fs::directory_iterator(session_folder, error))
    if (entry.is_directory())
      locks.push_back(ANCHORHOLD_TRY(FileLock::acquire(entry.path() / "undo.lock", FileLock::Wait::no)));
  fs::remove_all(session_folder, error);
  if (error) return fail_errno(error.value(), session_folder.string());
  return {};
}

}  // namespace anchorhold::mounts
