// The program `anchorhold`.
#pragma once

#include <string>
#include <vector>

namespace anchorhold::cli {

// argv without the program's name; gives back the exit status. To be called once, before any thread is
// started.
int run_program(const std::vector<std::string>& argv);

}  // namespace anchorhold::cli
