#include "http_body.h"

#include <algorithm>
#include <fmt/format.h>

namespace anchorhold::egress {
namespace {

using Kind = BodyOutcome::Kind;

// Turns parts of content into what is written.
class PartWriter {
 public:
  explicit PartWriter(const BodySpec& spec) : spec_(spec) {
    chunked_ = spec.framing.kind == BodyFraming::Kind::chunked && spec.chunked_out;
  }

  Status add(std::string_view content) {
    total_ += content.size();
    if (spec_.most && total_ > *spec_.most) return fail(ErrorCode::permission_denied, spec_.refused_beyond);
    if (!spec_.filter) {
      add_part(content);
      return {};
    }
    std::string passed;
    ANCHORHOLD_CHECK(spec_.filter->pass(content, passed));
    add_part(passed);
    return {};
  }

  Status finish(const std::vector<Field>& trailers) {
    std::string last;
    if (spec_.filter) ANCHORHOLD_CHECK(spec_.filter->finish(last));
    add_part(last);
    if (!chunked_) return {};
    if (spec_.judge_trailers) ANCHORHOLD_CHECK(spec_.judge_trailers(trailers));
    out_ += "0\r\n";
    for (const Field& field : trailers) out_ += fmt::format("{}: {}\r\n", field.name, field.value);
    out_ += "\r\n";
    return {};
  }

  std::string& out() { return out_; }

 private:
  void add_part(std::string_view part) {
    if (part.empty()) return;
    if (chunked_) fmt::format_to(std::back_inserter(out_), "{:x}\r\n", part.size());
    out_ += part;
    if (chunked_) out_ += "\r\n";
  }

  const BodySpec& spec_;
  bool chunked_ = false;
  std::uint64_t total_ = 0;
  std::string out_;
};

// What one read brought, decoded.
struct Taken {
  std::size_t consumed = 0;
  bool over = false;
};

Result<Taken> take_chunks(ChunkedReader& chunks, std::string_view bytes, PartWriter& writer) {
  Taken taken;
  for (;;) {
    auto step = ANCHORHOLD_TRY(chunks.next(bytes.substr(taken.consumed)));
    taken.consumed += step.consumed;
    if (step.kind == ChunkedReader::Step::Kind::more) return taken;
    if (step.kind == ChunkedReader::Step::Kind::done) {
      taken.over = true;
      return taken;
    }
    ANCHORHOLD_CHECK(writer.add(step.data));
  }
}

Kind kind_of(const Error& error) {
  return error.code == ErrorCode::permission_denied ? Kind::refused : Kind::cut_short;
}

BodyOutcome outcome(Kind kind, std::string reason = {}) {
  return {kind, std::move(reason)};
}

}  // namespace

Awaitable<BodyOutcome> relay_body(Reader& from, Stream& to, BodySpec spec) {
  PartWriter writer(spec);
  ChunkedReader chunks;
  std::uint64_t left = spec.framing.kind == BodyFraming::Kind::length ? spec.framing.length : 0;
  bool over = spec.framing.kind == BodyFraming::Kind::none ||
              (spec.framing.kind == BodyFraming::Kind::length && left == 0);
  while (!over) {
    std::size_t before = from.bytes().size();
    bool more = before > 0;
    if (!more) more = co_await from.fill();
    if (!more) {
      if (spec.framing.kind == BodyFraming::Kind::until_close) break;
      co_return outcome(Kind::cut_short, "the body ended early");
    }
    std::string_view bytes = from.bytes();
    Taken taken;
    if (spec.framing.kind == BodyFraming::Kind::chunked) {
      auto decoded = take_chunks(chunks, bytes, writer);
      if (!decoded) co_return outcome(kind_of(decoded.error()), decoded.error().message);
      taken = *decoded;
    } else {
      taken.consumed = bytes.size();
      if (spec.framing.kind == BodyFraming::Kind::length) {
        taken.consumed = static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), left));
        left -= taken.consumed;
        taken.over = left == 0;
      }
      if (auto added = writer.add(bytes.substr(0, taken.consumed)); !added)
        co_return outcome(kind_of(added.error()), added.error().message);
    }
    bool nothing = taken.consumed == 0 && !taken.over;
    from.consume(taken.consumed);
    over = taken.over;
    if (!writer.out().empty()) {
      bool written = co_await write_all(to, writer.out());
      if (!written) co_return outcome(Kind::not_taken);
      writer.out().clear();
    }
    if (spec.moved) spec.moved();
    // A part of framing only: more must come before anything can be said.
    if (nothing) more = co_await from.fill();
    if (!more) co_return outcome(Kind::cut_short, "the body ended early");
  }
  if (auto finished = writer.finish(chunks.trailers()); !finished)
    co_return outcome(kind_of(finished.error()), finished.error().message);
  bool taken = co_await write_all(to, writer.out());
  co_return outcome(taken ? Kind::whole : Kind::not_taken);
}

}  // namespace anchorhold::egress
