// Requests that a guest signed with its session's token (AWS Signature Version 4), signed again for the
// server.
#include <fmt/format.h>
#include <sodium.h>

#include "base/secret.h"
#include "egress/sigv4.h"
#include "git_judge.h"
#include "http_exchange.h"

namespace anchorhold::egress {
namespace {

// The SHA-256 of a body that is still to be sent, as it is read and kept.
class BodyHash {
 public:
  explicit BodyHash(const BodyFraming& framing) : framing_(framing) { crypto_hash_sha256_init(&state_); }

  // `body` is everything there is of it, more each time. True when it is whole.
  Result<bool> look(std::string_view body) {
    if (framing_.kind == BodyFraming::Kind::length) {
      if (framing_.length > max_hashed_body) return too_large();
      auto size = static_cast<std::size_t>(framing_.length);
      std::string_view part = body.substr(0, size).substr(seen_);
      add(part);
      seen_ += part.size();
      return seen_ == size;
    }
    for (;;) {
      auto step = ANCHORHOLD_TRY(chunks_.next(body.substr(seen_)));
      seen_ += step.consumed;
      add(step.data);
      if (seen_ > 2 * max_hashed_body) return too_large();
      if (step.kind == ChunkedReader::Step::Kind::more) return false;
      if (step.kind == ChunkedReader::Step::Kind::done) return true;
    }
  }

  std::string hex() {
    unsigned char hash[crypto_hash_sha256_BYTES];
    crypto_hash_sha256_final(&state_, hash);
    char text[sizeof hash * 2 + 1];
    sodium_bin2hex(text, sizeof text, hash, sizeof hash);
    return text;
  }

 private:
  void add(std::string_view bytes) {
    crypto_hash_sha256_update(&state_, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  }
  static tl::unexpected<Error> too_large() {
    return fail(ErrorCode::permission_denied,
                "a body of more than 8 MiB is signed again only when the request says its hash or "
                "UNSIGNED-PAYLOAD in x-amz-content-sha256");
  }

  BodyFraming framing_;
  ChunkedReader chunks_;
  crypto_hash_sha256_state state_;
  std::size_t seen_ = 0;
};

}  // namespace

// The body stays in the reader, from where it is sent.
Awaitable<std::optional<std::string>> HttpExchange::hash_of_body(RequestHead& head) {
  connection_.deadline_.in(connection_.decided_.configuration->limits.head);
  if (head.expects_continue) {
    std::string go_on = "HTTP/1.1 100 Continue\r\n\r\n";
    if (!co_await write_all(guest_, go_on)) co_return std::nullopt;
    std::erase_if(head.fields, [](const Field& field) { return is_named(field, "expect"); });
    head.expects_continue = false;
  }
  BodyHash hash(head.body);
  for (;;) {
    auto whole = hash.look(reader_.bytes());
    if (!whole) {
      EventReport report = connection_.report_of(EventKind::deny, whole.error().message);
      report.violation = whole.error().code == ErrorCode::invalid_argument;
      co_await refuse_request(head, 403, std::move(report));
      co_return std::nullopt;
    }
    if (*whole) break;
    if (!co_await reader_.fill()) co_return std::nullopt;
  }
  co_return hash.hex();
}

Awaitable<bool> HttpExchange::sign(RequestHead& head, Outgoing& outgoing) {
  auto payload = sigv4_payload(head);
  if (!payload) {
    EventReport report = connection_.report_of(EventKind::deny, payload.error().message);
    co_await refuse_request(head, 403, std::move(report));
    co_return false;
  }
  if (payload->kind == SigV4Payload::Kind::hashed) {
    std::optional<std::string> hash = co_await hash_of_body(head);
    if (!hash) co_return false;
    payload->text = std::move(*hash);
  }
  std::size_t field = 0;
  while (field < head.fields.size() && !is_named(head.fields[field], "authorization")) ++field;
  auto guest = parse_sigv4(head.fields.at(field).value);
  // The time is the host's: that of a guest may be hours off.
  std::string time = sigv4_time(std::chrono::system_clock::now());
  SigV4Scope scope = (*guest)->scope;
  scope.date = time.substr(0, 8);
  std::optional<std::string> given = co_await secret_for(head, scope.text());
  if (!given) co_return false;
  auto key = parse_sigv4_key(*given);
  wipe(*given);
  if (!key) {
    EventReport report = connection_.report_of(EventKind::deny, key.error().message);
    co_await refuse_request(head, 403, std::move(report));
    co_return false;
  }
  sign_sigv4(head, field, *key, scope, time, payload->text, (*guest)->signed_headers, scheme_port());
  outgoing.secret_patterns = secret_patterns(key->session_token, {});
  outgoing.credential = true;
  co_return true;
}

}  // namespace anchorhold::egress
