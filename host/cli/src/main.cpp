#include "cli/program.h"

int main(int argc, char** argv) { return anchorhold::cli::run_program(std::vector<std::string>(argv + 1, argv + argc)); }
