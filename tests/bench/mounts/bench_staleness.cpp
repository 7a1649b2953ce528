// How long a guest goes on seeing what was there before a program of the host changed it: from the return of
// the host's edit until the guest's stat, open, read of a file it holds open, or inotify shows it. The way
// back of that news to the host is part of each figure; the first line says how long an empty question takes,
// there and back. Needs a built image:
//   ANCHORHOLD_TEST_IMAGE=base bench_staleness [EDITS]      (250 of each kind)
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <random>
#include <thread>
#include <unistd.h>
#include <vector>

#include "base/fd.h"
#include "base/files.h"
#include "guest_harness.h"
#include "mounts/grant.h"

namespace anchorhold::mounts {
namespace {

namespace fs = std::filesystem;
using std::chrono::steady_clock;

constexpr const char* looking = R"py(
import ctypes, os, select, sys
folder = '/mnt/watched/'
libc = ctypes.CDLL(None)
events = libc.inotify_init1(os.O_NONBLOCK)
assert libc.inotify_add_watch(events, folder.encode(), 2) >= 0
held = os.open(folder + 'read', os.O_RDONLY)
def news():
    try: return os.read(events, 65536)
    except BlockingIOError: return b''
def number_by(how):
    if how == 'stat': return os.stat(folder + how).st_size
    if how == 'open':
        file = os.open(folder + how, os.O_RDONLY)
        try: return int(os.read(file, 100))
        finally: os.close(file)
    return int(os.pread(held, 100, 0))
for line in sys.stdin:
    how, wanted = line.split()
    while news(): pass
    print('ready', flush=True)
    if how == 'inotify':
        while b'inotify' not in news(): select.select([events], [], [])
    elif how != 'echo':
        while number_by(how) != int(wanted): pass
    if how != 'echo': print('seen', flush=True)
)py";

class Looker {
 public:
  static Result<Looker> start(session::GuestClient& client) {
    session::ExecSpec spec;
    spec.argv = {"python3", "-c", looking};
    spec.errors = session::ExecSpec::Errors::merged;
    spec.input = session::ExecSpec::Input::pipe;
    spec.time_limit = std::chrono::minutes(20);
    Looker made;
    made.exec_ = ANCHORHOLD_TRY(client.start(spec));
    return made;
  }
  Status say(const std::string& line) { return exec_->write_input(line + "\n"); }
  Status hear(const std::string& wanted) {
    std::size_t end;
    while ((end = heard_.find('\n')) == std::string::npos) {
      auto more = ANCHORHOLD_TRY(exec_->read(session::OutputStream::standard_output));
      if (!more) return fail(ErrorCode::internal, "the guest's program ended: " + heard_);
      heard_ += *more;
    }
    auto line = heard_.substr(0, end);
    heard_.erase(0, end + 1);
    if (line != wanted) return fail(ErrorCode::internal, "the guest's program says " + line + heard_);
    return {};
  }
  Status end() {
    ANCHORHOLD_CHECK(exec_->close_input());
    (void)ANCHORHOLD_TRY(exec_->wait());
    return {};
  }

 private:
  std::unique_ptr<session::GuestExec> exec_;
  std::string heard_;
};

void print(const char* what, std::vector<double> milliseconds) {
  std::sort(milliseconds.begin(), milliseconds.end());
  auto at = [&](std::size_t percent) { return milliseconds[(milliseconds.size() - 1) * percent / 100]; };
  fmt::print("{:34} {:5} {:8.2f} {:8.2f} {:8.2f} {:8.2f}\n", what, milliseconds.size(), at(0), at(50), at(95),
             at(100));
  std::fflush(stdout);
}

double since(steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(steady_clock::now() - begin).count();
}

void write_in_place(const fs::path& path, const std::string& text) {
  UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  if (pwrite(fd.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) std::abort();
}

void replace(const fs::path& path, const std::string& text) {
  auto temporary = path.string() + ".tmp";
  write_in_place(temporary, text);
  fs::rename(temporary, path);
}

Status run(int edits) {
  if (auto why = testing::RealGuest::why_not(); !why.empty())
    return fail(ErrorCode::failed_precondition, why);
  auto directory = ANCHORHOLD_TRY(TemporaryDirectory::create("anchorhold-staleness"));
  const auto folder = directory.path() / "watched";
  fs::create_directory(folder);
  auto number = [](int i) { return fmt::format("{:010}", i); };
  for (const char* how : {"open", "read", "inotify"}) write_in_place(folder / how, number(0));
  write_in_place(folder / "stat", "");
  testing::RealGuestOptions options;
  auto rules = ANCHORHOLD_TRY(GrantRules::current());
  options.grants.push_back(ANCHORHOLD_TRY(resolve_grant(folder, Mode::rw, options.grants, rules)));
  auto guest = ANCHORHOLD_TRY(testing::RealGuest::boot(std::move(options)));
  auto looker = ANCHORHOLD_TRY(Looker::start(guest->client()));
  fmt::print("{:34} {:>5} {:>8} {:>8} {:>8} {:>8}\n", "milliseconds", "edits", "min", "median", "95 %",
             "max");

  std::vector<double> echoes;
  for (int i = 0; i < edits; ++i) {
    auto begin = steady_clock::now();
    ANCHORHOLD_CHECK(looker.say("echo 0"));
    ANCHORHOLD_CHECK(looker.hear("ready"));
    echoes.push_back(since(begin));
  }
  print("a question and its answer", echoes);

  std::minstd_rand random(1);
  auto measure = [&](const std::string& how, const char* what, auto edit) -> Status {
    std::vector<double> all;
    for (int i = 1; i <= edits; ++i) {
      ANCHORHOLD_CHECK(looker.say(fmt::format("{} {}", how, i)));
      ANCHORHOLD_CHECK(looker.hear("ready"));
      // The guest looks all the time by then; the edit comes at any moment of it.
      std::this_thread::sleep_for(std::chrono::microseconds(5'000 + random() % 20'000));
      edit(i);
      auto begin = steady_clock::now();
      ANCHORHOLD_CHECK(looker.hear("seen"));
      all.push_back(since(begin));
    }
    print(what, all);
    return {};
  };
  ANCHORHOLD_CHECK(measure("stat", "stat, of a replaced file", [&](int i) {
    replace(folder / "stat", std::string(static_cast<std::size_t>(i), 'x'));
  }));
  ANCHORHOLD_CHECK(
      measure("open", "open, of a replaced file", [&](int i) { replace(folder / "open", number(i)); }));
  ANCHORHOLD_CHECK(measure("read", "read, of a file held open",
                           [&](int i) { write_in_place(folder / "read", number(i)); }));
  ANCHORHOLD_CHECK(
      measure("inotify", "inotify", [&](int i) { write_in_place(folder / "inotify", number(i)); }));
  return looker.end();
}

}  // namespace
}  // namespace anchorhold::mounts

int main(int argc, char** argv) try {
  auto done = anchorhold::mounts::run(argc > 1 ? std::atoi(argv[1]) : 250);
  if (done) return 0;
  fmt::print(stderr, "bench_staleness: {}\n", done.error().message);
  return 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "bench_staleness: {}\n", error.what());
  return 1;
}
