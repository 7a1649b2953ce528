// anchorhold-fsd: the reader of one grant, a virtio-fs device that can change nothing. Arguments, seal,
// serve.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>

#include "reader/reader_program.h"

using namespace anchorhold;
using namespace anchorhold::mounts;

namespace {

constexpr int could_not_begin = 1, ended_by_a_client = 2;

void report_end(Reporter& reports, const Error& error) {
  Report report;
  report.kind = ReportKind::fatal;
  report.operation = "vhost-user-fs";
  report.reason = error.message;
  reports.send(report);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("The file system device of one granted folder. Started by anchorhold, not by people.");
  ReaderArguments arguments;
  std::string mode;
  app.add_option("--name", arguments.name)->required();
  app.add_option("--mode", mode)->required()->check(CLI::IsMember({"ro", "rw", "rw-no-delete"}));
  app.add_option("--only-file", arguments.only_file);
  app.add_option("--hidden", arguments.hidden)->allow_extra_args(false);
  app.add_flag("--watch", arguments.watch);
  app.add_flag("--allow-weak", arguments.allow_weak);
  CLI11_PARSE(app, argc, argv);
  arguments.mode = *parse_mode(mode);

  auto program = ReaderProgram::seal(arguments);
  if (!program) {
    std::fprintf(stderr, "anchorhold-fsd: %s\n", program.error().message.c_str());
    return could_not_begin;
  }
  if (auto ended = program->run(); !ended) {
    report_end(program->reports(), ended.error());
    return ended_by_a_client;
  }
  return 0;
}
