#include "spares/spares_program.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "mounts/programs.h"

namespace anchorhold::mounts {
namespace {

// As the reader's device: one for urgent requests, the others for all else.
constexpr std::size_t queues = 9;

Result<UniqueFd> adopt(int number, const char* what) {
  if (fcntl(number, F_SETFD, FD_CLOEXEC) != 0) return fail_errno(errno, what);
  return UniqueFd(number);
}

}  // namespace

SealPolicy spares_policy(const SparesArguments& arguments) {
  SealPolicy policy;
  policy.syscalls = base_syscalls();
  allow(policy, {"accept4"});
  policy.kept_descriptors = {spares_fd::reports, spares_fd::control};
  for (unsigned index = 0; index < arguments.count; ++index)
    policy.kept_descriptors.push_back(spares_fd::first_listener + static_cast<int>(index));
  policy.allow_weak = arguments.allow_weak;
  policy.limits = {
      {RLIMIT_CORE, 0}, {RLIMIT_MEMLOCK, 0}, {RLIMIT_FSIZE, 0}, {RLIMIT_NOFILE, 64 + 32 * arguments.count}};
#ifndef ANCHORHOLD_SANITIZED  // whose shadow memory is larger than any machine
  policy.limits.push_back({RLIMIT_DATA, 64u << 20});
#endif
  return policy;
}

Result<SparesProgram> SparesProgram::seal(const SparesArguments& arguments) {
  SparesProgram program;
  program.reports_ =
      std::make_unique<Reporter>(ANCHORHOLD_TRY(adopt(spares_fd::reports, "the reports' socket")));
  program.control_ = ANCHORHOLD_TRY(adopt(spares_fd::control, "the host's socket"));
  for (unsigned index = 0; index < arguments.count; ++index) {
    Spare spare;
    spare.listener =
        ANCHORHOLD_TRY(adopt(spares_fd::first_listener + static_cast<int>(index), "the front end's socket"));
    ANCHORHOLD_CHECK(set_nonblocking(spare.listener.get()));
    program.spares_.push_back(std::move(spare));
  }
  (void)ANCHORHOLD_TRY(anchorhold::seal(spares_policy(arguments)));
  return program;
}

Status SparesProgram::run() {
  loop_ = ANCHORHOLD_TRY(vsock::EventLoop::create());
  for (auto& spare : spares_)
    spare.listening = ANCHORHOLD_TRY(
        loop_->watch(spare.listener.get(), vsock::ready::readable, [&](std::uint32_t) { accept(spare); }));
  auto orders = ANCHORHOLD_TRY(
      loop_->watch(control_.get(), vsock::ready::readable, [this](std::uint32_t) { take_order(); }));
  Report ready;
  ready.kind = ReportKind::ready;
  reports_->send(ready);
  Status ended = loop_->run();
  spares_.clear();
  return ended;
}

void SparesProgram::accept(Spare& spare) {
  UniqueFd connection(accept4(spare.listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!connection) return;
  spare.listening = {};
  spare.listener.reset();
  auto ended = [this](Status cause) {
    if (!cause || ++over_ == spares_.size()) loop_->stop(std::move(cause));
  };
  auto holder = vsock::DeviceHolder::create(*loop_, std::move(connection), queues, ended);
  if (!holder) return loop_->stop(fail(std::move(holder).error()));
  spare.holder = std::move(*holder);
}

void SparesProgram::take_order() {
  std::uint32_t index = 0;
  auto order = receive_with_descriptors(control_.get(), std::as_writable_bytes(std::span(&index, 1)));
  if (!order || order->size != sizeof index) return loop_->stop({});  // the host has gone
  auto attached = attach(index, std::move(order->descriptors));
  std::string_view answer = attached ? spares_fd::taken : std::string_view(attached.error().message);
  (void)send(control_.get(), answer.data(), std::min(answer.size(), spares_fd::max_answer_bytes),
             MSG_NOSIGNAL | MSG_DONTWAIT);
}

Status SparesProgram::attach(std::uint32_t index, std::vector<UniqueFd> descriptors) {
  if (index >= spares_.size() || descriptors.size() != 1)
    return fail(ErrorCode::invalid_argument, "not a spare device, or no reader for it");
  auto& holder = spares_[index].holder;
  if (!holder) return fail(ErrorCode::failed_precondition, "the guest has not set up that device");
  return holder->attach(std::move(descriptors.front()));
}

}  // namespace anchorhold::mounts
