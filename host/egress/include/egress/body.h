// Bodies as they pass: the chunked coding read strictly, and what is looked for in the bytes. Nothing here
// holds more than a line of framing or a part of what is searched. Source: RFC 9112 7.1.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "egress/http_head.h"

namespace anchorhold::egress {

// The chunked coding. Lines end with CR LF; extensions are read over and do not go on.
class ChunkedReader {
 public:
  struct Step {
    enum class Kind {
      more,  // more bytes are needed than there are
      data,  // `data` is a part of the body
      done,  // the body is over; trailers() are complete
    };
    Kind kind = Kind::more;
    std::size_t consumed = 0;  // of the bytes given
    std::string_view data;     // within the bytes given
  };
  // invalid_argument for everything that is not exactly the coding.
  Result<Step> next(std::string_view bytes);
  const std::vector<Field>& trailers() const { return trailers_; }

 private:
  enum class State { size_line, data, data_end, trailers, done };
  Result<Step> read_size(std::string_view bytes);
  Result<Step> read_trailers(std::string_view bytes);

  State state_ = State::size_line;
  std::uint64_t remaining_ = 0;
  std::vector<Field> trailers_;
};

// Looks at a body, and may change it on its way.
class BodyFilter {
 public:
  virtual ~BodyFilter() = default;
  // Appends to `out` what may go on; permission_denied ends the message.
  virtual Status pass(std::string_view bytes, std::string& out) = 0;
  virtual Status finish(std::string& out) = 0;
};

// Refuses a body that holds the session's token, as it is or in base64: such a body is on its way to somebody
// to whom the token does not belong. Bytes before the token's last one may have gone on; the message ends.
std::unique_ptr<BodyFilter> watch_for_token(std::string session_token);

// Refuses a body with a member of this name (lower case) in one of its JSON objects, at any depth and however
// its letters are written. It is looked for in every body, since a server may not care what a body is called;
// in what only looks like JSON it may be found as well. A body that cannot be read so, in UTF-16 or UTF-32,
// is refused.
std::unique_ptr<BodyFilter> watch_json_fields(std::vector<std::string> names);

// What a rule and the session want to be looked for in a request's body: none, one of the two above or both.
// `session_token` is empty where it belongs.
std::unique_ptr<BodyFilter> request_filter(std::string session_token, std::vector<std::string> json_fields);

// Writes '*' over every occurrence of the patterns, also of one that is cut by the edges of what is passed.
// Holds back only what may be the beginning of one. The patterns are wiped at the end of its life.
std::unique_ptr<BodyFilter> scrub_secrets(std::vector<std::string> patterns);

// The patterns under which a server could send a secret back: as it is, in base64 as it was sent, in JSON.
std::vector<std::string> secret_patterns(std::string_view secret, std::string_view field_value);
// A text with '*' over every occurrence.
std::string scrubbed(std::string_view text, const std::vector<std::string>& patterns);

}  // namespace anchorhold::egress
