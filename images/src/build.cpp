#include "images/build.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <fcntl.h>
#include <fmt/format.h>
#include <mutex>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <thread>
#include <unistd.h>

#include "base/id.h"
#include "base/paths.h"
#include "images/verified_image.h"
#include "initrd.h"
#include "inputs.h"
#include "script.h"
#include "stages.h"

namespace anchorhold::images {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view builder_name = "anchorhold " ANCHORHOLD_VERSION;
constexpr std::size_t max_agent_bytes = 256 << 20;

// One call of build(): its inputs and what is derived from them.
class Builder {
 public:
  Builder(const ImageStore& store, Recipe recipe, const BuildOptions& options, std::stop_token stop)
      : store_(store), recipe_(std::move(recipe)), options_(options), stop_(std::move(stop)) {}

  Result<BuiltImage> run();

 private:
  Result<std::vector<StagePlan>> make_plans();
  std::optional<Manifest> current(const std::vector<StagePlan>& plans);
  Result<FileLock> wait_for_lock();
  Result<FinishedStage> ensure(const StagePlan& plan, bool again, bool& changed);
  Status run_stage_script(Stage stage, const StageRecipe& recipe, std::vector<std::string> environment,
                          const fs::path& output, const fs::path& scratch);
  Status check_space(const StageRecipe& recipe, Stage stage);
  Status publish(const Manifest& manifest, const SigningKey& key);
  void report(BuildProgress::Kind kind, Stage stage, int percent = 0, std::string_view text = {}) {
    if (options_.progress) options_.progress({kind, stage, percent, text});
  }

  const ImageStore& store_;
  Recipe recipe_;
  const BuildOptions& options_;
  std::stop_token stop_;
};

// "Linux version 6.1.0-anchorhold (…" stands in the kernel's read-only data.
std::string kernel_version_of(const fs::path& kernel) {
  auto bytes = read_file(kernel, 512 << 20);
  if (!bytes) return "unknown";
  constexpr std::string_view mark = "Linux version ";
  auto at = bytes->find(mark);
  if (at == std::string::npos) return "unknown";
  auto rest = std::string_view(*bytes).substr(at + mark.size(), 64);
  auto end = std::find_if_not(rest.begin(), rest.end(), [](unsigned char c) { return c > 0x20 && c < 0x7f; });
  return std::string(rest.begin(), end);
}

// "progress: 42 compiling" → 42 and "compiling".
bool parse_progress(std::string_view line, int& percent, std::string_view& text) {
  constexpr std::string_view mark = "progress: ";
  if (!line.starts_with(mark)) return false;
  line.remove_prefix(mark.size());
  auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), percent);
  if (error != std::errc()) return false;
  percent = std::clamp(percent, 0, 100);
  text = line.substr(static_cast<std::size_t>(end - line.data()));
  if (text.starts_with(' ')) text.remove_prefix(1);
  return true;
}

Status Builder::check_space(const StageRecipe& recipe, Stage stage) {
  struct statvfs info;
  if (recipe.space.bytes == 0 || statvfs(store_.root().c_str(), &info) != 0) return {};
  ByteSize available{static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize};
  if (available >= recipe.space) return {};
  return fail(ErrorCode::resource_exhausted,
              fmt::format("building the {} needs {} of free space below {}, there are {}", to_string(stage),
                          to_string(recipe.space), store_.root().string(), to_string(available)),
              "free some space, or set XDG_CACHE_HOME to a folder on another disk");
}

Status Builder::run_stage_script(Stage stage, const StageRecipe& recipe, std::vector<std::string> environment,
                                 const fs::path& output, const fs::path& scratch) {
  ANCHORHOLD_CHECK(check_tools(recipe, to_string(stage)));
  ANCHORHOLD_CHECK(check_space(recipe, stage));
  if (!recipe.source.empty())
    environment.push_back(
        fmt::format("ANCHORHOLD_SOURCE={}", ANCHORHOLD_TRY(find_source(recipe, options_.sources)).string()));
  unsigned jobs = options_.jobs ? options_.jobs : std::max(1u, std::thread::hardware_concurrency());
  environment.push_back(fmt::format("ANCHORHOLD_JOBS={}", jobs));
  Script script;
  script.argv = {recipe.script, output};
  script.environment = std::move(environment);
  script.working_directory = scratch;
  script.log = store_.root() / "logs" / fmt::format("{}-{}.log", recipe_.name, to_string(stage));
  script.on_line = [&](std::string_view line) {
    int percent = 0;
    std::string_view text;
    if (parse_progress(line, percent, text)) {
      report(BuildProgress::Kind::advanced, stage, percent, text);
    } else {
      report(BuildProgress::Kind::output, stage, 0, line);
    }
  };
  return run_script(script, stop_);
}

