// The only program of the benchmark's guest: does each step of work on several mounts in turn, whose order
// changes from round to round, and says on the console how long it took ("FIGURE 0 ours unpack 1234567": the
// round and microseconds). In its environment (the kernel's command line): BENCH_SHARES, the mounts' tags;
// BENCH_CHANGED, those on which only steps that change something are done; BENCH_ROUNDS; BENCH_STEPS, which
// are wanted ("unpack,remove"; all without it). With a folder as argument it is an ordinary program that does
// the same work there.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <functional>
#include <string>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace {

constexpr int files = 5000, folders = 100;
constexpr std::size_t large = 256u << 20, piece = 1u << 20;
constexpr const char* system_root = "/system";  // the image's root file system
constexpr const char* shares_folder = "/system/mnt";
bool native = false;
bool has_npm = false;
int current_round = 0;

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

std::string variable(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value ? value : otherwise;
}

std::vector<std::string> words(const std::string& text) {
  std::vector<std::string> all;
  for (std::size_t at = 0; at < text.size();) {
    auto comma = std::min(text.find(',', at), text.size());
    all.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return all;
}

void forget_caches() {
  if (native) return;
  int fd = open("/proc/sys/vm/drop_caches", O_WRONLY);
  check(fd >= 0 && write(fd, "3", 1) == 1, "drop_caches");
  close(fd);
}

// A program of the image, in the current folder. What it says.
std::string output_of(const std::vector<std::string>& words) {
  std::vector<char*> argv;
  for (const auto& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  char folder[4096];
  check(getcwd(folder, sizeof folder) != nullptr, "getcwd");
  int said[2];
  check(pipe(said) == 0, "pipe");
  pid_t child = fork();
  if (child == 0) {
    dup2(said[1], 1);
    dup2(said[1], 2);
    close(said[0]);
    close(said[1]);
    if (!native) {
      setenv("PATH", "/usr/bin:/bin", 1);
      setenv("HOME", "/tmp", 1);
      if (chroot(system_root) != 0 || chdir(folder + std::strlen(system_root)) != 0) _exit(125);
    }
    execvp(argv[0], argv.data());
    _exit(126);
  }
  close(said[1]);
  std::string output;
  char bytes[1024];
  for (ssize_t count; (count = read(said[0], bytes, sizeof bytes)) > 0;)
    output.append(bytes, static_cast<std::size_t>(count));
  close(said[0]);
  int status = -1;
  waitpid(child, &status, 0);
  check(status == 0, words[0] + ": " + output);
  return output;
}

void run(const std::vector<std::string>& words) {
  auto output = output_of(words);
  check(output.empty(), words[0] + ": " + output);
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

void stat_all() {
  int count = 0;
  walk("tree", [&](const std::string&, const struct stat&) { ++count; });
  check(count == files + folders, "a listing that misses something");
}

// As find, rm and scripts do: first all names of a folder, then what they are.
int scan(const std::string& path) {
  DIR* folder = opendir(path.c_str());
  check(folder != nullptr, path);
  std::vector<std::string> names;
  while (dirent* entry = readdir(folder))
    if (std::string name = entry->d_name; name != "." && name != "..") names.push_back(path + "/" + name);
  closedir(folder);
  int count = 0;
  for (const auto& name : names) {
    struct stat info;
    check(lstat(name.c_str(), &info) == 0, name);
    count += 1 + (S_ISDIR(info.st_mode) ? scan(name) : 0);
  }
  return count;
}

void scan_all() {
  check(scan("tree") == files + folders, "a listing that misses something");
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

// As rm -r.
void remove_tree(const std::string& path) {
  auto each = [](const char* name, const struct stat*, int, FTW*) { return remove(name); };
  check(nftw(path.c_str(), each, 32, FTW_DEPTH | FTW_PHYS) == 0, path);
}

void remove_old() {
  remove_tree("old" + std::to_string(current_round));
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

void git_status() {
  run({"git", "-c", "safe.directory=*", "-C", "repository", "status", "--porcelain"});
}

void npm_ci() {
  check(chdir("project") == 0, "project");
  run({"npm", "ci", "--offline", "--no-audit", "--no-fund", "--ignore-scripts", "--silent", "--cache",
       variable("BENCH_NPM_CACHE", "/tmp/npm-cache")});
  check(access("node_modules/express", F_OK) == 0, "node_modules");
  check(chdir("..") == 0, "..");
}

struct Step {
  const char* name;
  std::function<void()> work;
  bool changes = false;
  bool cold = false;
  const char* needs = nullptr;  // made by the host or another step
  int rounds = 1000;            // in how many it is done
  const char* program = nullptr;
  void (*warmed_by)() = nullptr;  // before it is measured: a step elsewhere made the kernel forget all
};

const std::vector<Step>& steps() {
  static const std::vector<Step> all = {
      {"unpack", unpack, true, true},
      {"stat_cold", stat_all, false, true, "tree"},
      {"stat_warm", stat_all, false, false, "tree", 1000, nullptr, stat_all},
      {"scan_cold", scan_all, false, true, "tree"},
      {"read_cold", read_all, false, true, "tree"},
      {"read_warm", read_all, false, false, "tree", 1000, nullptr, read_all},
      {"remove", [] { remove_tree("tree"); }, true, false, "tree", 1000, nullptr, stat_all},
      {"remove_old", remove_old, true, true, "old0"},
      {"write_large", write_large, true, true},
      {"read_large", read_large, false, true, "large"},
      {"npm_ci", npm_ci, true, true, "project", 2, "npm"},
      {"git_cold", git_status, false, true, "repository", 1000, "git"},
      {"git_warm", git_status, false, false, "repository", 1000, nullptr, git_status},
  };
  return all;
}

void figure(const std::string& whose, const Step& step) {
  if (step.cold) forget_caches();
  if (step.warmed_by) step.warmed_by();
  if (step.program) (void)output_of({step.program, "--version"});  // it is not the programs that are read
  auto begin = std::chrono::steady_clock::now();
  step.work();
  auto took = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin);
  std::printf("FIGURE %d %s %s %lld\n", current_round, whose.c_str(), step.name,
              static_cast<long long>(took.count()));
  std::fflush(stdout);
}

bool contains(const std::vector<std::string>& all, const std::string& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

void measure(std::vector<std::pair<std::string, std::string>> shares) {
  const auto wanted = words(variable("BENCH_STEPS", "")), changed_only = words(variable("BENCH_CHANGED", ""));
  const int rounds = std::atoi(variable("BENCH_ROUNDS", "3").c_str());
  for (current_round = 0; current_round < rounds; ++current_round) {
    for (const auto& step : steps()) {
      if ((!wanted.empty() && !contains(wanted, step.name)) || current_round >= step.rounds) continue;
      if (std::strcmp(step.name, "npm_ci") == 0 && !has_npm) continue;
      for (const auto& [whose, folder] : shares) {
        if (!step.changes && contains(changed_only, whose)) continue;
        check(chdir(folder.c_str()) == 0, folder);
        if (!step.needs || access(step.needs, F_OK) == 0) figure(whose, step);
      }
      std::rotate(shares.begin(), shares.begin() + 1, shares.end());
    }
    for (const auto& [whose, folder] : shares) {
      check(chdir(folder.c_str()) == 0, folder);
      unlink("large");
      if (access("tree", F_OK) == 0) remove_tree("tree");
      if (access("project/node_modules", F_OK) == 0) remove_tree("project/node_modules");
    }
    std::rotate(shares.begin(), shares.begin() + 1, shares.end());
  }
}

void mount_one(const char* source, const std::string& at, const char* type, unsigned long flags,
               const char* data = nullptr) {
  check(mount(source, at.c_str(), type, flags, data) == 0, at);
}

}  // namespace

int main(int argc, char** argv) {
  native = argc > 1;
  if (native) {
    has_npm = std::getenv("BENCH_NPM_CACHE") != nullptr;
    measure({{"native", argv[1]}});
    return 0;
  }
  for (const char* folder : {"/proc", "/dev", system_root, "/brought"}) mkdir(folder, 0755);
  mount_one("proc", "/proc", "proc", 0);
  mount_one("devtmpfs", "/dev", "devtmpfs", 0);
  // Which of the two disks is the first is the machine's affair.
  std::string system_disk = "/dev/vda", brought_disk = "/dev/vdb";
  mount_one(system_disk.c_str(), system_root, "erofs", MS_RDONLY);
  if (access("/system/npm-cache", F_OK) == 0) {
    check(umount(system_root) == 0, system_root);
    std::swap(system_disk, brought_disk);
    mount_one(system_disk.c_str(), system_root, "erofs", MS_RDONLY);
  }
  const std::string root = system_root;
  mount_one("proc", root + "/proc", "proc", 0);
  mount_one("devtmpfs", root + "/dev", "devtmpfs", 0);
  mount_one("tmpfs", root + "/tmp", "tmpfs", 0);
  mount_one("tmpfs", shares_folder, "tmpfs", 0);
  has_npm = access(brought_disk.c_str(), F_OK) == 0;
  if (has_npm) {
    mount_one(brought_disk.c_str(), "/brought", "erofs", MS_RDONLY);
    mount_one("programs", root + "/usr", "overlay", MS_RDONLY, "lowerdir=/system/usr:/brought/usr");
    mkdir((root + "/tmp/brought").c_str(), 0755);
    mount_one("/brought", root + "/tmp/brought", nullptr, MS_BIND);
    check(chdir((root + "/tmp").c_str()) == 0, "/tmp");
    run({"cp", "-r", "brought/npm-cache", "npm-cache"});
  }
  std::vector<std::pair<std::string, std::string>> shares;
  for (const auto& name : words(variable("BENCH_SHARES", "ours,theirs"))) {
    shares.emplace_back(name, std::string(shares_folder) + "/" + name);
    mkdir(shares.back().second.c_str(), 0755);
    mount_one(name.c_str(), shares.back().second, "virtiofs", 0);
  }
  measure(shares);
  end("DONE");
}
