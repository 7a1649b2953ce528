// Members of JSON objects in a body that passes (RFC 8259).
#include <algorithm>
#include <fmt/format.h>
#include <optional>

#include "egress/body.h"
#include "egress/text.h"

namespace anchorhold::egress {
namespace {

// Longer than any name that is looked for.
constexpr std::size_t longest_name = 3 * 64 + 1;
constexpr std::size_t encoding_bytes = 4;
// The two characters beyond ASCII that some readers take for 'k' and 's' when they care for no case.
constexpr int kelvin = 0x212a, long_s = 0x17f;

std::string folded(std::string_view name) {
  std::string text = lower(name);
  for (const auto& [written, letter] :
       {std::pair<std::string_view, char>{"\xe2\x84\xaa", 'k'}, {"\xc5\xbf", 's'}})
    for (std::size_t at = 0; (at = text.find(written, at)) != std::string::npos; ++at)
      text.replace(at, written.size(), 1, letter);
  return text;
}

// Every quotation mark is taken for the end of a string and for the beginning of another: a body that is not
// quite JSON cannot make what a lenient reader takes for a name look like what stands between two of them.
class JsonFields : public BodyFilter {
 public:
  explicit JsonFields(std::vector<std::string> names) : names_(std::move(names)) {}

  Status pass(std::string_view bytes, std::string& out) override {
    for (char c : bytes) {
      if (seen_ < encoding_bytes && ++seen_ && c == '\0')
        return fail(ErrorCode::permission_denied,
                    "the body is in an encoding in which its fields cannot be looked for");
      read(c);
      if (found_)
        return fail(ErrorCode::permission_denied,
                    fmt::format("the body has the field {}, which is not allowed", *found_));
    }
    out.append(bytes);
    return {};
  }
  Status finish(std::string&) override { return {}; }

 private:
  void read(char c) {
    if (ended_ && c == ':') {
      auto known = std::find(names_.begin(), names_.end(), *ended_);
      if (known != names_.end()) found_ = *known;
    }
    if (c != ' ' && c != '\t' && c != '\r' && c != '\n') ended_.reset();
    if (code_digits_ > 0) return read_code(c);
    if (escaped_) return read_escaped(c);
    if (c == '\\') {
      escaped_ = true;
    } else if (c == '"') {
      ended_ = folded(name_);
      if (too_long_) ended_.reset();
      name_.clear();
      too_long_ = false;
    } else {
      add(c);
    }
  }
  void read_escaped(char c) {
    escaped_ = false;
    if (c == 'u') {
      code_ = 0;
      code_digits_ = 4;
    } else {
      add(c);  // '"', '\\' and '/' for themselves; the others are control characters, which no name has
    }
  }
  void read_code(char c) {
    int digit = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
    if (digit < 0) {  // none: what follows is read as it is
      code_digits_ = 0;
      return read(c);
    }
    code_ = code_ * 16 + digit;
    if (--code_digits_ > 0) return;
    if (code_ == kelvin || code_ == long_s)
      add(code_ == kelvin ? 'k' : 's');
    else
      add(code_ < 0x80 ? static_cast<char>(code_) : '\x7f');
  }
  void add(char c) {
    if (name_.size() < longest_name)
      name_ += c;
    else
      too_long_ = true;
  }

  const std::vector<std::string> names_;
  std::size_t seen_ = 0;
  std::string name_;  // since the last quotation mark
  bool too_long_ = false;
  std::optional<std::string> ended_;  // a string after which nothing but blanks came
  bool escaped_ = false;
  int code_digits_ = 0;
  int code_ = 0;
  std::optional<std::string> found_;
};

class Both : public BodyFilter {
 public:
  Both(std::unique_ptr<BodyFilter> first, std::unique_ptr<BodyFilter> second)
      : first_(std::move(first)), second_(std::move(second)) {}
  Status pass(std::string_view bytes, std::string& out) override {
    std::string between;
    ANCHORHOLD_CHECK(first_->pass(bytes, between));
    return second_->pass(between, out);
  }
  Status finish(std::string& out) override {
    std::string between;
    ANCHORHOLD_CHECK(first_->finish(between));
    ANCHORHOLD_CHECK(second_->pass(between, out));
    return second_->finish(out);
  }

 private:
  std::unique_ptr<BodyFilter> first_, second_;
};

}  // namespace

std::unique_ptr<BodyFilter> watch_json_fields(std::vector<std::string> names) {
  return std::make_unique<JsonFields>(std::move(names));
}

std::unique_ptr<BodyFilter> request_filter(std::string session_token, std::vector<std::string> json_fields) {
  auto token = session_token.empty() ? nullptr : watch_for_token(std::move(session_token));
  auto fields = json_fields.empty() ? nullptr : watch_json_fields(std::move(json_fields));
  if (!token || !fields) return token ? std::move(token) : std::move(fields);
  return std::make_unique<Both>(std::move(token), std::move(fields));
}

}  // namespace anchorhold::egress
