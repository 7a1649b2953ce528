#include "base/units.h"

#include <array>
#include <charconv>
#include <fmt/format.h>
#include <limits>

namespace anchorhold {
namespace {

constexpr std::uint64_t max_milliseconds = std::numeric_limits<std::int64_t>::max() / 1000;

tl::unexpected<Error> bad(std::string_view kind, std::string_view text, std::string_view example) {
  return fail(ErrorCode::invalid_argument, fmt::format("'{}' is not a {}", text, kind),
              fmt::format("write it like {}", example));
}

}  // namespace

Result<ByteSize> parse_size(std::string_view text) {
  constexpr std::string_view example = "512M or 2GiB";
  std::uint64_t number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end == text.data()) return bad("size", text, example);
  std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  unsigned shift = 0;
  if (!unit.empty() && unit != "B") {
    constexpr std::string_view letters = "KMGT";
    auto upper = unit[0] >= 'a' && unit[0] <= 'z' ? static_cast<char>(unit[0] - 32) : unit[0];
    auto position = letters.find(upper);
    auto rest = unit.substr(1);
    if (position == std::string_view::npos || !(rest.empty() || rest == "B" || rest == "iB"))
      return bad("size", text, example);
    shift = static_cast<unsigned>(position + 1) * 10;
  }
  if (number > (std::numeric_limits<std::uint64_t>::max() >> shift)) return bad("size", text, example);
  return ByteSize{number << shift};
}

Result<std::chrono::milliseconds> parse_duration(std::string_view text) {
  constexpr std::string_view example = "90s, 5m or 1h30m";
  struct Unit {
    std::string_view name;
    std::uint64_t milliseconds;
  };
  constexpr std::array units{Unit{"ms", 1}, Unit{"s", 1000}, Unit{"m", 60'000}, Unit{"h", 3'600'000},
                             Unit{"d", 86'400'000}};
  std::string_view rest = text;
  std::uint64_t total = 0;
  if (rest.empty()) return bad("duration", text, example);
  while (!rest.empty()) {
    std::uint64_t number = 0;
    auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    if (error != std::errc() || end == rest.data()) return bad("duration", text, example);
    bool whole = rest.data() == text.data();
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    std::uint64_t factor = 0;
    if (rest.empty() && whole) factor = 1000;
    for (const Unit& unit : units) {
      if (factor == 0 && rest.starts_with(unit.name)) {
        factor = unit.milliseconds;
        rest.remove_prefix(unit.name.size());
      }
    }
    if (factor == 0 || number > max_milliseconds / factor || total > max_milliseconds - number * factor)
      return bad("duration", text, example);
    total += number * factor;
  }
  return std::chrono::milliseconds(total);
}

std::string to_string(ByteSize size) {
  constexpr std::array names{"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(size.bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < names.size()) value /= 1024, ++unit;
  return unit == 0 || value == static_cast<double>(static_cast<std::uint64_t>(value))
             ? fmt::format("{:.0f} {}", value, names[unit])
             : fmt::format("{:.1f} {}", value, names[unit]);
}

std::string to_string(std::chrono::milliseconds duration) {
  auto count = duration.count();
  if (count < 1000) return fmt::format("{}ms", count);
  if (count < 60'000)
    return count % 1000 ? fmt::format("{:.1f}s", count / 1000.0) : fmt::format("{}s", count / 1000);
  if (count < 3'600'000) return fmt::format("{}m {}s", count / 60'000, count / 1000 % 60);
  return fmt::format("{}h {}m", count / 3'600'000, count / 60'000 % 60);
}

}  // namespace anchorhold
