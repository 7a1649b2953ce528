// anchorhold-fetch: reads one page of the web through a session's door, sealed before it reads a byte of it.
// Exit status: 0 there is an answer, also when it says why there is no page; 1 there is none.
#include <cstdio>
#include <string_view>

#include "src/fetch_program.h"

using namespace anchorhold;

#ifdef ANCHORHOLD_SANITIZED
// The leak checker stops the process from a tracer of its own, which a sealed process refuses: it would wait
// for ever.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() {
  return "detect_leaks=0";
}
#endif

int main(int argc, char** argv) {
  auto done = egress::run_fetch(argc > 1 && std::string_view(argv[1]) == "--allow-weak");
  if (done) return 0;
  std::fprintf(stderr, "anchorhold-fetch: %s\n", done.error().message.c_str());
  return 1;
}
