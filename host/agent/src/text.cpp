#include "text.h"

#include <algorithm>
#include <fmt/format.h>

namespace anchorhold::agent {
namespace {

bool continuation(unsigned char c) {
  return (c & 0xc0) == 0x80;
}

struct Sequence {
  std::size_t length;  // bytes to take
  bool valid;
};

// Well-formed sequences: Unicode 15, table 3-7.
Sequence sequence_at(std::string_view bytes, std::size_t at) {
  auto byte = [&](std::size_t i) {
    return at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0u;
  };
  unsigned first = byte(0);
  if (first < 0x80) return {1, first != 0};
  std::size_t length = first >= 0xc2 && first <= 0xdf   ? 2
                       : first >= 0xe0 && first <= 0xef ? 3
                       : first >= 0xf0 && first <= 0xf4 ? 4
                                                        : 0;
  if (length == 0) return {1, false};
  unsigned low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  unsigned high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (byte(1) < low || byte(1) > high) return {1, false};
  for (std::size_t i = 2; i < length; ++i) {
    if (!continuation(static_cast<unsigned char>(byte(i)))) return {i, false};
  }
  return {length, true};
}

}  // namespace

std::string clean_utf8(std::string_view bytes, std::size_t* replaced) {
  std::string text;
  text.reserve(bytes.size());
  std::size_t count = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    Sequence sequence = sequence_at(bytes, at);
    if (sequence.valid) {
      text.append(bytes, at, sequence.length);
    } else {
      text += "\xef\xbf\xbd";
      ++count;
    }
    at += sequence.length;
  }
  if (replaced) *replaced = count;
  return text;
}

std::string_view prefix_at_boundary(std::string_view text, std::size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  std::size_t end = max_bytes;
  for (int i = 0; i < 3 && end > 0 && continuation(static_cast<unsigned char>(text[end])); ++i) --end;
  return text.substr(0, end);
}

std::string_view suffix_at_boundary(std::string_view text, std::size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  std::size_t begin = text.size() - max_bytes;
  for (int i = 0; i < 3 && begin < text.size() && continuation(static_cast<unsigned char>(text[begin])); ++i)
    ++begin;
  return text.substr(begin);
}

std::string one_line(std::string_view text, std::size_t max_bytes) {
  while (!text.empty() && (text.front() == '\n' || text.front() == ' ' || text.front() == '\r'))
    text.remove_prefix(1);
  auto end = text.find('\n');
  bool more = end != text.npos && text.find_first_not_of(" \r\n\t", end) != text.npos;
  std::string line = clean_utf8(text.substr(0, std::min(end, max_bytes * 4)));
  std::replace_if(
      line.begin(), line.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; },
      ' ');
  if (line.size() > max_bytes) {
    line = prefix_at_boundary(line, max_bytes);
    more = true;
  }
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return more ? line + " …" : line;
}

std::string grouped(std::uint64_t n) {
  std::string digits = fmt::to_string(n);
  for (std::size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

std::string counted(std::uint64_t n, std::string_view singular, std::string_view plural) {
  return fmt::format("{} {}", grouped(n), n == 1 ? singular : plural);
}

bool looks_binary(std::string_view beginning) {
  beginning = beginning.substr(0, 8192);
  return beginning.find('\0') != beginning.npos;
}

}  // namespace anchorhold::agent
