#include "program.h"

int main(int argc, char** argv) {
  return anchorhold::mounts::run_ledger(argc, argv);
}
