#include "stages.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include "base/id.h"
#include "digest.h"
#include "json_number.h"
#include "script.h"

namespace anchorhold::images {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

// The salt is the word "anchorhold": it separates our trees from others', and a random one would change every
// digest.
constexpr std::string_view verity_salt = "616e63686f72686f6c64";

Result<UniqueFd> open_file(const fs::path& path, int flags) {
  UniqueFd fd(open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd) return fail_errno(errno, fmt::format("opening {}", path.string()));
  return fd;
}

Status sync(const fs::path& path, int flags = O_RDONLY) {
  auto fd = ANCHORHOLD_TRY(open_file(path, flags));
  if (fsync(fd.get()) != 0) return fail_errno(errno, fmt::format("syncing {}", path.string()));
  return {};
}

Result<std::uint64_t> size_of(int fd, const fs::path& path) {
  struct stat info;
  if (fstat(fd, &info) != 0) return fail_errno(errno, fmt::format("reading {}", path.string()));
  if (!S_ISREG(info.st_mode) || info.st_size == 0)
    return fail(ErrorCode::failed_precondition,
                fmt::format("the build wrote no file {}", path.filename().string()));
  return static_cast<std::uint64_t>(info.st_size);
}

std::string describe(const FinishedStage& stage) {
  json document = {{"size", stage.component.size}, {"digest", stage.component.digest}};
  if (stage.verity)
    document["verity"] = {{"root_hash", stage.verity->root_hash},
                          {"salt", stage.verity->salt},
                          {"data_blocks", stage.verity->data_blocks}};
  return document.dump(2) + "\n";
}

std::optional<FinishedStage> read_description(const std::string& text, const StagePlan& plan,
                                              const std::string& file) {
  try {
    auto document = json::parse(text);
    FinishedStage stage;
    stage.component = {file, unsigned_at(document, "size"), document.at("digest").get<std::string>()};
    if (plan.verity) {
      const auto& verity = document.at("verity");
      stage.verity = Verity{verity.at("root_hash").get<std::string>(), verity.at("salt").get<std::string>(),
                            unsigned_at(verity, "data_blocks")};
    }
    return stage;
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

// Whether the folder holds the stage unharmed; reads all of it.
std::optional<FinishedStage> read_stage(const ImageStore& store, const StagePlan& plan,
                                        const fs::path& folder) {
  auto text = read_file(folder / "stage.json", 64 * 1024);
  if (!text) return std::nullopt;
  auto stage = read_description(*text, plan, fs::relative(folder / plan.file, store.root()));
  if (!stage) return std::nullopt;
  auto fd = open_file(folder / plan.file, O_RDONLY);
  if (!fd) return std::nullopt;
  auto size = size_of(fd->get(), folder / plan.file);
  if (!size || *size != stage->component.size) return std::nullopt;
  auto digest = digest_file(fd->get(), *size);
  if (!digest || *digest != stage->component.digest) return std::nullopt;
  return stage;
}

std::string folder_prefix(const StagePlan& plan) {
  return fmt::format("{}-{}", to_string(plan.stage), plan.inputs);
}

Status check_limit(const StagePlan& plan, const fs::path& file) {
  std::error_code error;
  ByteSize size{fs::file_size(file, error)};
  if (error || plan.limit.bytes == 0 || size <= plan.limit) return {};
  return fail(ErrorCode::resource_exhausted,
              fmt::format("the {} is {} large, the recipe allows {}", to_string(plan.stage), to_string(size),
                          to_string(plan.limit)),
              "take packages out of the recipe, or raise its limit_mib");
}

// Takes the folder's place in stages/, throwing out a harmed one of the same name.
Status move_into_place(const ImageStore& store, const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::remove_all(to, error);
  if (!error) fs::rename(from, to, error);
  if (error) return fail_errno(error.value(), fmt::format("moving {} into place", to.string()));
  return sync(store.root() / "stages", O_RDONLY | O_DIRECTORY);
}

}  // namespace

Result<Verity> append_verity(const fs::path& file) {
  std::error_code error;
  auto bytes = fs::file_size(file, error);
  if (error) return fail_errno(error.value(), fmt::format("reading {}", file.string()));
  Verity verity;
  verity.salt = verity_salt;
  verity.data_blocks = (bytes + verity_block_bytes - 1) / verity_block_bytes;
  auto data_bytes = verity.data_blocks * verity_block_bytes;
  fs::resize_file(file, data_bytes, error);
  if (error) return fail_errno(error.value(), fmt::format("padding {}", file.string()));
  auto program = find_program("veritysetup");
  if (program.empty())
    return fail(ErrorCode::failed_precondition, "building the root file system needs the program veritysetup",
                "run: sudo apt-get install cryptsetup-bin");
  auto output = ANCHORHOLD_TRY(
      capture_output({program, "format", "--no-superblock", "--hash=sha256", "--data-block-size=4096",
                      "--hash-block-size=4096", fmt::format("--data-blocks={}", verity.data_blocks),
                      fmt::format("--hash-offset={}", data_bytes), fmt::format("--salt={}", verity.salt),
                      file.string(), file.string()}));
  auto at = output.find("Root hash:");
  if (at != std::string::npos) at = output.find_first_not_of(" \t", at + 10);
  if (at != std::string::npos) verity.root_hash = output.substr(at, 64);
  if (!is_hex(verity.root_hash, 64))
    return fail(ErrorCode::internal, fmt::format("veritysetup printed no root hash: {}", output));
  return verity;
}

std::optional<FinishedStage> find_stage(const ImageStore& store, const StagePlan& plan) {
  std::vector<fs::path> candidates;
  std::error_code error;
  for (fs::directory_iterator it(store.root() / "stages", error), end; !error && it != end;
       it.increment(error))
    if (it->path().filename().string().starts_with(folder_prefix(plan))) candidates.push_back(it->path());
  std::sort(candidates.rbegin(), candidates.rend());
  for (const auto& folder : candidates)
    if (auto stage = read_stage(store, plan, folder)) return stage;
  return std::nullopt;
}

Result<FinishedStage> make_stage(const ImageStore& store, const StagePlan& plan, const std::string& suffix) {
  auto aside = store.root() / "building" / fmt::format("{}-{}", to_string(plan.stage), random_hex(6));
  auto final_folder = store.root() / "stages" / (folder_prefix(plan) + suffix);
  // Whatever goes wrong, nothing of it stays; a killed build's leftovers are removed by the next one.
  struct Remover {
    const fs::path& path;
    ~Remover() {
      std::error_code ignored;
      fs::remove_all(path, ignored);
    }
  } remover{aside};
  ANCHORHOLD_CHECK(make_directories(aside / "scratch"));
  ANCHORHOLD_CHECK(make_directories(aside / "result"));
  auto file = aside / "result" / plan.file;
  ANCHORHOLD_CHECK(plan.make(file, aside / "scratch"));
  ANCHORHOLD_CHECK(check_limit(plan, file));
  FinishedStage stage;
  if (plan.verity) stage.verity = ANCHORHOLD_TRY(append_verity(file));
  if (chmod(file.c_str(), 0644) != 0) return fail_errno(errno, fmt::format("chmod {}", file.string()));
  auto fd = ANCHORHOLD_TRY(open_file(file, O_RDONLY));
  stage.component.size = ANCHORHOLD_TRY(size_of(fd.get(), file));
  stage.component.digest = ANCHORHOLD_TRY(digest_file(fd.get(), stage.component.size));
  stage.component.file = fs::relative(final_folder / plan.file, store.root());
  if (fsync(fd.get()) != 0) return fail_errno(errno, fmt::format("syncing {}", file.string()));
  ANCHORHOLD_CHECK(write_file_atomic(aside / "result" / "stage.json", describe(stage), 0644));
  ANCHORHOLD_CHECK(move_into_place(store, aside / "result", final_folder));
  return stage;
}

}  // namespace anchorhold::images
