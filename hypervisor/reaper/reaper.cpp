#include "hypervisor/reaper.h"

#include <chrono>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>

#include "base/paths.h"
#include "base/process.h"
#include "reaper/reaping.h"

namespace anchorhold::hypervisor {
namespace {

class ProgramReaper : public Reaper {
 public:
  ProgramReaper(UniqueFd socket, Child child) : socket_(std::move(socket)), child_(std::move(child)) {}
  ~ProgramReaper() override {
    socket_.reset();
    child_.wait(std::chrono::seconds(11));
  }
  Status watch(int process) override {
    auto start_time = start_time_of(process);
    if (!start_time)
      return fail(ErrorCode::not_found, fmt::format("there is no process {} to watch", process));
    WatchMessage message{process, 0, *start_time};
    return write_all(socket_.get(), std::as_bytes(std::span(&message, 1)));
  }

 private:
  UniqueFd socket_;
  Child child_;
};

}  // namespace

Result<std::unique_ptr<Reaper>> Reaper::start(const std::filesystem::path& folder) {
  auto sockets = ANCHORHOLD_TRY(socket_pair(SOCK_SEQPACKET));
  SpawnSpec spec;
  spec.argv = {ANCHORHOLD_TRY(own_program("anchorhold-reaper")).string(), folder.string()};
  spec.environment.emplace();
  spec.descriptors = {{sockets.second.get(), 3}};
  spec.working_directory = "/";
  spec.die_with_parent = false;
  Child child = ANCHORHOLD_TRY(Child::spawn(spec));
  return std::unique_ptr<Reaper>(new ProgramReaper(std::move(sockets.first), std::move(child)));
}

}  // namespace anchorhold::hypervisor
