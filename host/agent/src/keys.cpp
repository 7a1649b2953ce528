#include "agent/keys.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <map>
#include <mutex>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"

namespace anchorhold::agent {
namespace {

constexpr std::array key_variables{"ANTHROPIC_API_KEY", "OPENAI_API_KEY"};
constexpr std::size_t max_key_file_bytes = 16 << 10;

struct Withdrawn {
  std::mutex mutex;
  std::map<std::string, Secret> keys;
};

Withdrawn& withdrawn() {
  static Withdrawn instance;
  return instance;
}

std::string trimmed(const char* value) {
  std::string_view text = value;
  auto begin = text.find_first_not_of(" \t\r\n");
  if (begin == text.npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1));
}

}  // namespace

void withdraw_keys_from_environment() {
  auto& store = withdrawn();
  std::lock_guard lock(store.mutex);
  for (const char* variable : key_variables) {
    char* value = std::getenv(variable);
    if (!value) continue;
    store.keys[variable] = Secret(trimmed(value));
    // The string is the process's own environment block, which /proc/self/environ shows.
    wipe(value, std::strlen(value));
    unsetenv(variable);
  }
}

Secret environment_key(const std::string& variable) {
  auto& store = withdrawn();
  std::lock_guard lock(store.mutex);
  if (auto found = store.keys.find(variable); found != store.keys.end()) return found->second.copy();
  const char* value = std::getenv(variable.c_str());
  return value ? Secret(trimmed(value)) : Secret();
}

Result<Secret> read_key_file(const std::filesystem::path& file) {
  auto text = read_file(file, max_key_file_bytes);
  if (!text) {
    auto error = with_context(text.error(), "reading the key file");
    error.hint = "--key-file names a file that contains the key and nothing else.";
    return fail(std::move(error));
  }
  Secret result(trimmed(text->c_str()));
  wipe(*text);
  auto printable = [](char c) { return c > 0x20 && c < 0x7f; };
  std::string_view key = result.expose();
  if (key.empty())
    return fail(ErrorCode::invalid_argument, fmt::format("the key file {} is empty", file.string()));
  if (!std::all_of(key.begin(), key.end(), printable))
    return fail(ErrorCode::invalid_argument,
                fmt::format("the key file {} does not hold one line with a key", file.string()),
                "It must contain the key and nothing else.");
  return result;
}

std::string key_file_warning(const std::filesystem::path& file) {
  struct stat info;
  if (file.empty() || stat(file.c_str(), &info) != 0 || (info.st_mode & (S_IRGRP | S_IROTH)) == 0) return {};
  return fmt::format("other users can read the key file {}: chmod 600 it", file.string());
}

}  // namespace anchorhold::agent
