#include "base/error.h"

#include <cerrno>
#include <system_error>

namespace anchorhold {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "invalid_argument";
    case ErrorCode::not_found:
      return "not_found";
    case ErrorCode::already_exists:
      return "already_exists";
    case ErrorCode::permission_denied:
      return "permission_denied";
    case ErrorCode::resource_exhausted:
      return "resource_exhausted";
    case ErrorCode::failed_precondition:
      return "failed_precondition";
    case ErrorCode::unavailable:
      return "unavailable";
    case ErrorCode::deadline_exceeded:
      return "deadline_exceeded";
    case ErrorCode::cancelled:
      return "cancelled";
    case ErrorCode::data_loss:
      return "data_loss";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::internal:
      return "internal";
  }
  return "internal";
}

tl::unexpected<Error> fail(ErrorCode code, std::string message, std::string hint) {
  return tl::unexpected<Error>(Error{code, std::move(message), std::move(hint)});
}

tl::unexpected<Error> fail(Error error) {
  return tl::unexpected<Error>(std::move(error));
}

tl::unexpected<Error> fail_errno(int error_number, std::string_view what, std::string hint) {
  return fail(code_from_errno(error_number),
              std::string(what) + ": " + std::generic_category().message(error_number), std::move(hint));
}

ErrorCode code_from_errno(int error_number) {
  switch (error_number) {
    case EINVAL:
    case ENAMETOOLONG:
    case E2BIG:
    case ENOTDIR:
    case EISDIR:
    case ELOOP:
      return ErrorCode::invalid_argument;
    case ENOENT:
    case ESRCH:
      return ErrorCode::not_found;
    case EEXIST:
      return ErrorCode::already_exists;
    case EACCES:
    case EPERM:
    case EROFS:
      return ErrorCode::permission_denied;
    case ENOSPC:
    case EDQUOT:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      return ErrorCode::resource_exhausted;
    case EAGAIN:
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
    case ENOTCONN:
      return ErrorCode::unavailable;
    case ETIMEDOUT:
      return ErrorCode::deadline_exceeded;
    case ECANCELED:
    case EINTR:
      return ErrorCode::cancelled;
    case ENOSYS:
    case EOPNOTSUPP:
      return ErrorCode::unsupported;
    default:
      return ErrorCode::internal;
  }
}

Error with_context(Error error, std::string_view context) {
  error.message = std::string(context) + ": " + error.message;
  return error;
}

}  // namespace anchorhold
