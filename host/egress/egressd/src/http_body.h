// The body of one HTTP/1 message on its way, as its parts come.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "egress/body.h"
#include "stream.h"

namespace anchorhold::egress {

struct BodySpec {
  BodyFraming framing;
  bool chunked_out = true;            // a chunked body goes on as one; else only its bytes
  BodyFilter* filter = nullptr;       // sees every byte
  std::optional<std::uint64_t> most;  // bytes of content
  std::string refused_beyond;         // why there are no more
  std::function<Status(const std::vector<Field>&)> judge_trailers;
  std::function<void()> moved;  // after each part
};

struct BodyOutcome {
  enum class Kind {
    whole,
    cut_short,  // the source ended or broke the coding
    not_taken,  // the destination is gone
    refused,    // see reason
  };
  Kind kind = Kind::whole;
  std::string reason;
};

Awaitable<BodyOutcome> relay_body(Reader& from, Stream& to, BodySpec spec);

}  // namespace anchorhold::egress
