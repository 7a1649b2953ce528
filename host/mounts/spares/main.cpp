// anchorhold-spares: keeps the places of a guest's devices that have no folder yet. Arguments, seal, serve.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "mounts/programs.h"
#include "spares/spares_program.h"

using namespace anchorhold;
using namespace anchorhold::mounts;

namespace {

constexpr int could_not_begin = 1, ended_by_a_client = 2;

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("The devices of a guest that wait for a folder. Started by anchorhold, not by people.");
  SparesArguments arguments;
  app.add_option("--count", arguments.count)->required()->check(CLI::Range(1u, spares_fd::most_spares));
  app.add_flag("--allow-weak", arguments.allow_weak);
  CLI11_PARSE(app, argc, argv);

  auto program = SparesProgram::seal(arguments);
  if (!program) {
    std::fprintf(stderr, "anchorhold-spares: %s\n", program.error().message.c_str());
    return could_not_begin;
  }
  if (auto ended = program->run(); !ended) {
    Report report;
    report.kind = ReportKind::fatal;
    report.operation = "vhost-user";
    report.reason = ended.error().message;
    program->reports().send(report);
    return ended_by_a_client;
  }
  return 0;
}
