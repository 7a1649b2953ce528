#include "spec_json.h"

namespace anchorhold::agent {
namespace {

Json to_json(const Grants& grants) {
  Json folders = Json::array();
  for (const auto& folder : grants.folders)
    folders.push_back(
        {{"host", folder.host_path}, {"guest", folder.guest_path}, {"mode", to_string(folder.mode)}});
  const auto& limits = grants.folder_limits;
  Json folder_limits{{"bytes_written", limits.bytes_written.bytes},
                     {"files", limits.files},
                     {"refuse_escaping_symlinks", limits.refuse_escaping_symlinks}};
  if (limits.bulk_changes) folder_limits["bulk_changes"] = *limits.bulk_changes;
  return {{"folders", std::move(folders)},
          {"folder_limits", std::move(folder_limits)},
          {"cpus", grants.cpus},
          {"memory", grants.memory.bytes},
          {"image", grants.image}};
}

Grants grants_from(const Json& json) {
  Grants grants;
  for (const Json& folder : member(json, "folders"))
    grants.folders.push_back(
        {string_or(folder, "host"), string_or(folder, "guest"), folder_mode_from(string_or(folder, "mode"))});
  const Json& limits = member(json, "folder_limits");
  if (limits.is_object()) {
    if (limits.contains("bulk_changes"))
      grants.folder_limits.bulk_changes = static_cast<std::uint32_t>(uint_or(limits, "bulk_changes"));
    grants.folder_limits.bytes_written = ByteSize{uint_or(limits, "bytes_written")};
    grants.folder_limits.files = uint_or(limits, "files");
    grants.folder_limits.refuse_escaping_symlinks = bool_or(limits, "refuse_escaping_symlinks");
  }
  grants.cpus = static_cast<std::uint32_t>(uint_or(json, "cpus"));
  grants.memory = ByteSize{uint_or(json, "memory")};
  grants.image = string_or(json, "image");
  return grants;
}

}  // namespace

FolderMode folder_mode_from(std::string_view text) {
  if (text == to_string(FolderMode::read_write)) return FolderMode::read_write;
  if (text == to_string(FolderMode::read_write_no_delete)) return FolderMode::read_write_no_delete;
  return FolderMode::read_only;
}

Json to_json(const TaskSpec& spec) {
  const auto& limits = spec.limits;
  return {{"prompt", spec.prompt},
          {"model", spec.provider.model},
          {"base_url", spec.provider.base_url},
          {"key_file", spec.provider.key_file.string()},
          {"context_tokens", spec.provider.context_tokens},
          {"grants", to_json(spec.grants)},
          {"limits",
           {{"turns", limits.turns},
            {"wall_time_ms", limits.wall_time.count()},
            {"tokens", limits.tokens},
            {"concurrent_jobs", limits.concurrent_jobs}}}};
}

TaskSpec spec_from_json(const Json& json) {
  TaskSpec spec;
  spec.prompt = string_or(json, "prompt");
  spec.provider = {string_or(json, "model"), string_or(json, "base_url"), string_or(json, "key_file"),
                   uint_or(json, "context_tokens")};
  spec.grants = grants_from(member(json, "grants"));
  const Json& limits = member(json, "limits");
  Limits defaults;
  spec.limits.turns = static_cast<std::uint32_t>(uint_or(limits, "turns", defaults.turns));
  spec.limits.wall_time = std::chrono::milliseconds(
      uint_or(limits, "wall_time_ms", static_cast<std::uint64_t>(defaults.wall_time.count())));
  spec.limits.tokens = uint_or(limits, "tokens", defaults.tokens);
  spec.limits.concurrent_jobs =
      static_cast<std::uint32_t>(uint_or(limits, "concurrent_jobs", defaults.concurrent_jobs));
  return spec;
}

Json to_json(const std::vector<PlanItem>& plan) {
  Json items = Json::array();
  for (const auto& item : plan) items.push_back({{"text", item.text}, {"state", to_string(item.state)}});
  return items;
}

std::vector<PlanItem> plan_from_json(const Json& json) {
  std::vector<PlanItem> plan;
  if (!json.is_array()) return plan;
  for (const Json& item : json) {
    std::string state = string_or(item, "state");
    plan.push_back({string_or(item, "text"), state == "done"          ? PlanItem::State::done
                                             : state == "in_progress" ? PlanItem::State::in_progress
                                                                      : PlanItem::State::pending});
  }
  return plan;
}

}  // namespace anchorhold::agent
