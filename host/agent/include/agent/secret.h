// A secret in memory: wiped when it ends or moves on, never copied by accident, never printed. It leaves only
// through expose(), whose callers are few and named.
#pragma once

#include <string>
#include <string_view>

namespace anchorhold::agent {

class Secret {
 public:
  Secret() = default;
  // Takes the bytes and wipes where they came from.
  explicit Secret(std::string&& bytes);
  Secret(Secret&& other) noexcept;
  Secret& operator=(Secret&& other) noexcept;
  Secret(const Secret&) = delete;
  Secret& operator=(const Secret&) = delete;
  ~Secret();

  bool empty() const { return bytes_.empty(); }
  Secret copy() const;
  std::string_view expose() const { return bytes_; }

 private:
  std::string bytes_;
};

// Overwrites in a way the compiler keeps.
void wipe(std::string& bytes);
void wipe(char* bytes, std::size_t size);

}  // namespace anchorhold::agent