Result<std::vector<StagePlan>> Builder::make_plans() {
  StagePlan kernel{.stage = Stage::kernel,
                   .file = "vmlinux",
                   .inputs = {},
                   .verity = false,
                   .limit = recipe_.kernel.limit,
                   .make = {}};
  kernel.inputs = ANCHORHOLD_TRY(hash_inputs(recipe_.kernel, options_.sources, ""));
  kernel.make = [this](const fs::path& output, const fs::path& scratch) {
    return run_stage_script(Stage::kernel, recipe_.kernel, {}, output, scratch);
  };

  StagePlan rootfs{.stage = Stage::rootfs,
                   .file = "rootfs.img",
                   .inputs = {},
                   .verity = true,
                   .limit = recipe_.rootfs.limit,
                   .make = {}};
  rootfs.inputs = ANCHORHOLD_TRY(hash_inputs(recipe_.rootfs, options_.sources, options_.mirrors));
  rootfs.make = [this](const fs::path& output, const fs::path& scratch) {
    return run_stage_script(Stage::rootfs, recipe_.rootfs,
                            {fmt::format("ANCHORHOLD_RECIPE={}", recipe_.folder.string()),
                             fmt::format("ANCHORHOLD_MIRRORS={}", options_.mirrors)},
                            output, scratch);
  };

  auto agent = read_file(options_.agent, max_agent_bytes);
  if (!agent) return fail(with_context(agent.error(), "the guest's agent"));
  StagePlan initrd{
      .stage = Stage::initrd, .file = "initrd.img", .inputs = {}, .verity = false, .limit = {}, .make = {}};
  auto archive = make_initrd(*agent);
  StageRecipe nothing;
  nothing.script = options_.agent;
  initrd.inputs = ANCHORHOLD_TRY(hash_inputs(nothing, options_.sources, archive.substr(0, 1024)));
  initrd.make = [archive = std::move(archive)](const fs::path& output, const fs::path&) {
    return write_file_atomic(output, archive, 0644);
  };
  return std::vector<StagePlan>{std::move(kernel), std::move(rootfs), std::move(initrd)};
}

// The image as it is, when it is whole and made from just these inputs.
std::optional<Manifest> Builder::current(const std::vector<StagePlan>& plans) {
  if (options_.refresh) return std::nullopt;
  auto image = VerifiedImage::verify(store_, recipe_.name);
  if (!image || image->manifest().description != recipe_.description) return std::nullopt;
  const Component* components[] = {&image->manifest().kernel, &image->manifest().rootfs,
                                   &image->manifest().initrd};
  for (std::size_t i = 0; i < plans.size(); ++i) {
    auto prefix = fmt::format("stages/{}-{}", to_string(plans[i].stage), plans[i].inputs);
    if (!components[i]->file.starts_with(prefix)) return std::nullopt;
  }
  for (const auto& plan : plans) report(BuildProgress::Kind::cached, plan.stage, 100);
  return image->manifest();
}

Result<FileLock> Builder::wait_for_lock() {
  bool told = false;
  std::mutex mutex;
  std::condition_variable_any stopped;
  for (;;) {
    auto lock = store_.lock(FileLock::Wait::no);
    if (lock || lock.error().code != ErrorCode::unavailable) return lock;
    if (!told) report(BuildProgress::Kind::waiting, Stage::kernel, 0, "another build is under way");
    told = true;
    std::unique_lock held(mutex);
    stopped.wait_for(held, stop_, std::chrono::milliseconds(200), [] { return false; });
    if (stop_.stop_requested()) return fail(ErrorCode::cancelled, "the build was stopped");
  }
}

