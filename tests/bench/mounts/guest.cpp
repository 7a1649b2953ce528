// The only program of the benchmark's guest: does the same work on two mounts in turn and says on the console
// how long each step took ("FIGURE ours unpack 1234567", in microseconds). BENCH_ROUNDS in its environment
// (the kernel's command line) says how often, BENCH_STEPS which steps are wanted ("unpack,remove"; all
// without it). With a folder as argument it is an ordinary program that does the work there once.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <dirent.h>
#include <fcntl.h>
#include <functional>
#include <string>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace {

constexpr int files = 5000, folders = 100;
bool native = false;
constexpr int repository_files = 12000;  // made by the host, as "repository"
constexpr std::size_t large = 256u << 20, piece = 1u << 20;

[[noreturn]] void end(const char* why) {
  std::printf("%s\n", why);
  std::fflush(stdout);
  if (native) std::exit(1);
  sync();
  reboot(RB_AUTOBOOT);
  for (;;) pause();
}

void check(bool good, const std::string& what) {
  if (!good) {
    std::perror(what.c_str());
    end("FAILED");
  }
}

void forget_caches() {
  int fd = open("/proc/sys/vm/drop_caches", O_WRONLY);
  check(fd >= 0 && write(fd, "3", 1) == 1, "drop_caches");
  close(fd);
}

std::string folder_name(int i) {
  return "tree/d" + std::to_string(i % folders);
}

// What tar does for each file.
void unpack() {
  check(mkdir("tree", 0755) == 0, "tree");
  for (int i = 0; i < folders; ++i) check(mkdir(folder_name(i).c_str(), 0755) == 0, "a folder");
  const timespec times[2] = {{1600000000, 0}, {1600000000, 0}};
  for (int i = 0; i < files; ++i) {
    std::string name = folder_name(i) + "/f" + std::to_string(i),
                text(static_cast<std::size_t>(200 + i % 6000), 'x');
    int fd = open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0644);
    check(fd >= 0 && write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()), name);
    close(fd);
    check(utimensat(AT_FDCWD, name.c_str(), times, 0) == 0, name);
  }
}

void walk(const std::string& path, const std::function<void(const std::string&, const struct stat&)>& each) {
  DIR* folder = opendir(path.c_str());
  check(folder != nullptr, path);
  std::vector<std::string> below;
  while (dirent* entry = readdir(folder)) {
    std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    struct stat info;
    check(fstatat(dirfd(folder), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0, name);
    if (S_ISDIR(info.st_mode)) below.push_back(path + "/" + name);
    each(path + "/" + name, info);
  }
  closedir(folder);
  for (const auto& name : below) walk(name, each);
}

void list() {
  int count = 0;
  walk("tree", [&](const std::string&, const struct stat&) { ++count; });
  check(count == files + folders, "a listing that misses something");
}

// What git status does in a repository that nobody changed: every file of its index by its path, then the
// folders, for what is new.
void status() {
  struct stat info;
  for (int i = 0; i < repository_files; ++i) {
    std::string name = "repository/d" + std::to_string(i % 400) + "/f" + std::to_string(i);
    check(lstat(name.c_str(), &info) == 0, name);
  }
  for (int i = 0; i < 400; ++i) {
    DIR* folder = opendir(("repository/d" + std::to_string(i)).c_str());
    check(folder != nullptr, "repository");
    while (readdir(folder)) {
    }
    closedir(folder);
  }
}

void read_all() {
  static char buffer[1 << 16];
  walk("tree", [](const std::string& name, const struct stat& info) {
    if (!S_ISREG(info.st_mode)) return;
    int fd = open(name.c_str(), O_RDONLY);
    check(fd >= 0 && read(fd, buffer, sizeof buffer) == info.st_size, name);
    close(fd);
  });
}

void remove_all() {
  std::vector<std::string> below{"tree"};
  walk("tree", [&](const std::string& name, const struct stat& info) {
    if (S_ISDIR(info.st_mode))
      below.push_back(name);
    else
      check(unlink(name.c_str()) == 0, name);
  });
  while (!below.empty()) {
    check(rmdir(below.back().c_str()) == 0, below.back());
    below.pop_back();
  }
}

void write_large() {
  std::string text(piece, 'y');
  int fd = open("large", O_WRONLY | O_CREAT | O_TRUNC, 0644);
  for (std::size_t done = 0; done < large; done += piece)
    check(write(fd, text.data(), piece) == static_cast<ssize_t>(piece), "large");
  close(fd);
}

void read_large() {
  static char buffer[piece];
  int fd = open("large", O_RDONLY);
  for (std::size_t done = 0; done < large; done += piece)
    check(read(fd, buffer, piece) == static_cast<ssize_t>(piece), "large");
  close(fd);
}

void figure(const char* whose, const char* what, const std::function<void()>& work, bool cold = false) {
  if (cold && !native) forget_caches();
  auto begin = std::chrono::steady_clock::now();
  work();
  auto took = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin);
  std::printf("FIGURE %s %s %lld\n", whose, what, static_cast<long long>(took.count()));
  std::fflush(stdout);
}

struct Step {
  const char* name;
  std::function<void()> work;
  bool cold = false;
  const char* needs = nullptr;  // what another step makes
};

bool wanted(const std::string& name) {
  const char* steps = std::getenv("BENCH_STEPS");
  return !steps || ("," + std::string(steps) + ",").find("," + name + ",") != std::string::npos;
}

void measure(const char* whose, const std::string& folder) {
  static const Step steps[] = {
      {"status_cold", status, true},
      {"status_warm", status},
      {"unpack", unpack},
      {"list_cold", list, true, "tree"},
      {"list_warm", list, false, "tree"},
      {"read_cold", read_all, true, "tree"},
      {"read_warm", read_all, false, "tree"},
      {"remove", remove_all, false, "tree"},
      {"write_large", write_large},
      {"read_large", read_large, true, "large"},
  };
  check(chdir(folder.c_str()) == 0, folder);
  for (const auto& step : steps)
    if (wanted(step.name) && (!step.needs || access(step.needs, F_OK) == 0))
      figure(whose, step.name, step.work, step.cold);
  if (access("large", F_OK) == 0) check(unlink("large") == 0, "large");
  if (access("tree", F_OK) == 0) remove_all();
  check(chdir("/") == 0, "/");
}

}  // namespace

int main(int argc, char** argv) {
  native = argc > 1;
  if (native) {
    measure("native", argv[1]);
    return 0;
  }
  mkdir("/proc", 0755);
  check(mount("proc", "/proc", "proc", 0, nullptr) == 0, "/proc");
  for (const char* name : {"ours", "theirs"}) {
    std::string path = std::string("/") + name;
    mkdir(path.c_str(), 0755);
    check(mount(name, path.c_str(), "virtiofs", 0, nullptr) == 0, path);
  }
  const char* rounds = std::getenv("BENCH_ROUNDS");
  for (int round = 0; round < (rounds ? std::atoi(rounds) : 3); ++round) {
    for (const char* whose : {round % 2 ? "theirs" : "ours", round % 2 ? "ours" : "theirs"})
      measure(whose, std::string("/") + whose);
  }
  end("DONE");
}
