#include "tiny_recipe.h"

#include <chrono>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <thread>

namespace anchorhold::images {

TinyRecipe::TinyRecipe() : directory_(TemporaryDirectory::create("images-test").value()) {
  EXPECT_TRUE(make_directories(path("recipes/tiny")));
  write("agent", "the agent");
  set_script("kernel", "printf 'ELF Linux version 6.1-tiny (x)' > \"$1\"");
  set_script("rootfs", "echo 'progress: 50 half way'; head -c 20000 /dev/zero | tr '\\0' r > \"$1\"");
  set_recipe("", "");
}

void TinyRecipe::write(std::string_view name, std::string_view text, unsigned mode) const {
  // Not atomic on purpose: a shell must not be refused a script that is open for writing elsewhere.
  EXPECT_TRUE(write_file_atomic(path(name), text, mode));
}

void TinyRecipe::set_script(std::string_view stage, const std::string& body) const {
  write(fmt::format("recipes/tiny/{}.sh", stage),
        fmt::format("#!/bin/bash\nset -e\necho {} >> '{}'\n{}\n", stage, path("runs").string(), body), 0755);
}

void TinyRecipe::set_recipe(const std::string& kernel_extra, const std::string& rootfs_extra) const {
  write("recipes/tiny/recipe.json", fmt::format(R"({{"format": 1, "description": "a tiny image",
"kernel": {{"script": "kernel.sh", "inputs": []{}{}}},
"rootfs": {{"script": "rootfs.sh", "inputs": []{}{}}}}})",
                                                kernel_extra.empty() ? "" : ", ", kernel_extra,
                                                rootfs_extra.empty() ? "" : ", ", rootfs_extra));
}

std::vector<std::string> TinyRecipe::runs() const {
  std::ifstream file(path("runs"));
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

ImageStore TinyRecipe::store() const {
  return ImageStore::open(path("store"), {path("keys/trusted")}).value();
}

BuildOptions TinyRecipe::options() const {
  BuildOptions options;
  options.recipes = path("recipes");
  options.agent = path("agent");
  options.key_folder = path("keys");
  options.sources = path("sources");
  return options;
}

bool eventually(const std::function<bool()>& condition) {
  auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

}  // namespace anchorhold::images
