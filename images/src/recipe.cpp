#include "images/recipe.h"

#include <algorithm>
#include <cerrno>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "images/manifest.h"

namespace anchorhold::images {
namespace {

using nlohmann::json;

StageRecipe read_stage(const json& document, const std::filesystem::path& folder) {
  StageRecipe stage;
  auto resolve = [&](const std::string& path) { return (folder / path).lexically_normal(); };
  stage.script = resolve(document.at("script").get<std::string>());
  for (const auto& input : document.at("inputs")) stage.inputs.push_back(resolve(input.get<std::string>()));
  stage.tools = document.value("tools", std::map<std::string, std::string>());
  stage.versions = document.value("versions", std::vector<std::vector<std::string>>());
  stage.source = document.value("source", "");
  stage.limit = ByteSize::mib(document.value("limit_mib", 0u));
  stage.space = ByteSize::mib(document.value("space_mib", 0u));
  return stage;
}

}  // namespace

Result<Recipe> parse_recipe(std::string_view text, const std::string& name,
                            const std::filesystem::path& folder) {
  try {
    auto document = json::parse(text);
    if (document.at("format") != 1)
      return fail(ErrorCode::unsupported,
                  fmt::format("the recipe \"{}\" has a format this program does not know", name));
    Recipe recipe;
    recipe.name = name;
    recipe.folder = folder;
    recipe.description = document.at("description").get<std::string>();
    recipe.kernel = read_stage(document.at("kernel"), folder);
    recipe.rootfs = read_stage(document.at("rootfs"), folder);
    for (const auto* stage : {&recipe.kernel, &recipe.rootfs})
      for (const auto& command : stage->versions)
        if (command.empty())
          return fail(ErrorCode::invalid_argument, "a recipe's \"versions\" has an empty command");
    return recipe;
  } catch (const json::exception& error) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("{} is not a recipe: {}", (folder / "recipe.json").string(), error.what()));
  }
}

Result<Recipe> load_recipe(const std::filesystem::path& recipes, const std::string& name) {
  std::error_code error;
  auto folder = std::filesystem::absolute(recipes / name, error);
  if (!is_valid_name(name) || !std::filesystem::exists(folder / "recipe.json", error)) {
    auto known = list_recipes(recipes);
    std::string names;
    if (known)
      for (const auto& other : *known) names += (names.empty() ? "" : ", ") + other;
    return fail(ErrorCode::not_found,
                fmt::format("there is no recipe for an image \"{}\" in {}", name, recipes.string()),
                names.empty() ? "" : "recipes: " + names);
  }
  auto text = ANCHORHOLD_TRY(read_file(folder / "recipe.json", 64 * 1024));
  return parse_recipe(text, name, folder);
}

Result<std::vector<std::string>> list_recipes(const std::filesystem::path& recipes) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(recipes, error), end; !error && it != end;
       it.increment(error)) {
    std::string name = it->path().filename();
    std::error_code ignored;
    if (is_valid_name(name) && std::filesystem::exists(it->path() / "recipe.json", ignored))
      names.push_back(name);
  }
  if (error) return fail_errno(error.value(), fmt::format("reading the recipes in {}", recipes.string()));
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace anchorhold::images
