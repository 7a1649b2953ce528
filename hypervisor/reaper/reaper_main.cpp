// anchorhold-reaper FOLDER: descriptor 3 is a socket to the host; see hypervisor/reaper.h.
#include <cstdio>
#include <signal.h>
#include <unistd.h>

#include "reaper/reaping.h"

int main(int argc, char** argv) {
  if (argc != 2 || argv[1][0] != '/') {
    std::fputs("usage: anchorhold-reaper FOLDER (started by anchorhold, with a socket as descriptor 3)\n",
               stderr);
    return 2;
  }
  // What ends the host, its terminal or its login must not end this first.
  setsid();
  for (int number : {SIGINT, SIGHUP, SIGTERM, SIGPIPE, SIGQUIT}) signal(number, SIG_IGN);
  return anchorhold::hypervisor::run_reaper(anchorhold::UniqueFd(3), argv[1]);
}
