// Starting a program: a child that shares our memory until it becomes the program (as vfork(2) does), born
// inside its control group, with nothing of ours but three descriptors. Cheap enough for a hundred at once,
// and a full or slow agent costs a command nothing.
#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

#include "base/error.h"

namespace anchorhold::guest {

struct ProgramSpec {
  std::vector<std::string> argv;
  std::vector<std::string> environment;  // "K=V"
  std::vector<std::string> candidates;   // paths tried in this order; see candidates_for()
  std::string working_directory;
  int standard[3] = {-1, -1, -1};     // each above 2; stay open here
  bool controlling_terminal = false;  // standard[0] becomes it
  int group_directory = -1;           // of an ExecGroup; -1: none
  bool change_user = false;
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;
};

// As execvp(3) does: names without a slash are looked up in `path`.
std::vector<std::string> candidates_for(const std::string& name, const std::string& path);

struct SpawnError {
  int error_number = 0;
  std::string message;
};

struct SpawnResult {
  pid_t pid = -1;  // also on an error after birth: somebody has to reap it
  SpawnError error;
};

// Blocks until the program runs or could not be run. The child leads a session and a process group of its
// own; signals are at their defaults. Never reaps.
SpawnResult spawn_program(const ProgramSpec& spec);

}  // namespace anchorhold::guest
