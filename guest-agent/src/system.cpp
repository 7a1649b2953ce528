#include "system.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <fcntl.h>
#include <fmt/format.h>
#include <map>
#include <mutex>
#include <string_view>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>
#include <vector>

#include "announce.h"
#include "base/fd.h"
#include "network/network.h"
#include "network/redirect.h"
#include "network/trust.h"

namespace anchorhold::guest {
namespace {

const std::string share_root = "/mnt/";
constexpr unsigned open_tree_clone = 1;  // OPEN_TREE_CLONE of open_tree(2)

class GuestSystem : public System {
 public:
  Result<std::int64_t> set_clock(std::int64_t unix_time_ns) override {
    if (unix_time_ns < 0) return fail(ErrorCode::invalid_argument, "a time before 1970");
    timespec before{};
    clock_gettime(CLOCK_REALTIME, &before);
    timespec now{.tv_sec = unix_time_ns / 1'000'000'000, .tv_nsec = unix_time_ns % 1'000'000'000};
    if (clock_settime(CLOCK_REALTIME, &now) != 0) return fail_errno(errno, "setting the guest's clock");
    return before.tv_sec * 1'000'000'000 + before.tv_nsec;
  }

  Result<std::string> mount_share(const wire::MountRequest& request) override {
    ANCHORHOLD_CHECK(check_share_name(request.name()));
    constexpr std::size_t longest_tag = 36;  // virtio 1.2, section 5.11.4
    if (request.tag().empty() || request.tag().size() > longest_tag)
      return fail(ErrorCode::invalid_argument, "a share's tag has 1 to 36 bytes");
    std::string path = share_root + request.name();
    mkdir("/mnt", 0755);
    if (mkdir(path.c_str(), 0755) != 0) return fail_errno(errno, path);
    constexpr unsigned long flags = MS_NODEV | MS_NOSUID;
    if (mount(request.tag().c_str(), path.c_str(), "virtiofs", flags, nullptr) != 0) {
      int error = errno;
      rmdir(path.c_str());
      return fail_errno(error, fmt::format("mounting the share {} at {}", request.tag(), path));
    }
    // What the host changes in a read-only share is announced by way of a mount that nobody else sees and
    // that is not read-only: the kernel refuses there what it is to tell its watchers of.
    UniqueFd view(
        static_cast<int>(syscall(SYS_open_tree, AT_FDCWD, path.c_str(), open_tree_clone | O_CLOEXEC)));
    if (!view || (request.read_only() && mount(nullptr, path.c_str(), nullptr,
                                               MS_REMOUNT | MS_BIND | MS_RDONLY | flags, nullptr) != 0)) {
      int error = errno;
      umount2(path.c_str(), UMOUNT_NOFOLLOW | MNT_DETACH);
      rmdir(path.c_str());
      return fail_errno(error, "a view of the share " + request.tag());
    }
    std::lock_guard lock(mutex_);
    shares_[request.name()] = std::make_shared<UniqueFd>(std::move(view));
    return path;
  }

  Status announce(const wire::AnnounceRequest& request) override {
    constexpr int most_changes = 1024;
    if (request.changes_size() > most_changes)
      return fail(ErrorCode::invalid_argument, "too many changes at once");
    for (const auto& change : request.changes()) {
      bool renamed = change.kind() == wire::HostChange::KIND_RENAMED;
      ANCHORHOLD_CHECK(check_change_path(change.path(), !renamed));
      ANCHORHOLD_CHECK(check_change_path(change.new_path(), !renamed));
    }
    std::shared_ptr<UniqueFd> view;
    {
      std::lock_guard lock(mutex_);
      auto found = shares_.find(request.name());
      if (found == shares_.end()) return fail(ErrorCode::not_found, "no such share");
      view = found->second;
    }
    guest::announce(view->get(), request.changes());
    return {};
  }

  Status unmount_share(const std::string& name, bool detach) override {
    ANCHORHOLD_CHECK(check_share_name(name));
    std::string path = share_root + name;
    if (umount2(path.c_str(), UMOUNT_NOFOLLOW | (detach ? MNT_DETACH : 0)) != 0)
      return fail_errno(errno, "unmounting " + path);
    rmdir(path.c_str());
    std::lock_guard lock(mutex_);
    shares_.erase(name);  // and with it the last mount
    return {};
  }

  Result<std::map<std::string, std::string>> configure_network(const std::string& authority_pem) override {
    std::lock_guard lock(network_mutex_);
    ANCHORHOLD_CHECK(trust_authority(authority_pem));
    if (!network_) {
      auto network = ANCHORHOLD_TRY(Network::start({}));
      ANCHORHOLD_CHECK(redirect_everything({network->ports().transparent, network->ports().dns}));
      network_ = std::move(network);
    }
    return network_environment(network_->ports().proxy);
  }

