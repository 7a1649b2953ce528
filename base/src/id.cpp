#include "base/id.h"

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <sys/random.h>

namespace anchorhold {
namespace {

void fill_random(void* data, std::size_t size) {
  auto* bytes = static_cast<unsigned char*>(data);
  while (size > 0) {
    ssize_t got = getrandom(bytes, size, 0);
    if (got <= 0) {
      if (got < 0 && errno == EINTR) continue;
      std::abort();  // a kernel without random numbers: nothing made here could be trusted
    }
    bytes += got;
    size -= static_cast<std::size_t>(got);
  }
}

}  // namespace

std::string to_hex(std::string_view bytes) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (unsigned char byte : bytes) {
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

std::string random_hex(std::size_t bytes) {
  std::string raw(bytes, '\0');
  fill_random(raw.data(), raw.size());
  return to_hex(raw);
}

std::string new_short_id() {
  constexpr char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
  auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
          .count();
  std::string time_part(6, '0');
  for (int i = 5; i >= 0; --i, seconds /= 36) time_part[static_cast<std::size_t>(i)] = digits[seconds % 36];
  std::uint32_t raw[6];
  fill_random(raw, sizeof raw);
  for (std::uint32_t value : raw) time_part += digits[value % 36];
  return time_part;
}

}  // namespace anchorhold