Result<FinishedStage> Builder::ensure(const StagePlan& plan, bool again, bool& changed) {
  if (stop_.stop_requested()) return fail(ErrorCode::cancelled, "the build was stopped");
  if (!again) {
    if (auto stage = find_stage(store_, plan)) {
      report(BuildProgress::Kind::cached, plan.stage, 100);
      return *stage;
    }
  }
  changed = true;
  report(BuildProgress::Kind::started, plan.stage);
  // Sorts after the plain name and after earlier refreshes.
  std::string suffix;
  if (again)
    suffix = fmt::format(
        "-{:020}", std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count());
  auto stage = make_stage(store_, plan, suffix);
  if (!stage) return fail(with_context(stage.error(), fmt::format("building the {}", to_string(plan.stage))));
  report(BuildProgress::Kind::finished, plan.stage, 100);
  return stage;
}

Status Builder::publish(const Manifest& manifest, const SigningKey& key) {
  auto aside = store_.root() / "building" / ("manifest-" + random_hex(6));
  auto folder = store_.image_folder(manifest.name);
  ANCHORHOLD_CHECK(make_directories(aside));
  auto text = serialize(manifest);
  ANCHORHOLD_CHECK(write_file_atomic(aside / "manifest.json", text, 0644));
  ANCHORHOLD_CHECK(write_file_atomic(aside / "manifest.sig", key.sign(text), 0644));
  // The two files appear, and change, together.
  if (renameat2(AT_FDCWD, aside.c_str(), AT_FDCWD, folder.c_str(), RENAME_EXCHANGE) != 0) {
    if (errno != ENOENT) return fail_errno(errno, fmt::format("replacing {}", folder.string()));
    if (rename(aside.c_str(), folder.c_str()) != 0)
      return fail_errno(errno, fmt::format("making {}", folder.string()));
  }
  UniqueFd parent(open((store_.root() / "images").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!parent || fsync(parent.get()) != 0)
    return fail_errno(errno, fmt::format("syncing {}", folder.string()));
  std::error_code ignored;
  fs::remove_all(aside, ignored);
  return {};
}

Result<BuiltImage> Builder::run() {
  auto key = ANCHORHOLD_TRY(SigningKey::load_or_create(options_.key_folder));
  auto plans = ANCHORHOLD_TRY(make_plans());
  if (auto manifest = current(plans)) return BuiltImage{*std::move(manifest), false};
  auto lock = ANCHORHOLD_TRY(wait_for_lock());
  // Somebody else may have built just this; and with the lock held, what lies in building/ belongs to nobody.
  if (auto manifest = current(plans)) return BuiltImage{*std::move(manifest), false};
  std::error_code ignored;
  fs::remove_all(store_.root() / "building", ignored);
  ANCHORHOLD_CHECK(make_directories(store_.root() / "building"));

  BuiltImage built;
  auto kernel = ANCHORHOLD_TRY(ensure(plans[0], false, built.changed));
  auto rootfs = ANCHORHOLD_TRY(ensure(plans[1], options_.refresh, built.changed));
  auto initrd = ANCHORHOLD_TRY(ensure(plans[2], false, built.changed));
  built.manifest.name = recipe_.name;
  built.manifest.description = recipe_.description;
  built.manifest.kernel_version = kernel_version_of(store_.root() / kernel.component.file);
  built.manifest.builder = builder_name;
  built.manifest.kernel = kernel.component;
  built.manifest.rootfs = rootfs.component;
  built.manifest.initrd = initrd.component;
  built.manifest.verity = rootfs.verity.value_or(Verity{});
  ANCHORHOLD_CHECK(publish(built.manifest, key));
  built.changed = true;
  // What was just written must also be accepted: a key folder that the store does not trust shows here.
  if (auto accepted = store_.read_manifest(recipe_.name); !accepted) return fail(accepted.error());
  return built;
}

}  // namespace

std::string_view to_string(Stage stage) {
  switch (stage) {
    case Stage::kernel:
      return "kernel";
    case Stage::rootfs:
      return "rootfs";
    case Stage::initrd:
      return "initrd";
  }
  return "?";
}

Result<fs::path> default_key_folder() {
  return ANCHORHOLD_TRY(config_directory()) / "image-keys";
}

Result<BuiltImage> build(const ImageStore& store, const std::string& name, const BuildOptions& options,
                         std::stop_token stop) {
  auto recipe = ANCHORHOLD_TRY(load_recipe(options.recipes, name));
  return Builder(store, std::move(recipe), options, std::move(stop)).run();
}

}  // namespace anchorhold::images
