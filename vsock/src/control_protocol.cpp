#include "control_protocol.h"

#include <algorithm>
#include <fmt/format.h>

namespace anchorhold::vsock {

void ControlMessage::set_text(std::string_view text) {
  text_bytes = {};
  std::copy_n(text.begin(), std::min(text.size(), text_bytes.size()), text_bytes.begin());
}

std::string ControlMessage::text() const {
  return std::string(text_bytes.begin(), std::find(text_bytes.begin(), text_bytes.end(), '\0'));
}

Status send_control(int socket, const ControlMessage& message, int descriptor) {
  return send_message_now(socket, std::as_bytes(std::span(&message, 1)),
                          std::span(&descriptor, descriptor >= 0 ? 1 : 0));
}

Result<std::optional<ReceivedControl>> receive_control(int socket) {
  ReceivedControl received;
  auto got =
      ANCHORHOLD_TRY(receive_message_now(socket, std::as_writable_bytes(std::span(&received.message, 1))));
  if (!got) return std::nullopt;
  if (got->lost_descriptors)
    return fail(ErrorCode::resource_exhausted, "a control message's descriptor could not be received");
  if (got->size != sizeof received.message || got->descriptors.size() > 1 ||
      received.message.magic != ControlMessage::expected_magic)
    return fail(ErrorCode::data_loss, fmt::format("a control message of {} bytes is not ours", got->size));
  if (!got->descriptors.empty()) received.descriptor = std::move(got->descriptors[0]);
  return received;
}

}  // namespace anchorhold::vsock
