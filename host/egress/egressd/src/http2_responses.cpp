// What the server answers in HTTP/2, on its way to the guest.
#include <fmt/format.h>

#include "http2_bridge.h"

namespace anchorhold::egress {

void Http2Bridge::take_response(const Shared& exchange, std::vector<Field> fields, bool ends) {
  auto response = response_of_http2(std::move(fields));
  std::string fault;
  if (!response) {
    fault = response.error().message;
  } else if (exchange->credential && response->status >= 200) {
    for (std::string_view coding : values_of(response->fields, "content-encoding"))
      if (coding != "identity")
        fault = "its response is compressed, and cannot be searched for the credential";
  }
  if (!fault.empty()) {
    auto cause =
        fmt::format("{} did not answer as a server does: {}", connection_.destination().text(), fault);
    refuse(exchange, 502, connection_.report_of(EventKind::deny, std::move(cause)));
    return;
  }
  std::vector<Field> forwarded{{":status", std::to_string(response->status)}};
  for (Field& field : response->fields) {
    field.value = scrubbed(field.value, exchange->secret_patterns);
    forwarded.push_back(std::move(field));
  }
  if (response->status < 200) {
    guest_->interim(exchange->guest_id, forwarded);
    return;
  }
  exchange->responded = true;
  exchange->down.ends = ends;
  if (!exchange->secret_patterns.empty()) exchange->down.filter = scrub_secrets(exchange->secret_patterns);
  guest_->respond(exchange->guest_id, forwarded, !ends);
}

void Http2Bridge::take_response_body(const Shared& exchange, std::string_view bytes) {
  connection_.moves();
  Flow& down = exchange->down;
  if (down.filter)
    (void)down.filter->pass(bytes, down.waiting);
  else
    down.waiting += bytes;
  guest_->resume(exchange->guest_id);
}

void Http2Bridge::end_response(const Shared& exchange, std::vector<Field> trailers) {
  Flow& down = exchange->down;
  if (down.filter) (void)down.filter->finish(down.waiting);
  for (Field& field : trailers) field.value = scrubbed(field.value, exchange->secret_patterns);
  down.trailers = std::move(trailers);
  down.ends = true;
  guest_->resume(exchange->guest_id);
}

}  // namespace anchorhold::egress
