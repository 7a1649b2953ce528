// Our errors in gRPC's words, and back. The hint travels as the status' details.
#pragma once

#include <grpcpp/support/status.h>

#include "base/error.h"

namespace anchorhold::session {

ErrorCode code_of(grpc::StatusCode code);
grpc::Status to_status(const Error& error);

}  // namespace anchorhold::session
