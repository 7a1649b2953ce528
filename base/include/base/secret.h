// A secret in memory: in pages of its own that are not swapped where the limits allow it, not part of a core
// dump, and wiped at the end; never copied by accident, never printed. It leaves only through expose(), whose
// callers are few and named. The one type of the project for this; link anchorhold_secret.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace anchorhold {

class Secret {
 public:
  Secret() = default;
  // Takes the bytes and wipes where they came from.
  explicit Secret(std::string&& bytes);
  static Secret of(std::string_view bytes);
  // So many zero bytes, to be written through data().
  static Secret zeros(std::size_t size);
  Secret(Secret&& other) noexcept;
  Secret& operator=(Secret&& other) noexcept;
  Secret(const Secret&) = delete;
  Secret& operator=(const Secret&) = delete;
  ~Secret();

  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  Secret copy() const { return of(expose()); }
  std::string_view expose() const { return data_ ? std::string_view(data_, size_) : ""; }
  char* data() { return data_; }

 private:
  void release();
  char* data_ = nullptr;  // sodium_malloc(3): between guard pages
  std::size_t size_ = 0;
};

// Overwrites in a way the compiler keeps; of a text also what lies between its size and its capacity, where
// an earlier, longer value may have been.
void wipe(std::string& bytes);
void wipe(char* bytes, std::size_t size);

// While one of these lives, no other process of the person may read this one's memory, and a crash leaves no
// dump of it (PR_SET_DUMPABLE, prctl(2)). Safe from any thread; the last one puts back what was.
class Undumpable {
 public:
  Undumpable();
  ~Undumpable();
  Undumpable(const Undumpable&) = delete;
  Undumpable& operator=(const Undumpable&) = delete;
};

}  // namespace anchorhold
