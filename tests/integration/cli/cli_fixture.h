// The built program from the outside: its own XDG folders, so that tests neither see nor disturb each other,
// with the person's guest image in them.
#pragma once

#include <chrono>
#include <filesystem>
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/process.h"

namespace anchorhold::cli {

// Generous: an emulated guest on a busy computer.
inline constexpr std::chrono::milliseconds patience = std::chrono::minutes(5);

struct Outcome {
  int status = -1;  // as a shell gives it
  std::string out;
  std::string err;
};

// A running `anchorhold` with pipes at its standard streams.
class Running {
 public:
  Running(Child child, UniqueFd input, UniqueFd output, UniqueFd errors)
      : child_(std::move(child)),
        input_(std::move(input)),
        output_(std::move(output)),
        errors_(std::move(errors)) {}

  pid_t pid() const { return child_.pid(); }
  int pidfd() const { return child_.pidfd(); }
  void write_input(std::string_view bytes);
  void close_input() { input_.reset(); }
  void close_output() { output_.reset(); }
  void signal(int number) { ::kill(child_.pid(), number); }
  // Reads standard output until it holds the text; what came before it and it. Fails the test when the output
  // ends first.
  void read_until(std::string_view text);
  void read_errors_until(std::string_view text);
  // Everything else of both outputs, and the end.
  Outcome finish();

 private:
  Child child_;
  void read_until(int fd, std::string& seen, std::string_view text);

  UniqueFd input_, output_, errors_;
  std::string out_, err_;
};

class CliTest : public testing::Test {
 protected:
  void SetUp() override;
  // The reaper of a host that has just ended still clears its folder away; only then is there nothing to
  // remove under it.
  void TearDown() override { EXPECT_TRUE(nothing_left()); }

  // Skips the test, saying so, when this computer has no image to start guests from.
  static bool have_image();
  // All words but the program's name.
  Running start(const std::vector<std::string>& argv, std::map<std::string, std::string> environment = {});
  // The same for another program; argv[0] is its path.
  Running start_program(const std::vector<std::string>& argv,
                        std::map<std::string, std::string> environment = {});
  // The same in new namespaces of processes, mounts and networks, as root there.
  Running start_in_private_network(const std::vector<std::string>& argv,
                                   std::map<std::string, std::string> environment = {});
  // The same with the servers of a bed, which work in folder("bed").
  Running start_in_bed(const std::vector<std::string>& argv,
                       std::map<std::string, std::string> environment = {},
                       const std::string& bed = "cli/network/bed");
  // To the end.
  Outcome run(const std::vector<std::string>& argv, std::string_view input = {});
  Outcome run_program(const std::vector<std::string>& argv,
                      std::map<std::string, std::string> environment = {});
  Outcome run_in_bed(const std::vector<std::string>& argv);
  // Why this computer lets nobody have a network of their own; nothing: it does.
  std::optional<std::string> why_no_network();
  // A file of tests/integration.
  static std::string source(const std::string& path);
  // Objects of --json output; fails the test when a line is none.
  static std::vector<nlohmann::json> objects(const std::string& out);
  std::vector<std::string> environment(const std::map<std::string, std::string>& more) const;
  static std::string program();

  std::filesystem::path folder(const std::string& name);
  const std::filesystem::path& home() const { return home_.path(); }
  std::string image_ = "none";

  // The processes of this test's programs: those whose command line or environment names its folders, and
  // everything that was seen to descend from one of them. Sealed processes can be found only by their
  // descent, so look once while their host lives.
  std::vector<pid_t> processes_of_this_test();
  // The one with this name, in the 15 bytes that the kernel keeps; 0: there is none.
  pid_t process_named(const std::string& name);
  // Waits until the file holds exactly this; false when the program ends before, or after a time no computer
  // needs.
  static bool appears(const std::filesystem::path& path, std::string_view text, const Running& running);
  // Waits until nothing is left; the deadline only ends a test that fails.
  bool nothing_left();

 private:
  // Short: the paths of unix sockets are limited.
  struct Process {
    pid_t pid;
    std::string start;  // tells it from a later one with the same number
    auto operator<=>(const Process&) const = default;
  };
  std::set<Process> seen_;
  TemporaryDirectory home_ = *TemporaryDirectory::create("ahc");
};

#define ANCHORHOLD_NEEDS_IMAGE() \
  if (!have_image()) GTEST_SKIP() << "ANCHORHOLD_TEST_IMAGE names no guest image: no guest is started"

#define ANCHORHOLD_NEEDS_NETWORK() \
  if (auto why = why_no_network()) GTEST_SKIP() << "no network of one's own here: " << *why

std::string read_text(const std::filesystem::path& path);
void write_text(const std::filesystem::path& path, std::string_view text);

}  // namespace anchorhold::cli
