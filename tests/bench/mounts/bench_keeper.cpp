// What each question to the keeper costs, without a guest, in microseconds for one of many: until the answer
// is there, and of the keeper's processor time; the latter also of a keeper that keeps nothing, so the
// difference is what undo costs; and until the same calls are done when they are made directly. Needs nothing
// but a folder to work in:
//   bench_keeper [FOLDER]
// BENCH_PROGRAMS names a folder with the keeper of another build, which is measured in the place of the one
// that keeps nothing; BENCH_ROUNDS says how often each is measured in turn (1): the least of each counts.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <functional>
#include <sstream>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"
#include "base/process.h"
#include "mounts/keeper_client.h"
#include "mounts/programs.h"
#include "mounts/report.h"

namespace anchorhold::mounts {
namespace {

constexpr int files = 4000;

struct Keeper {
  UniqueFd reports;
  std::unique_ptr<Child> child;
  std::unique_ptr<KeeperClient> client;
};

Result<Keeper> start_keeper(const std::string& program, const std::filesystem::path& grant,
                            const std::filesystem::path& ledger) {
  Keeper keeper;
  UniqueFd root(open(grant.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  auto reports = ANCHORHOLD_TRY(socket_pair(SOCK_SEQPACKET));
  auto client = ANCHORHOLD_TRY(socket_pair(SOCK_SEQPACKET));
  SpawnSpec spec;
  spec.argv = {program,         "--name",    "bench", "--mode",         "rw", "--ledger",
               ledger.string(), "--clients", "1",     "--bulk-changes", "0"};
  spec.descriptors = {{2, 2},
                      {root.get(), keeper_fd::root},
                      {reports.second.get(), keeper_fd::reports},
                      {client.second.get(), keeper_fd::first_client}};
  keeper.child = std::make_unique<Child>(ANCHORHOLD_TRY(Child::spawn(spec)));
  keeper.reports = std::move(reports.first);
  (void)receive_report(keeper.reports.get());
  keeper.client = std::make_unique<KeeperClient>(std::move(client.first));
  return keeper;
}

std::string name_of(int i) {
  return "f" + std::to_string(i);
}

struct Work {
  std::string name;
  std::function<int(const Keeper&, int root, int)> asked;
  std::function<int(int)> direct;
};

struct Cost {
  double wall = 0, processor = 0;
};

// In the kernel's ticks, which are a hundredth of a second.
double processor_microseconds(pid_t pid) {
  auto text = read_file(fmt::format("/proc/{}/stat", pid), 4096).value_or("");
  std::istringstream words(text.substr(std::min(text.size(), text.rfind(')') + 2)));
  std::string word;
  double user = 0, system = 0;
  for (int i = 0; i < 11; ++i) words >> word;
  words >> user >> system;
  return (user + system) * 10'000;
}

Cost cost_of_each(const std::function<int(int)>& work, const std::string& name, pid_t pid) {
  double before = pid > 0 ? processor_microseconds(pid) : 0;
  auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < files; ++i)
    if (int error = work(i); error != 0) {
      fmt::print(stderr, "bench_keeper: {}: error {}\n", name, error);
      std::exit(1);
    }
  std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
  return {took.count() / files, pid > 0 ? (processor_microseconds(pid) - before) / files : 0};
}

// As the reader does for a guest that asks for one thing after the other.
int ask(const Keeper& keeper, const RequestHeader& header, int fd) {
  KeeperClient::Hurry hurry;
  return keeper.client->ask(header, std::array{fd}).error;
}

UniqueFd open_path(int folder, const std::string& name) {
  return UniqueFd(openat(folder, name.c_str(), O_PATH | O_CLOEXEC));
}

std::vector<Work> all_work(int direct) {
  return {
      {"create",
       [](const Keeper& keeper, int root, int i) {
         auto request = make_request(Verb::create, name_of(i));
         request.mode = 0644;
         request.flags = open_flag::exclusive;
         return ask(keeper, request, root);
       },
       [=](int i) { return close(openat(direct, name_of(i).c_str(), O_CREAT | O_EXCL | O_WRONLY, 0644)); }},
      {"set times",
       [](const Keeper& keeper, int root, int i) {
         auto request = make_request(Verb::set_attributes);
         request.valid = valid_flag::access_time | valid_flag::modify_time;
         request.access_time = request.modify_time = {1600000000, 0, 0};
         return ask(keeper, request, open_path(root, name_of(i)).get());
       },
       [=](int i) {
         const timespec times[2] = {{1600000000, 0}, {1600000000, 0}};
         return utimensat(direct, name_of(i).c_str(), times, 0);
       }},
      {"open to write",
       [](const Keeper& keeper, int root, int i) {
         return ask(keeper, make_request(Verb::open_for_write), open_path(root, name_of(i)).get());
       },
       [=](int i) { return UniqueFd(openat(direct, name_of(i).c_str(), O_WRONLY | O_CLOEXEC)) ? 0 : errno; }},
      {"rename",
       [](const Keeper& keeper, int root, int i) {
         KeeperClient::Hurry hurry;
         return keeper.client
             ->ask(make_request(Verb::rename, name_of(i), "r" + name_of(i)), std::array{root, root})
             .error;
       },
       [=](int i) { return renameat(direct, name_of(i).c_str(), direct, ("r" + name_of(i)).c_str()); }},
      {"unlink",
       [](const Keeper& keeper, int root, int i) {
         return ask(keeper, make_request(Verb::unlink, "r" + name_of(i)), root);
       },
       [=](int i) { return unlinkat(direct, ("r" + name_of(i)).c_str(), 0); }},
      {"unlink old",
       [](const Keeper& keeper, int root, int i) {
         return ask(keeper, make_request(Verb::unlink, "old" + name_of(i)), root);
       },
       [=](int i) { return unlinkat(direct, ("old" + name_of(i)).c_str(), 0); }},
  };
}

Result<UniqueFd> make_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return fail_errno(error.value(), folder.string());
  for (int i = 0; i < files; ++i) std::ofstream(folder / ("old" + name_of(i))) << std::string(2000, 'x');
  return UniqueFd(open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
}

Result<std::vector<Cost>> costs(const std::filesystem::path& where, const std::string& program,
                                const std::string& name) {
  auto root = ANCHORHOLD_TRY(make_folder(where / name / "folder"));
  if (mkdir((where / (name + "-ledger")).c_str(), 0700) != 0) return fail_errno(errno, "the ledger");
  auto keeper = ANCHORHOLD_TRY(start_keeper(program, where / name, where / (name + "-ledger")));
  std::vector<Cost> all;
  for (const auto& work : all_work(-1))
    all.push_back(cost_of_each([&](int i) { return work.asked(keeper, root.get(), i); }, work.name,
                               keeper.child->pid()));
  return all;
}

void take_least(std::vector<Cost>& least, const std::vector<Cost>& costs) {
  if (least.empty()) least = costs;
  for (std::size_t i = 0; i < least.size(); ++i) {
    least[i].wall = std::min(least[i].wall, costs[i].wall);
    least[i].processor = std::min(least[i].processor, costs[i].processor);
  }
}

Status run(const std::filesystem::path& where) {
  const char* others = std::getenv("BENCH_PROGRAMS");
  const char* rounds = std::getenv("BENCH_ROUNDS");
  const std::string other =
      others ? std::string(others) + "/anchorhold-keeper" : std::string(ANCHORHOLD_KEEPER_WITHOUT_UNDO);
  const std::string own = std::string(ANCHORHOLD_PROGRAM_DIR) + "/anchorhold-keeper";
  std::vector<Cost> ours, without;
  for (int round = 0; round < (rounds ? std::atoi(rounds) : 1); ++round) {
    take_least(ours, ANCHORHOLD_TRY(costs(where, own, fmt::format("kept{}", round))));
    take_least(without, ANCHORHOLD_TRY(costs(where, other, fmt::format("other{}", round))));
  }
  if (ours.empty()) return fail(ErrorCode::invalid_argument, "BENCH_ROUNDS is less than 1");
  auto direct = ANCHORHOLD_TRY(make_folder(where / "plain"));
  fmt::print("{:16} {:>10} {:>10} {:>16} {:>10}\n", "microseconds", "answered", "processor",
             others ? "the other" : "without undo", "directly");
  std::size_t at = 0;
  for (const auto& work : all_work(direct.get())) {
    double directly = cost_of_each(work.direct, work.name, 0).wall;
    fmt::print("{:16} {:10.1f} {:10.1f} {:8.1f} {:7.1f} {:10.1f}\n", work.name, ours[at].wall,
               ours[at].processor, without[at].wall, without[at].processor, directly);
    ++at;
  }
  return {};
}

}  // namespace
}  // namespace anchorhold::mounts

int main(int argc, char** argv) {
  auto folder = anchorhold::TemporaryDirectory::create("ahk");
  if (!folder) return 1;
  auto done = anchorhold::mounts::run(argc > 1 ? std::filesystem::path(argv[1]) : folder->path());
  if (done) return 0;
  fmt::print(stderr, "bench_keeper: {}\n", done.error().message);
  return 1;
}
