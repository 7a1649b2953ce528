#include "text_diff.h"

#include <algorithm>
#include <fmt/format.h>
#include <vector>

namespace anchorhold::mounts {
namespace {

using Lines = std::vector<std::string_view>;

constexpr std::size_t context_lines = 3;
// The work is the product of this and the number of lines; the memory its square.
constexpr int max_edits = 1500;

Lines split(std::string_view text) {
  Lines lines;
  while (!text.empty()) {
    auto end = std::min(text.find('\n'), text.size() - 1) + 1;
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return lines;
}

struct Edit {
  char kind;  // ' ', '-', '+'
  std::size_t before, now;
};

// Myers, "An O(ND) Difference Algorithm and Its Variations" (1986), the greedy form. Nothing when there are
// too many edits.
std::vector<Edit> shortest_edits(const Lines& before, const Lines& now) {
  const int n = static_cast<int>(before.size()), m = static_cast<int>(now.size());
  const int limit = std::min(n + m, max_edits);
  std::vector<int> furthest(static_cast<std::size_t>(2 * limit + 2), 0);
  std::vector<std::vector<int>> history;
  auto at = [&](std::vector<int>& row, int k) -> int& { return row[static_cast<std::size_t>(k + limit)]; };
  int found = -1;
  for (int d = 0; d <= limit && found < 0; ++d) {
    history.emplace_back(furthest.begin() + (limit - d), furthest.begin() + (limit + d + 1));
    for (int k = -d; k <= d; k += 2) {
      bool down = k == -d || (k != d && at(furthest, k - 1) < at(furthest, k + 1));
      int x = down ? (k == limit ? 0 : at(furthest, k + 1)) : at(furthest, k - 1) + 1;
      if (d == 0) x = 0;
      int y = x - k;
      while (x < n && y < m && before[static_cast<std::size_t>(x)] == now[static_cast<std::size_t>(y)])
        ++x, ++y;
      at(furthest, k) = x;
      if (x >= n && y >= m) {
        found = d;
        break;
      }
    }
  }
  std::vector<Edit> edits;
  if (found < 0) return edits;
  int x = n, y = m;
  for (int d = found; d > 0; --d) {
    auto& row = history[static_cast<std::size_t>(d)];  // as it was before step d; index k + d
    auto was = [&](int k) { return k < -d || k > d ? -1 : row[static_cast<std::size_t>(k + d)]; };
    int k = x - y;
    bool down = k == -d || (k != d && was(k - 1) < was(k + 1));
    int previous_k = down ? k + 1 : k - 1;
    int previous_x = was(previous_k), previous_y = previous_x - previous_k;
    int start_x = down ? previous_x : previous_x + 1, start_y = start_x - k;
    while (x > start_x && y > start_y)
      edits.push_back({' ', static_cast<std::size_t>(--x), static_cast<std::size_t>(--y)});
    if (down)
      edits.push_back({'+', static_cast<std::size_t>(previous_x), static_cast<std::size_t>(previous_y)});
    else
      edits.push_back({'-', static_cast<std::size_t>(previous_x), static_cast<std::size_t>(previous_y)});
    x = previous_x;
    y = previous_y;
  }
  while (x > 0 && y > 0) edits.push_back({' ', static_cast<std::size_t>(--x), static_cast<std::size_t>(--y)});
  std::reverse(edits.begin(), edits.end());
  return edits;
}

std::vector<Edit> all_replaced(const Lines& before, const Lines& now) {
  std::vector<Edit> edits;
  for (std::size_t i = 0; i < before.size(); ++i) edits.push_back({'-', i, 0});
  for (std::size_t i = 0; i < now.size(); ++i) edits.push_back({'+', before.size(), i});
  return edits;
}

void append_line(std::string& out, char kind, std::string_view line) {
  out += kind;
  out += line;
  if (!line.ends_with('\n')) out += "\n\\ No newline at end of file\n";
}

}  // namespace

bool looks_like_text(std::string_view beginning) {
  std::size_t strange = 0;
  for (unsigned char c : beginning) {
    if (c == 0) return false;
    if (c < 0x20 && c != '\n' && c != '\t' && c != '\r' && c != '\f' && c != 0x1b) ++strange;
  }
  return strange * 50 <= beginning.size();
}

std::string unified_diff(std::string_view before_text, std::string_view now_text) {
  if (before_text == now_text) return {};
  Lines before = split(before_text), now = split(now_text);
  // What is the same at both ends is no work.
  std::size_t head = 0, tail = 0;
  while (head < before.size() && head < now.size() && before[head] == now[head]) ++head;
  while (tail + head < before.size() && tail + head < now.size() &&
         before[before.size() - 1 - tail] == now[now.size() - 1 - tail])
    ++tail;
  auto middle = [&](const Lines& lines) {
    return Lines(lines.begin() + static_cast<long>(head), lines.end() - static_cast<long>(tail));
  };
  Lines changed_before = middle(before), changed_now = middle(now);
  auto edits = shortest_edits(changed_before, changed_now);
  if (edits.empty()) edits = all_replaced(changed_before, changed_now);
  std::vector<Edit> all;
  for (std::size_t i = head > context_lines ? head - context_lines : 0; i < head; ++i)
    all.push_back({' ', i, i});
  for (auto edit : edits) all.push_back({edit.kind, edit.before + head, edit.now + head});
  for (std::size_t i = 0; i < std::min(tail, context_lines); ++i)
    all.push_back({' ', before.size() - tail + i, now.size() - tail + i});

  std::string out;
  for (std::size_t i = 0; i < all.size();) {
    if (all[i].kind == ' ') {
      ++i;
      continue;
    }
    std::size_t begin = i > context_lines ? i - context_lines : 0, end = i, same = 0;
    for (; end < all.size() && same <= 2 * context_lines; ++end) same = all[end].kind == ' ' ? same + 1 : 0;
    if (same > context_lines) end -= same - context_lines;
    std::size_t old_count = 0, new_count = 0;
    std::string body;
    for (std::size_t at = begin; at < end; ++at) {
      const Edit& edit = all[at];
      old_count += edit.kind != '+';
      new_count += edit.kind != '-';
      append_line(body, edit.kind, edit.kind == '+' ? now[edit.now] : before[edit.before]);
      if (out.size() + body.size() > max_diff_bytes)
        return out + body.substr(0, max_diff_bytes - out.size()) + "\n… the rest is left out\n";
    }
    out += fmt::format("@@ -{},{} +{},{} @@\n", all[begin].before + (old_count > 0), old_count,
                       all[begin].now + (new_count > 0), new_count);
    out += body;
    i = end;
  }
  return out;
}

}  // namespace anchorhold::mounts
