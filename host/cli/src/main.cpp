#include "agent/keys.h"
#include "cli/program.h"

int main(int argc, char** argv) {
  // Before anything is started that would inherit them.
  anchorhold::agent::withdraw_keys_from_environment();
  return anchorhold::cli::run_program(std::vector<std::string>(argv + 1, argv + argc));
}
