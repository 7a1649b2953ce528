// anchorhold-egressd: the way out of one guest, sealed before it reads a byte of it. Arguments, seal, serve.
// Exit status: 0 the host closed it; 1 it could not start; 2 the host said what is no message.
#include <cstdio>

#include "src/egressd_program.h"

using namespace anchorhold;

int main(int argc, char** argv) {
  auto arguments = egress::parse_egressd_arguments(argc, argv);
  Status ended;
  if (arguments)
    ended = egress::run_egressd(*arguments);
  else
    ended = fail(arguments.error());
  if (!ended) std::fprintf(stderr, "anchorhold-egressd: %s\n", ended.error().message.c_str());
  return 1;
}
