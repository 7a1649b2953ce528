#include "egress/body.h"

#include <algorithm>
#include <fmt/format.h>

#include "base/secret.h"
#include "egress/provenance.h"

namespace anchorhold::egress {
namespace {

constexpr std::size_t max_size_line = 256;
constexpr std::size_t max_trailer_bytes = 16 * 1024;
// Shorter ones would be found everywhere.
constexpr std::size_t min_pattern = 8;

tl::unexpected<Error> refuse(std::string what) {
  return fail(ErrorCode::invalid_argument, std::move(what));
}

// A line without its end; nothing when it is not complete.
Result<std::optional<std::string_view>> line_of(std::string_view bytes, std::size_t limit) {
  auto end = bytes.find('\n');
  std::string_view line = bytes.substr(0, end);
  if (line.size() > limit) return refuse("a line of a chunked body that is too long");
  if (end == std::string_view::npos) return std::optional<std::string_view>();
  if (line.empty() || line.back() != '\r') return refuse("a line of a chunked body that ends with a bare LF");
  line.remove_suffix(1);
  if (line.find_first_of(std::string_view("\r\0", 2)) != std::string_view::npos)
    return refuse("a control character in a line of a chunked body");
  return std::optional(line);
}

Result<std::uint64_t> chunk_size(std::string_view line) {
  std::uint64_t size = 0;
  std::size_t digits = 0;
  for (; digits < line.size(); ++digits) {
    char c = line[digits];
    int value = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
    if (value < 0) break;
    if (digits == 15) return refuse("a chunk that is too long");
    size = size << 4 | static_cast<unsigned>(value);
  }
  std::string_view rest = line.substr(digits);
  if (digits == 0 || (!rest.empty() && rest[0] != ';')) return refuse("a chunk without a proper size");
  return size;
}

bool is_token_char(char c) {
  constexpr std::string_view others = "!#$%&'*+-.^_`|~";
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         others.find(c) != std::string_view::npos;
}

Result<Field> trailer_of(std::string_view line) {
  auto colon = line.find(':');
  std::string_view name = line.substr(0, colon);
  if (colon == std::string_view::npos || name.empty() ||
      !std::all_of(name.begin(), name.end(), is_token_char))
    return refuse("a field after a body that is not well formed");
  std::string_view value = line.substr(colon + 1);
  while (!value.empty() && (value.front() == ' ' || value.front() == '\t')) value.remove_prefix(1);
  while (!value.empty() && (value.back() == ' ' || value.back() == '\t')) value.remove_suffix(1);
  for (char c : value)
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f)
      return refuse("a control character in a field after a body");
  return Field{std::string(name), std::string(value)};
}

class TokenWatch : public BodyFilter {
 public:
  explicit TokenWatch(std::string token) : token_(std::move(token)), kept_(token_.size() * 3) {}
  Status pass(std::string_view bytes, std::string& out) override {
    // The end of what passed before, so that a token that was cut is whole here.
    tail_.append(bytes.substr(0, kept_));
    bool found = holds_token(tail_, token_) || holds_token(bytes, token_);
    if (found)
      return fail(ErrorCode::permission_denied,
                  "the body holds the session's token, which belongs to another destination");
    if (bytes.size() > kept_) tail_ = bytes.substr(bytes.size() - kept_);
    if (tail_.size() > kept_) tail_.erase(0, tail_.size() - kept_);
    out.append(bytes);
    return {};
  }
  Status finish(std::string&) override { return {}; }

 private:
  std::string token_;
  std::size_t kept_;
  std::string tail_;
};

class Scrubber : public BodyFilter {
 public:
  explicit Scrubber(std::vector<std::string> patterns) : patterns_(std::move(patterns)) {}
  ~Scrubber() override {
    for (std::string& pattern : patterns_) wipe(pattern);
    wipe(held_);
  }
  Status pass(std::string_view bytes, std::string& out) override {
    held_.append(bytes);
    for (const std::string& pattern : patterns_) cover(held_, pattern);
    std::size_t keep = 0;
    for (const std::string& pattern : patterns_) keep = std::max(keep, begun(pattern));
    out.append(held_, 0, held_.size() - keep);
    held_.erase(0, held_.size() - keep);
    return {};
  }
  Status finish(std::string& out) override {
    out += held_;
    held_.clear();
    return {};
  }
  static void cover(std::string& text, const std::string& pattern) {
    for (std::size_t at = 0; (at = text.find(pattern, at)) != std::string::npos; at += pattern.size())
      std::fill_n(text.begin() + static_cast<std::ptrdiff_t>(at), pattern.size(), '*');
  }

