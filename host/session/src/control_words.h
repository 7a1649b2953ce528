// Questions and answers in the words of host.proto, and back.
#pragma once

#include <optional>

#include "proto/host.grpc.pb.h"
#include "session/questions.h"

namespace anchorhold::session {

::anchorhold::host::v1::AnswerWord to_wire(Approval answer);
std::optional<Approval> approval_from(::anchorhold::host::v1::AnswerWord word);
void to_wire(const Questions::Pending& pending, ::anchorhold::host::v1::Question& into);
// Nothing when its kind is not known here.
std::optional<Questions::Pending> from_wire(const ::anchorhold::host::v1::Question& question,
                                            const SessionId& session);

}  // namespace anchorhold::session
