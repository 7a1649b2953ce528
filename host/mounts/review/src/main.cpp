#include "program.h"

#ifdef ANCHORHOLD_SANITIZED
// The search for leaks stops all threads with ptrace, which a sealed process cannot do.
extern "C" const char* __asan_default_options() {
  return "detect_leaks=0";
}
#endif

int main(int argc, char** argv) {
  return anchorhold::mounts::run_ledger(argc, argv);
}