  void write_back() override {
    std::vector<std::string> names;
    {
      std::lock_guard lock(mutex_);
      for (const auto& [name, view] : shares_) names.push_back(name);
    }
    for (const auto& name : names) (void)unmount_share(name, false);
    sync();
  }

  void power_off() override {
    reboot(RB_POWER_OFF);
    // A machine without a power switch: a restart, which the host does not let happen, ends it as well.
    reboot(RB_AUTOBOOT);
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<UniqueFd>> shares_;  // views of them, without a place
  std::mutex network_mutex_;
  std::unique_ptr<Network> network_;
};

class HostedSystem : public System {
 public:
  // Sets a clock of its own, which starts as the machine's; that one is left alone.
  Result<std::int64_t> set_clock(std::int64_t unix_time_ns) override {
    if (unix_time_ns < 0) return fail(ErrorCode::invalid_argument, "a time before 1970");
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    const std::int64_t machine = now.tv_sec * 1'000'000'000 + now.tv_nsec;
    return machine + ahead_ns_.exchange(unix_time_ns - machine);
  }
  Result<std::string> mount_share(const wire::MountRequest&) override { return refuse("mount shares"); }
  Status unmount_share(const std::string&, bool) override { return refuse("unmount shares"); }
  Status announce(const wire::AnnounceRequest&) override { return refuse("have shares"); }
  Result<std::map<std::string, std::string>> configure_network(const std::string&) override {
    return fail(ErrorCode::unsupported, "this agent does not own its machine's network");
  }
  void write_back() override {}
  void power_off() override {}

 private:
  static tl::unexpected<Error> refuse(const char* what) {
    return fail(ErrorCode::failed_precondition,
                fmt::format("this agent is not a guest's PID 1 and does not {}", what));
  }

  std::atomic<std::int64_t> ahead_ns_ = 0;
};

std::string read_proc(const char* path) {
  UniqueFd file(open(path, O_RDONLY | O_CLOEXEC));
  std::string text(16384, '\0');
  ssize_t got = file ? read(file.get(), text.data(), text.size()) : 0;
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  return text;
}

// The number of "Name:   123" in a file of proc(5); 0 when it is missing.
std::uint64_t field(std::string_view text, std::string_view name) {
  auto at = text.find(name);
  if (at == text.npos) return 0;
  text.remove_prefix(at + name.size());
  text.remove_prefix(std::min(text.find_first_of("0123456789"), text.size()));
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

}  // namespace

std::unique_ptr<System> guest_system() {
  return std::make_unique<GuestSystem>();
}
std::unique_ptr<System> hosted_system() {
  return std::make_unique<HostedSystem>();
}

Status check_share_name(const std::string& name) {
  bool printable = std::all_of(name.begin(), name.end(),
                               [](unsigned char c) { return c >= 0x20 && c != 0x7f && c != '/'; });
  if (name.empty() || name.size() > 255 || name[0] == '.' || !printable)
    return fail(ErrorCode::invalid_argument, "not a name for a share below /mnt");
  return {};
}

MemoryInfo read_memory_info() {
  std::string text = read_proc("/proc/meminfo");
  return {field(text, "MemTotal:") * 1024, field(text, "MemAvailable:") * 1024};
}

void fill_statistics(wire::GetStatisticsReply& reply) {
  MemoryInfo memory = read_memory_info();
  reply.set_memory_total_bytes(memory.total_bytes);
  reply.set_memory_available_bytes(memory.available_bytes);
  struct statvfs scratch {};
  if (statvfs("/", &scratch) == 0) {
    reply.set_scratch_total_bytes(scratch.f_blocks * scratch.f_frsize);
    reply.set_scratch_used_bytes((scratch.f_blocks - scratch.f_bfree) * scratch.f_frsize);
  }
  timespec uptime{};
  clock_gettime(CLOCK_BOOTTIME, &uptime);
  reply.set_uptime_ns(static_cast<std::uint64_t>(uptime.tv_sec) * 1'000'000'000 +
                      static_cast<std::uint64_t>(uptime.tv_nsec));
  struct sysinfo info {};
  if (sysinfo(&info) == 0) {
    reply.set_load_1_minute(static_cast<double>(info.loads[0]) / (1 << SI_LOAD_SHIFT));
    reply.set_processes(info.procs);
  }
  std::string self = read_proc("/proc/self/status");
  reply.set_agent_memory_bytes(field(self, "VmRSS:") * 1024);
  reply.set_agent_threads(static_cast<std::uint32_t>(field(self, "Threads:")));
}

}  // namespace anchorhold::guest