 private:
  // The longest end of what is held that may be the beginning of the pattern.
  std::size_t begun(const std::string& pattern) const {
    for (std::size_t n = std::min(pattern.size() - 1, held_.size()); n > 0; --n)
      if (held_.compare(held_.size() - n, n, pattern, 0, n) == 0) return n;
    return 0;
  }

  std::vector<std::string> patterns_;
  std::string held_;
};

}  // namespace

Result<ChunkedReader::Step> ChunkedReader::read_size(std::string_view bytes) {
  auto line = ANCHORHOLD_TRY(line_of(bytes, max_size_line));
  if (!line) return Step{};
  remaining_ = ANCHORHOLD_TRY(chunk_size(*line));
  state_ = remaining_ == 0 ? State::trailers : State::data;
  auto step = ANCHORHOLD_TRY(next(bytes.substr(line->size() + 2)));
  step.consumed += line->size() + 2;
  return step;
}

Result<ChunkedReader::Step> ChunkedReader::read_trailers(std::string_view bytes) {
  std::size_t consumed = 0;
  std::vector<Field> fields;
  for (;;) {
    auto line = ANCHORHOLD_TRY(line_of(bytes.substr(consumed), max_trailer_bytes));
    if (consumed > max_trailer_bytes || fields.size() > max_fields)
      return refuse("too many fields after a body");
    if (!line) return Step{};
    consumed += line->size() + 2;
    if (line->empty()) break;
    fields.push_back(ANCHORHOLD_TRY(trailer_of(*line)));
  }
  trailers_ = std::move(fields);
  state_ = State::done;
  return Step{Step::Kind::done, consumed, {}};
}

Result<ChunkedReader::Step> ChunkedReader::next(std::string_view bytes) {
  switch (state_) {
    case State::size_line:
      return read_size(bytes);
    case State::data: {
      auto data = bytes.substr(0, std::min<std::uint64_t>(bytes.size(), remaining_));
      if (data.empty()) return Step{};
      remaining_ -= data.size();
      if (remaining_ == 0) state_ = State::data_end;
      return Step{Step::Kind::data, data.size(), data};
    }
    case State::data_end: {
      std::string_view end = bytes.substr(0, 2);
      if (end != std::string_view("\r\n").substr(0, end.size()))
        return refuse("a chunk that is longer than its size");
      if (end.size() < 2) return Step{};
      state_ = State::size_line;
      auto step = ANCHORHOLD_TRY(next(bytes.substr(2)));
      step.consumed += 2;
      return step;
    }
    case State::trailers:
      return read_trailers(bytes);
    case State::done:
      break;
  }
  return Step{Step::Kind::done, 0, {}};
}

std::unique_ptr<BodyFilter> watch_for_token(std::string session_token) {
  return std::make_unique<TokenWatch>(std::move(session_token));
}

std::unique_ptr<BodyFilter> scrub_secrets(std::vector<std::string> patterns) {
  return std::make_unique<Scrubber>(std::move(patterns));
}

std::vector<std::string> secret_patterns(std::string_view secret, std::string_view field_value) {
  std::vector<std::string> patterns;
  if (secret.size() >= min_pattern) patterns.emplace_back(secret);
  auto space = field_value.find(' ');
  std::string_view credentials =
      space == std::string_view::npos ? field_value : field_value.substr(space + 1);
  if (credentials != secret && credentials.size() >= min_pattern) {
    patterns.emplace_back(credentials);
    while (patterns.back().ends_with('=')) patterns.back().pop_back();
  }
  std::string in_json;
  for (char c : secret) {
    if (c == '"' || c == '\\' || c == '/') in_json += '\\';
    in_json += c;
  }
  if (in_json != secret && in_json.size() >= min_pattern) patterns.push_back(std::move(in_json));
  return patterns;
}

std::string scrubbed(std::string_view text, const std::vector<std::string>& patterns) {
  std::string result(text);
  for (const std::string& pattern : patterns) Scrubber::cover(result, pattern);
  return result;
}

}  // namespace anchorhold::egress
