/* PID 1 of the tests' guests: does what the kernel word tiny=… says. Static, without anything else in the guest. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static void say(const char* text) { (void)!write(1, text, strlen(text)); }

static void word(char* value, size_t size) {
  static char line[4096];
  FILE* file = fopen("/proc/cmdline", "r");
  value[0] = 0;
  if (file && fgets(line, sizeof line, file)) {
    char* found = strstr(line, "tiny=");
    if (found) snprintf(value, size, "%.*s", (int)strcspn(found + 5, " \n"), found + 5);
  }
  if (file) fclose(file);
}

static void use_and_free(size_t mib) {
  char* memory = malloc(mib << 20);
  if (!memory) return say("tiny: no memory\n");
  for (size_t i = 0; i < mib << 20; i += 4096) memory[i] = (char)(i >> 12) | 1;
  say("tiny: memory used\n");
  sleep(4);
  free(memory);
  say("tiny: memory freed\n");
}

int main(void) {
  char what[64], up[64];
  struct timespec since_kernel;
  clock_gettime(CLOCK_MONOTONIC, &since_kernel);
  mkdir("/proc", 0755);
  mount("proc", "/proc", "proc", 0, NULL);
  word(what, sizeof what);
  snprintf(up, sizeof up, "tiny: up %lld us after its kernel\n",
           (long long)since_kernel.tv_sec * 1000000 + since_kernel.tv_nsec / 1000);
  say(up);
  if (strcmp(what, "poweroff") == 0) reboot(RB_POWER_OFF);
  if (strcmp(what, "reboot") == 0) reboot(RB_AUTOBOOT);
  if (strcmp(what, "exit") == 0) return 0; /* the kernel panics when PID 1 ends */
  if (strcmp(what, "flood") == 0)
    for (unsigned i = 0;; ++i) {
      char line[96];
      snprintf(line, sizeof line, "flood %010u ..................................................................\n", i);
      say(line);
    }
  if (strncmp(what, "memory:", 7) == 0) use_and_free((size_t)atoi(what + 7));
  for (;;) pause();
}
