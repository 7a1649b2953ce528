// Linked into each program that seals itself.

#ifdef ANCHORHOLD_SANITIZED
// The search for leaks at the end of a process stops it and looks into it from another one, which a seal does
// not allow: it would wait for ever.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() {
  return "detect_leaks=0";
}
#endif
