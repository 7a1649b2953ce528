#include "guest_life.h"

#include <algorithm>
#include <deque>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <vector>

#include "base/files.h"
#include "base/units.h"

namespace anchorhold::session {
namespace {

constexpr std::size_t max_console_bytes = 4 << 20;
// Between the end of a device and the news that its machine ended.
constexpr std::chrono::milliseconds machine_end_patience = std::chrono::seconds(3);

std::string describe(const hypervisor::MachineExit& exit) {
  auto with_detail = [&](std::string text) {
    return exit.detail.empty() ? text : fmt::format("{} ({})", text, exit.detail);
  };
  switch (exit.cause) {
    case hypervisor::ExitCause::guest_shutdown:
      return with_detail("the guest powered itself off");
    case hypervisor::ExitCause::guest_reset:
      return with_detail("the guest's kernel panicked or rebooted");
    case hypervisor::ExitCause::stopped:
      return with_detail("the guest was stopped");
    case hypervisor::ExitCause::time_limit:
      return with_detail("the guest reached its time limit");
    case hypervisor::ExitCause::process_lost:
      return with_detail("the virtual machine's process was killed or crashed");
    case hypervisor::ExitCause::start_failed:
      return with_detail("the virtual machine did not start");
  }
  return with_detail("the virtual machine ended");
}

// The kernel's words for it (arch/x86/kernel/{traps,dumpstack}.c, arch/x86/mm/fault.c, kernel/panic.c).
bool begins_oops(std::string_view line) {
  constexpr std::string_view beginnings[] = {
      "BUG: ", "Oops: ", "general protection fault", "invalid opcode: ", "divide error: ", "Kernel panic"};
  return std::ranges::any_of(beginnings, [&](std::string_view text) { return line.find(text) != line.npos; });
}

// Whether the guest's own last words can explain the end.
bool console_explains(hypervisor::ExitCause cause) {
  return cause == hypervisor::ExitCause::guest_reset || cause == hypervisor::ExitCause::guest_shutdown;
}

}  // namespace

std::string console_excerpt(const std::filesystem::path& console, std::size_t max_lines) {
  auto text = read_file(console, max_console_bytes);
  if (!text) return {};
  std::vector<std::string> oops;  // how it begins
  std::deque<std::string> last;   // after that, or of everything
  std::string line;
  auto finish_line = [&] {
    if (line.empty()) return;
    if (oops.empty() && begins_oops(line)) last.clear();
    if (oops.size() < max_lines && (!oops.empty() || begins_oops(line))) {
      oops.push_back(line);
    } else {
      last.push_back(line);
      if (last.size() > max_lines) last.pop_front();
    }
    line.clear();
  };
  for (unsigned char byte : *text) {
    if (byte == '\n') {
      finish_line();
    } else if (byte >= 0x20 && byte < 0x7f && line.size() < 200) {
      line += static_cast<char>(byte);
    }
  }
  finish_line();
  if (oops.empty()) return fmt::format("{}", fmt::join(last, " | "));
  if (last.empty()) return fmt::format("{}", fmt::join(oops, " | "));
  return fmt::format("{} | ... | {}", fmt::join(oops, " | "), last.back());
}

void GuestLife::stream_arrived(UniqueFd stream) {
  std::lock_guard lock(mutex_);
  if (stream_seen_) return;
  stream_seen_ = true;
  stream_ = std::move(stream);
  changed_.notify_all();
}

void GuestLife::part_ended(const std::string& part, const Error& why) {
  std::unique_lock lock(mutex_);
  if (stopping_ || cause_) return;
  std::string text = fmt::format("{} ended: {}", part, why.message);
  if (why.code == ErrorCode::unavailable) {
    if (!suspicion_.empty()) return;
    suspicion_ = std::move(text);
    changed_.notify_all();
    executor_.post_after(machine_end_patience, [this] {
      std::unique_lock later(mutex_);
      if (!stopping_ && !cause_) lose(later, suspicion_);
    });
    return;
  }
  lose(lock, std::move(text));
}

void GuestLife::machine_ended(const hypervisor::MachineExit& exit) {
  std::unique_lock lock(mutex_);
  exit_ = exit;
  changed_.notify_all();
  if (stopping_ || cause_) return;
  std::string text = describe(exit);
  if (console_explains(exit.cause)) {
    if (std::string tail = console_excerpt(console_); !tail.empty()) text += "; its console says: " + tail;
  }
  lose(lock, std::move(text));
}

void GuestLife::lose(std::unique_lock<std::mutex>& lock, std::string cause) {
  cause_ = std::move(cause);
  changed_.notify_all();
  auto callback = std::exchange(on_lost_, nullptr);
  std::string copy = *cause_;
  lock.unlock();
  if (callback) callback(copy);
}

void GuestLife::stopping() {
  std::lock_guard lock(mutex_);
  stopping_ = true;
  on_lost_ = nullptr;
  changed_.notify_all();
}

void GuestLife::on_lost(std::function<void(const std::string&)> callback) {
  std::unique_lock lock(mutex_);
  if (!cause_) {
    on_lost_ = std::move(callback);
    return;
  }
  std::string copy = *cause_;
  lock.unlock();
  callback(copy);
}

Result<UniqueFd> GuestLife::wait_for_stream(std::chrono::milliseconds limit, std::stop_token stop) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, stop, limit, [&] { return stream_ || cause_; });
  if (stream_) {
    UniqueFd stream = std::move(*stream_);
    stream_.reset();
    return stream;
  }
  if (cause_) return fail(ErrorCode::unavailable, *cause_);
  if (stop.stop_requested()) return fail(ErrorCode::cancelled, "the start was stopped");
  std::string tail = console_excerpt(console_);
  return fail(ErrorCode::deadline_exceeded,
              fmt::format("the guest did not report within {}{}", to_string(limit),
                          tail.empty() ? "; it printed nothing" : "; its console says: " + tail),
              "look whether this computer is overloaded, and at: anchorhold doctor");
}

bool GuestLife::lost() const {
  std::lock_guard lock(mutex_);
  return cause_ || !suspicion_.empty() || exit_;
}

bool GuestLife::reached_wall_time() const {
  std::lock_guard lock(mutex_);
  return exit_ && exit_->cause == hypervisor::ExitCause::time_limit;
}

std::string GuestLife::cause(std::chrono::milliseconds limit) const {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, limit, [&] { return cause_ || stopping_; });
  if (cause_) return *cause_;
  if (stopping_) return "the guest was stopped";
  return suspicion_.empty() ? "the connection to it broke" : suspicion_;
}

}  // namespace anchorhold::session
