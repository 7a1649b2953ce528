// anchorhold-fetch: reads one page of the web through a session's door, sealed before it reads a byte of it.
// Exit status: 0 there is an answer, also when it says why there is no page; 1 there is none.
#include <cstdio>
#include <string_view>

#include "src/fetch_program.h"

using namespace anchorhold;

int main(int argc, char** argv) {
  auto done = egress::run_fetch(argc > 1 && std::string_view(argv[1]) == "--allow-weak");
  if (done) return 0;
  std::fprintf(stderr, "anchorhold-fetch: %s\n", done.error().message.c_str());
  return 1;
}
