#include "cli_fixture.h"

#include <fstream>
#include <poll.h>
#include <signal.h>
#include <sstream>
#include <thread>
#include <unistd.h>

#include "base/fd.h"
#include "base/paths.h"
#include "test_image.h"

namespace anchorhold::cli {
namespace {

int shell_status(ExitStatus status) {
  return status.signal != 0 ? 128 + status.signal : status.code;
}

}  // namespace

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

void write_text(const std::filesystem::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

// A program that has ended does not read; that shows in its outcome.
void Running::write_input(std::string_view bytes) {
  (void)write_all(input_.get(), std::as_bytes(std::span(bytes.data(), bytes.size())));
}

void Running::read_until(std::string_view text) {
  read_until(output_.get(), out_, text);
}
void Running::read_errors_until(std::string_view text) {
  read_until(errors_.get(), err_, text);
}

void Running::read_until(int fd, std::string& seen, std::string_view text) {
  while (seen.find(text) == std::string::npos) {
    pollfd waited{fd, POLLIN, 0};
    ASSERT_GT(poll(&waited, 1, static_cast<int>(patience.count())), 0)
        << "waiting for '" << text << "' after: " << seen;
    char buffer[4096];
    ssize_t got = read(fd, buffer, sizeof buffer);
    if (got <= 0) {
      auto outcome = finish();
      FAIL() << "the output ended before '" << text << "': " << outcome.out << "\nerrors: " << outcome.err;
    }
    seen.append(buffer, static_cast<std::size_t>(got));
  }
}

Outcome Running::finish() {
  Outcome outcome;
  outcome.out = std::move(out_);
  outcome.err = std::move(err_);
  pollfd waited[2] = {{output_.get(), POLLIN, 0}, {errors_.get(), POLLIN, 0}};
  while (waited[0].fd >= 0 || waited[1].fd >= 0) {
    if (poll(waited, 2, static_cast<int>(patience.count())) <= 0) {
      ADD_FAILURE() << "the program did not end; its errors so far: " << outcome.err;
      child_.kill(SIGKILL);
      break;
    }
    for (int i = 0; i < 2; ++i) {
      if (waited[i].fd < 0 || waited[i].revents == 0) continue;
      char buffer[65536];
      ssize_t got = read(waited[i].fd, buffer, sizeof buffer);
      if (got <= 0) {
        waited[i].fd = -1;
      } else {
        (i == 0 ? outcome.out : outcome.err).append(buffer, static_cast<std::size_t>(got));
      }
    }
  }
  outcome.status = shell_status(child_.wait());
  return outcome;
}

void CliTest::SetUp() {
  signal(SIGPIPE, SIG_IGN);
  for (const char* name : {"cache/anchorhold", "config/anchorhold", "state", "run", "data", "home"})
    std::filesystem::create_directories(home() / name);
  std::filesystem::permissions(home() / "run", std::filesystem::perms::owner_all);
  const auto& image = testing::test_image();
  if (!image) return;
  image_ = image->name;
  std::filesystem::create_directory_symlink(image->store, home() / "cache/anchorhold/images");
  std::filesystem::create_directory_symlink(image->keys, home() / "config/anchorhold/image-keys");
  // What libvirt found out about QEMU, which takes seconds, is the same for everybody.
  if (auto cache = cache_directory()) {
    std::filesystem::create_directories(*cache / "libvirt");
    std::filesystem::create_directory_symlink(*cache / "libvirt", home() / "cache/anchorhold/libvirt");
  }
}

bool CliTest::have_image() {
  return testing::test_image().has_value();
}

std::string CliTest::program() {
  return std::string(ANCHORHOLD_PROGRAM_DIR) + "/anchorhold";
}

std::vector<std::string> CliTest::environment(const std::map<std::string, std::string>& more) const {
  std::map<std::string, std::string> all{{"PATH", std::getenv("PATH")},
                                         {"HOME", (home() / "home").string()},
                                         {"TERM", "dumb"},
                                         {"LANG", "C.UTF-8"},
                                         {"XDG_CACHE_HOME", home() / "cache"},
                                         {"XDG_CONFIG_HOME", home() / "config"},
                                         {"XDG_STATE_HOME", home() / "state"},
                                         {"XDG_RUNTIME_DIR", home() / "run"}};
  for (const auto& [key, value] : more) all[key] = value;
  std::vector<std::string> list;
  for (const auto& [key, value] : all) list.push_back(key + "=" + value);
  return list;
}

Running CliTest::start(const std::vector<std::string>& argv, std::map<std::string, std::string> more) {
  std::vector<std::string> words{program()};
  words.insert(words.end(), argv.begin(), argv.end());
  return start_program(words, std::move(more));
}

Running CliTest::start_program(const std::vector<std::string>& argv,
                               std::map<std::string, std::string> more) {
  Pipe input = *make_pipe(), output = *make_pipe(), errors = *make_pipe();
  SpawnSpec spec;
  spec.argv = argv;
  spec.environment = environment(more);
  spec.descriptors = {{input.read_end.get(), 0}, {output.write_end.get(), 1}, {errors.write_end.get(), 2}};
  auto child = Child::spawn(spec);
  EXPECT_TRUE(child) << child.error().message;
  return Running(std::move(*child), std::move(input.write_end), std::move(output.read_end),
                 std::move(errors.read_end));
}

Running CliTest::start_in_private_network(const std::vector<std::string>& argv,
                                          std::map<std::string, std::string> more) {
  std::vector<std::string> words{"/usr/bin/env", "unshare", "--net",        "--mount",
                                 "--pid",        "--fork",  "--kill-child", "--mount-proc"};
  if (geteuid() != 0) words.insert(words.end(), {"--user", "--map-root-user"});
  words.insert(words.end(), argv.begin(), argv.end());
  return start_program(words, std::move(more));
}

Running CliTest::start_in_bed(const std::vector<std::string>& argv, std::map<std::string, std::string> more,
                              const std::string& bed) {
  std::vector<std::string> words{source(bed), folder("bed").string()};
  words.insert(words.end(), argv.begin(), argv.end());
  return start_in_private_network(words, std::move(more));
}

namespace {

Outcome without_input(Running running) {
  running.close_input();
  return running.finish();
}

}  // namespace

Outcome CliTest::run_program(const std::vector<std::string>& argv, std::map<std::string, std::string> more) {
  return without_input(start_program(argv, std::move(more)));
}

Outcome CliTest::run_in_bed(const std::vector<std::string>& argv) {
  return without_input(start_in_bed(argv));
}

std::optional<std::string> CliTest::why_no_network() {
  auto tried = without_input(
      start_in_private_network({"ip", "link", "add", "near", "type", "veth", "peer", "name", "far"}));
  return tried.status == 0 ? std::nullopt : std::optional(tried.err);
}

std::string CliTest::source(const std::string& path) {
  return ANCHORHOLD_SOURCE_DIR "/tests/integration/" + path;
}

Outcome CliTest::run(const std::vector<std::string>& argv, std::string_view input) {
  Running running = start(argv);
  // Beside the reading: a program that echoes more than a pipe holds waits for its reader.
  std::thread writer([&] {
    running.write_input(input);
    running.close_input();
  });
  Outcome outcome = running.finish();
  writer.join();
  return outcome;
}

std::vector<nlohmann::json> CliTest::objects(const std::string& out) {
  std::vector<nlohmann::json> found;
  std::size_t at = 0;
  while (at < out.size()) {
    std::size_t end = out.find('\n', at);
    if (end == std::string::npos) {
      ADD_FAILURE() << "the last line does not end: " << out.substr(at);
      break;
    }
    auto object = nlohmann::json::parse(out.substr(at, end - at), nullptr, false);
    if (!object.is_object()) {
      ADD_FAILURE() << "not a JSON object: " << out.substr(at, end - at);
    } else {
      found.push_back(std::move(object));
    }
    at = end + 1;
  }
  return found;
}

std::filesystem::path CliTest::folder(const std::string& name) {
  auto path = home() / "data" / name;
  std::filesystem::create_directories(path);
  return path;
}

namespace {

struct Stat {
  char state = '?';
  pid_t parent = 0;
  std::string start;
};

// /proc/<pid>/stat (proc(5)): fields 3, 4 and 22; nothing when the process is gone.
std::optional<Stat> read_stat(pid_t pid) {
  std::string text = read_text("/proc/" + std::to_string(pid) + "/stat");
  std::size_t bracket = text.rfind(')');
  if (bracket == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(bracket + 1));
  Stat stat;
  std::string skipped;
  fields >> stat.state >> stat.parent;
  for (int field = 5; field < 22; ++field) fields >> skipped;
  fields >> stat.start;
  if (stat.state == 'Z' || stat.state == 'X') return std::nullopt;
  return stat;
}

}  // namespace

std::vector<pid_t> CliTest::processes_of_this_test() {
  std::map<pid_t, Stat> all;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos || std::stoi(name) == getpid()) continue;
    if (auto stat = read_stat(std::stoi(name))) all.emplace(std::stoi(name), *stat);
  }
  std::set<pid_t> ours;
  for (const auto& [pid, stat] : all) {
    bool named = seen_.contains({pid, stat.start});
    for (const char* file : {"/cmdline", "/environ"})
      named = named ||
              read_text("/proc/" + std::to_string(pid) + file).find(home().string()) != std::string::npos;
    if (named) ours.insert(pid);
  }
  for (bool more = true; more;) {
    more = false;
    for (const auto& [pid, stat] : all)
      if (ours.contains(stat.parent)) more = ours.insert(pid).second || more;
  }
  for (pid_t pid : ours) seen_.insert({pid, all.at(pid).start});
  return {ours.begin(), ours.end()};
}

pid_t CliTest::process_named(const std::string& name) {
  for (pid_t pid : processes_of_this_test())
    if (read_text("/proc/" + std::to_string(pid) + "/comm") == name.substr(0, 15) + "\n") return pid;
  return 0;
}

bool CliTest::appears(const std::filesystem::path& path, std::string_view text, const Running& running) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (read_text(path) != text) {
    pollfd ended{running.pidfd(), POLLIN, 0};
    if (poll(&ended, 1, 20) > 0 || std::chrono::steady_clock::now() > deadline) return false;
  }
  return true;
}

bool CliTest::nothing_left() {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!processes_of_this_test().empty()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    usleep(5'000);
  }
  return true;
}

}  // namespace anchorhold::cli
