#include "ledgers.h"

#include <fmt/format.h>

#include "base/paths.h"

namespace anchorhold::cli {
namespace {

namespace fs = std::filesystem;

// What is left of the path beneath the folder; nothing when it is not beneath it.
std::optional<std::string> beneath(const fs::path& folder, const fs::path& path) {
  auto relative = path.lexically_relative(folder);
  if (relative.empty() || *relative.begin() == "..") return std::nullopt;
  return relative == "." ? std::string() : relative.string();
}

std::optional<std::string> path_in(const mounts::LedgerPlace& place, const fs::path& path) {
  if (auto guests = beneath("/mnt/" + place.name, path)) return guests;
  // A single file's grant is the file; its paths are from the folder it is in.
  if (place.only_file) return path == place.host_path ? place.only_file : std::nullopt;
  return beneath(place.host_path, path);
}

}  // namespace

Result<Ledgers> find_ledgers(const std::string& id) {
  auto store = ANCHORHOLD_TRY(session::SessionStore::open_default());
  Ledgers ledgers;
  ledgers.session = ANCHORHOLD_TRY(store.find(id));
  auto folder = ANCHORHOLD_TRY(state_directory()) / "ledgers" / ledgers.session.id.value();
  ledgers.places = ANCHORHOLD_TRY(mounts::ledgers_of_session(folder));
  return ledgers;
}

Result<std::vector<Chosen>> choose_ledgers(const Ledgers& ledgers, const std::vector<std::string>& paths) {
  std::vector<Chosen> chosen;
  for (const auto& place : ledgers.places) chosen.push_back({&place, {}});
  if (paths.empty()) return chosen;
  for (const auto& text : paths) {
    fs::path path(text);
    bool found = false;
    auto look_at = [&](const fs::path& absolute) {
      for (auto& each : chosen)
        if (auto inside = path_in(*each.place, absolute.lexically_normal())) {
          each.paths.push_back(*inside);
          found = true;
        }
    };
    std::error_code ignored;
    look_at(path.is_absolute() ? path : fs::current_path(ignored) / path);
    if (!found && path.is_relative() && chosen.size() == 1)
      look_at(fs::path("/mnt") / chosen[0].place->name / path);
    if (!found)
      return fail(
          ErrorCode::invalid_argument,
          fmt::format("{} is in no folder that session {} could change", text, ledgers.session.id.value()),
          fmt::format("see what it was granted: anchorhold sessions show {}", ledgers.session.id.value()));
  }
  std::erase_if(chosen, [](const Chosen& each) { return each.paths.empty(); });
  // The whole folder was asked for.
  for (auto& each : chosen)
    for (const auto& path : each.paths)
      if (path.empty()) {
        each.paths.clear();
        break;
      }
  return chosen;
}

void put_path(Json& object, const char* key, const std::string& path) {
  object[key] = path;
  try {
    (void)Json(path).dump();
  } catch (const Json::exception&) {
    std::string hex;
    for (unsigned char c : path) hex += fmt::format("{:02x}", c);
    object[std::string(key) + "_hex"] = std::move(hex);
  }
}

std::string shown_path(const std::string& path) {
  constexpr std::size_t most_bytes = 1000;
  return path.empty() ? "." : one_line(path, most_bytes);
}

}  // namespace anchorhold::cli
