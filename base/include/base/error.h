// Errors as values. Every function that can fail returns Result<T>; nothing in the project throws across its
// own interfaces. A message says what failed and on what; the hint says what the person can do about it.
#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace anchorhold {

// Closed on purpose: callers switch over it. The names are those of gRPC's status codes where one fits.
enum class ErrorCode {
  invalid_argument,     // the caller's input is wrong
  not_found,            // the named thing does not exist
  already_exists,       // the named thing exists and must not
  permission_denied,    // policy or the kernel refused
  resource_exhausted,   // a limit or a quota was reached, or the disk is full
  failed_precondition,  // the system is not in the state this needs (missing program, corrupt image)
  unavailable,          // the other side is gone or not there yet; trying again may help
  deadline_exceeded,    // it took longer than allowed
  cancelled,            // the person or the program asked to stop
  data_loss,            // stored bytes are not what was written
  unsupported,          // not on this platform or kernel
  internal,             // a bug, or a library failed in a way nobody expected
};

std::string_view to_string(ErrorCode code);

struct [[nodiscard]] Error {
  ErrorCode code = ErrorCode::internal;
  std::string message;
  std::string hint;  // empty when there is nothing useful to do
};

template <typename T>
class [[nodiscard]] Result : public tl::expected<T, Error> {
 public:
  using tl::expected<T, Error>::expected;
};

using Status = Result<void>;

// An error for returning from any function whose result is a Result<T>.
tl::unexpected<Error> fail(ErrorCode code, std::string message, std::string hint = {});
tl::unexpected<Error> fail(Error error);
// The same from an errno value: "<what>: <strerror>".
tl::unexpected<Error> fail_errno(int error_number, std::string_view what, std::string hint = {});
ErrorCode code_from_errno(int error_number);
// Prefixes the message ("starting the guest: …"); used when an error crosses from one room into another.
Error with_context(Error error, std::string_view context);

}  // namespace anchorhold

// Evaluates to the value of a Result, or returns its error from the enclosing function.
#define ANCHORHOLD_TRY(...)                                                                    \
  (__extension__({                                                                             \
    auto anchorhold_result_ = (__VA_ARGS__);                                                   \
    if (!anchorhold_result_) return ::anchorhold::fail(std::move(anchorhold_result_).error()); \
    std::move(anchorhold_result_).value();                                                     \
  }))
// The same for a Status.
#define ANCHORHOLD_CHECK(...)                                           \
  do {                                                                  \
    if (auto anchorhold_status_ = (__VA_ARGS__); !anchorhold_status_)   \
      return ::anchorhold::fail(std::move(anchorhold_status_).error()); \
  } while (false)
