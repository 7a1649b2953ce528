// anchorhold-vsockd: the vsock device of one guest, sealed before it reads a byte of it.
// Exit status: 0 the front end closed the device; 1 it could not start; 2 front end or guest broke the
// protocol; 3 the host closed the device.
#include <cstdio>

#include "vsockd.h"

using namespace anchorhold;

namespace {

int failed(const Error& error, int status) {
  std::fprintf(stderr, "anchorhold-vsockd: %s\n", error.message.c_str());
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  auto arguments = vsock::parse_vsockd_arguments(argc, argv);
  if (!arguments) return failed(arguments.error(), 1);
  auto landlock_version = vsock::seal_vsockd(*arguments);
  if (!landlock_version) return failed(landlock_version.error(), 1);
  auto cause = vsock::serve_vsock(*arguments, *landlock_version);
  if (cause) return 0;
  return failed(cause.error(), cause.error().code == ErrorCode::cancelled ? 3 : 2);
}
