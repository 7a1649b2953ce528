#include "inputs.h"

#include <algorithm>
#include <cerrno>
#include <fmt/format.h>
#include <set>
#include <sys/stat.h>

#include "digest.h"
#include "script.h"

namespace anchorhold::images {
namespace fs = std::filesystem;
namespace {

// Each part is preceded by its length, so that no two lists of parts look alike.
void add(Sha256& hash, std::string_view part) {
  hash.update(fmt::format("{}:", part.size()));
  hash.update(part);
}

Status add_file(Sha256& hash, const fs::path& path, const std::string& name) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return fail_errno(errno, fmt::format("reading {}", path.string()));
  add(hash, name);
  add(hash, info.st_mode & 0100 ? "program" : "file");
  add(hash, ANCHORHOLD_TRY(sha256_file(path)));
  return {};
}

Status add_input(Sha256& hash, const fs::path& input) {
  std::error_code error;
  if (!fs::is_directory(input, error)) return add_file(hash, input, input.filename());
  std::vector<fs::path> files;
  for (fs::recursive_directory_iterator it(input, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (it->is_regular_file(ignored)) files.push_back(it->path());
  }
  if (error) return fail_errno(error.value(), fmt::format("reading {}", input.string()));
  std::sort(files.begin(), files.end());
  for (const auto& file : files) ANCHORHOLD_CHECK(add_file(hash, file, fs::relative(file, input)));
  return {};
}

}  // namespace

Result<fs::path> find_source(const StageRecipe& stage, const fs::path& sources) {
  auto path = sources / (stage.source + ".tar.xz");
  std::error_code error;
  if (fs::exists(path, error)) return path;
  return fail(ErrorCode::failed_precondition, fmt::format("the source {} is missing", path.string()),
              fmt::format("run: sudo apt-get install {}", stage.source));
}

Status check_tools(const StageRecipe& stage, std::string_view what) {
  std::string programs;
  std::set<std::string> packages;
  for (const auto& [program, package] : stage.tools) {
    if (!find_program(program).empty()) continue;
    programs += (programs.empty() ? "" : ", ") + program;
    packages.insert(package);
  }
  if (programs.empty()) return {};
  std::string list;
  for (const auto& package : packages) list += " " + package;
  return fail(ErrorCode::failed_precondition,
              fmt::format("building the {} needs programs that are missing: {}", what, programs),
              fmt::format("run: sudo apt-get install{}", list));
}

Result<std::string> hash_inputs(const StageRecipe& stage, const fs::path& sources, std::string_view extra) {
  Sha256 hash;
  add(hash, "anchorhold stage 1");
  add(hash, extra);
  ANCHORHOLD_CHECK(add_file(hash, stage.script, stage.script.filename()));
  for (const auto& input : stage.inputs) ANCHORHOLD_CHECK(add_input(hash, input));
  if (!stage.source.empty()) {
    auto source = ANCHORHOLD_TRY(find_source(stage, sources));
    add(hash, ANCHORHOLD_TRY(sha256_file(source)));
  }
  for (auto command : stage.versions) {
    auto program = find_program(command[0]);
    if (program.empty())
      return fail(ErrorCode::failed_precondition, fmt::format("the program {} is missing", command[0]));
    command[0] = program;
    add(hash, ANCHORHOLD_TRY(capture_output(command)));
  }
  return to_hex(hash.finish()).substr(0, 20);
}

}  // namespace anchorhold::images
