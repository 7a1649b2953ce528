// What a command prints: the head and the tail in memory for the model, all of it in a file once it is more
// than that. Memory stays bounded whatever arrives.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/fd.h"

namespace anchorhold::agent {

class CapturedOutput {
 public:
  // Nothing beyond max_stored bytes goes to the file.
  CapturedOutput(std::filesystem::path file, std::size_t cap, std::uint64_t max_stored);
  void add(std::string_view bytes);

  std::uint64_t total() const { return total_; }
  // Bytes in the file; 0: everything fits the cap and there is no file.
  std::uint64_t stored() const { return stored_; }
  // For the model: all of it, or head and tail around a line that says how to read the rest (by read_output
  // of `call`).
  std::string text(std::uint64_t call) const;

 private:
  void store(std::string_view bytes);

  std::filesystem::path file_;
  std::size_t half_;
  std::uint64_t max_stored_;
  std::string head_;  // everything, until it is more than the cap
  std::string tail_;
  bool spilled_ = false;
  std::uint64_t total_ = 0;
  std::uint64_t stored_ = 0;
  UniqueFd fd_;
  std::string trouble_;  // why not everything is in the file
};

}  // namespace anchorhold::agent
