// anchorhold image: building, listing, checking and removing guest images.
#include <chrono>
#include <fmt/format.h>

#include "base/clock.h"
#include "base/paths.h"
#include "commands.h"
#include "images/build.h"
#include "images/store.h"
#include "images/verified_image.h"

namespace anchorhold::cli {
namespace {

constexpr std::string_view default_image = "base";

// The recipes of an installed package, or of the source tree that this program was built from.
std::filesystem::path recipes_folder() {
  std::error_code error;
  auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  auto installed = self.parent_path().parent_path() / "share" / "anchorhold" / "images" / "recipes";
  if (std::filesystem::is_directory(installed, error)) return installed;
  return std::filesystem::path(ANCHORHOLD_SOURCE_DIR) / "images" / "recipes";
}

// Shows a build: one changing line on a terminal, one line a stage elsewhere; the output of its scripts with
// --verbose.
class BuildView {
 public:
  BuildView(Console& console, std::string image) : console_(console), image_(std::move(image)) {}

  void show(const images::BuildProgress& progress) {
    using Kind = images::BuildProgress::Kind;
    const auto stage = images::to_string(progress.stage);
    switch (progress.kind) {
      case Kind::waiting:
        announce("another process is building; waiting for it");
        break;
      case Kind::cached:
        console_.detail(fmt::format("{}: nothing to do", stage));
        break;
      case Kind::started:
        announce(fmt::format("building the {}", describe(progress.stage)));
        break;
      case Kind::advanced:
        console_.progress(fmt::format("{} {} {}", bar(progress.percent), stage, progress.text));
        break;
      case Kind::output:
        console_.detail(progress.text);
        break;
      case Kind::finished:
        announce(fmt::format("the {} is done", describe(progress.stage)));
        break;
    }
    if (progress.kind != Kind::output)
      console_.object(Json{{"type", "progress"},
                           {"image", image_},
                           {"stage", stage},
                           {"state", name_of(progress.kind)},
                           {"percent", progress.percent},
                           {"text", progress.text}});
  }

 private:
  void announce(const std::string& text) { console_.note(fmt::format("image {}: {}", image_, text)); }
  static std::string_view describe(images::Stage stage) {
    switch (stage) {
      case images::Stage::kernel:
        return "kernel";
      case images::Stage::rootfs:
        return "root file system";
      case images::Stage::initrd:
        return "initial RAM disk";
    }
    return "image";
  }
  static std::string_view name_of(images::BuildProgress::Kind kind) {
    using Kind = images::BuildProgress::Kind;
    switch (kind) {
      case Kind::waiting:
        return "waiting";
      case Kind::cached:
        return "cached";
      case Kind::started:
        return "started";
      case Kind::advanced:
        return "advanced";
      case Kind::output:
        return "output";
      case Kind::finished:
        return "finished";
    }
    return "unknown";
  }

  Console& console_;
  std::string image_;
};

Result<int> build(const ImageCommand& command, Console& console, Signals& signals) {
  std::string name = command.name.empty() ? std::string(default_image) : command.name;
  auto store = ANCHORHOLD_TRY(images::ImageStore::open_default());
  BuildView view(console, name);
  images::BuildOptions options;
  options.recipes = recipes_folder();
  options.agent = ANCHORHOLD_TRY(own_program("anchorhold-guest"));
  options.key_folder = ANCHORHOLD_TRY(images::default_key_folder());
  options.refresh = command.refresh;
  options.progress = [&view](const images::BuildProgress& progress) { view.show(progress); };
  std::stop_source stop;
  signals.set_handler([&stop](int) { stop.request_stop(); });
  auto built = images::build(store, name, options, stop.get_token());
  signals.set_handler({});
  console.progress("");
  if (!built) return fail(std::move(built).error());
  console.object(Json{{"type", "image"},
                      {"name", name},
                      {"changed", built->changed},
                      {"kernel_digest", built->manifest.kernel.digest},
                      {"rootfs_digest", built->manifest.rootfs.digest},
                      {"initrd_digest", built->manifest.initrd.digest}});
  console.line(fmt::format("image {}: {}", name, built->changed ? "built" : "nothing to do"));
  return exit_status::ok;
}

Result<int> list(Console& console) {
  auto store = ANCHORHOLD_TRY(images::ImageStore::open_default());
  auto all = ANCHORHOLD_TRY(store.list());
  for (const auto& image : all) {
    console.object(Json{{"type", "image"},
                        {"name", image.name},
                        {"usable", image.usable},
                        {"problem", image.problem},
                        {"description", image.description},
                        {"kernel_version", image.kernel_version},
                        {"key", image.key_id},
                        {"bytes", image.size.bytes},
                        {"built_unix_seconds", image.built_unix_seconds}});
    WallTime built{std::chrono::seconds(image.built_unix_seconds)};
    console.line(fmt::format("{:<12} {:>9}  {}  {}", image.name, to_string(image.size), to_rfc3339(built),
                             image.usable ? image.description : "UNUSABLE: " + image.problem));
  }
  if (all.empty()) console.note("there are no images yet; to build the default one: anchorhold image build");
  return exit_status::ok;
}

Result<int> verify(const ImageCommand& command, Console& console) {
  auto store = ANCHORHOLD_TRY(images::ImageStore::open_default());
  std::vector<std::string> names{command.name};
  if (command.name.empty()) {
    names.clear();
    for (const auto& image : ANCHORHOLD_TRY(store.list())) names.push_back(image.name);
  }
  int status = exit_status::ok;
  for (const auto& name : names) {
    console.progress("checking " + name);
    auto image = images::VerifiedImage::verify(store, name);
    console.progress("");
    if (!image) {
      console.error(image.error());
      status = exit_status::not_completed;
      continue;
    }
    console.object(Json{{"type", "image"}, {"name", name}, {"verified", true}, {"key", image->key_id()}});
    console.line(fmt::format("{}: every byte is as signed by key {}", name, image->key_id()));
  }
  return status;
}

}  // namespace

Result<int> run_image_command(const ImageCommand& command, Console& console, Signals& signals) {
  using Action = ImageCommand::Action;
  switch (command.action) {
    case Action::list:
      return list(console);
    case Action::build:
      return build(command, console, signals);
    case Action::verify:
      return verify(command, console);
    case Action::remove: {
      auto store = ANCHORHOLD_TRY(images::ImageStore::open_default());
      ANCHORHOLD_CHECK(store.remove(command.name));
      console.object(Json{{"type", "removed"}, {"name", command.name}});
      console.line(fmt::format("{}: removed; to free its space: anchorhold image gc", command.name));
      return exit_status::ok;
    }
    case Action::collect_garbage: {
      auto store = ANCHORHOLD_TRY(images::ImageStore::open_default());
      auto collected = ANCHORHOLD_TRY(store.collect_garbage());
      console.object(
          Json{{"type", "collected"}, {"removed", collected.removed}, {"bytes", collected.freed.bytes}});
      for (const auto& name : collected.unreadable)
        console.note(
            fmt::format("the manifest of the image {0} cannot be read, so every kernel and root file "
                        "system was kept; mend it: anchorhold image build {0}, or forget it: "
                        "anchorhold image rm {0}",
                        name));
      console.line(
          fmt::format("{} parts removed, {} freed", collected.removed.size(), to_string(collected.freed)));
      return exit_status::ok;
    }
  }
  return fail(ErrorCode::internal, "an unknown image command");
}

}  // namespace anchorhold::cli
