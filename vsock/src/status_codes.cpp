#include "vsock/channel.h"

namespace anchorhold::vsock {

ErrorCode code_of(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::INVALID_ARGUMENT:
    case grpc::StatusCode::OUT_OF_RANGE:
      return ErrorCode::invalid_argument;
    case grpc::StatusCode::NOT_FOUND:
      return ErrorCode::not_found;
    case grpc::StatusCode::ALREADY_EXISTS:
      return ErrorCode::already_exists;
    case grpc::StatusCode::PERMISSION_DENIED:
    case grpc::StatusCode::UNAUTHENTICATED:
      return ErrorCode::permission_denied;
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return ErrorCode::resource_exhausted;
    case grpc::StatusCode::FAILED_PRECONDITION:
      return ErrorCode::failed_precondition;
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::ABORTED:
      return ErrorCode::unavailable;
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return ErrorCode::deadline_exceeded;
    case grpc::StatusCode::CANCELLED:
      return ErrorCode::cancelled;
    case grpc::StatusCode::DATA_LOSS:
      return ErrorCode::data_loss;
    case grpc::StatusCode::UNIMPLEMENTED:
      return ErrorCode::unsupported;
    default:
      return ErrorCode::internal;
  }
}

grpc::Status to_grpc(const Error& error) {
  constexpr auto code = [](ErrorCode ours) {
    switch (ours) {
      case ErrorCode::invalid_argument:
        return grpc::StatusCode::INVALID_ARGUMENT;
      case ErrorCode::not_found:
        return grpc::StatusCode::NOT_FOUND;
      case ErrorCode::already_exists:
        return grpc::StatusCode::ALREADY_EXISTS;
      case ErrorCode::permission_denied:
        return grpc::StatusCode::PERMISSION_DENIED;
      case ErrorCode::resource_exhausted:
        return grpc::StatusCode::RESOURCE_EXHAUSTED;
      case ErrorCode::failed_precondition:
        return grpc::StatusCode::FAILED_PRECONDITION;
      case ErrorCode::unavailable:
        return grpc::StatusCode::UNAVAILABLE;
      case ErrorCode::deadline_exceeded:
        return grpc::StatusCode::DEADLINE_EXCEEDED;
      case ErrorCode::cancelled:
        return grpc::StatusCode::CANCELLED;
      case ErrorCode::data_loss:
        return grpc::StatusCode::DATA_LOSS;
      case ErrorCode::unsupported:
        return grpc::StatusCode::UNIMPLEMENTED;
      case ErrorCode::internal:
        return grpc::StatusCode::INTERNAL;
    }
    return grpc::StatusCode::INTERNAL;
  };
  return {code(error.code), error.message, error.hint};
}

grpc::Status to_grpc(const Status& status) {
  return status ? grpc::Status::OK : to_grpc(status.error());
}

}  // namespace anchorhold::vsock
