// The streams of a command: what it reads and writes, or its terminal.
#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "exec.h"
#include "terminal.h"

namespace anchorhold::guest {
namespace {

constexpr int output_pipe_bytes = 256 * 1024;

Result<UniqueFd> open_null(int flags) {
  UniqueFd null(open("/dev/null", flags | O_CLOEXEC));
  if (!null) return fail_errno(errno, "/dev/null");
  return null;
}

// So that the command may open /dev/stdout again: a pipe belongs to who made it.
void give(int fd, uid_t owner) {
  (void)!fchown(fd, owner, static_cast<gid_t>(-1));
}

}  // namespace

Status Exec::open_streams() {
  auto changed = [this] { on_output(); };
  if (plan_.terminal) {
    Terminal pair =
        ANCHORHOLD_TRY(open_terminal(plan_.terminal->rows(), plan_.terminal->columns(), plan_.account.uid));
    for (auto& side : child_side_) side = ANCHORHOLD_TRY(duplicate(pair.terminal.get()));
    UniqueFd reading = ANCHORHOLD_TRY(duplicate(pair.controller.get()));
    ANCHORHOLD_CHECK(outputs_[0].open(std::move(reading), changed));
    UniqueFd writing = ANCHORHOLD_TRY(duplicate(pair.controller.get()));
    input_ = ANCHORHOLD_TRY(Input::create(machinery_.loop, std::move(writing), Input::Kind::terminal));
    controller_ = std::move(pair.controller);
    outputs_[1].close();
    return {};
  }
  if (plan_.feed_input) {
    Pipe pipe = ANCHORHOLD_TRY(make_pipe());
    child_side_[0] = std::move(pipe.read_end);
    input_ = ANCHORHOLD_TRY(Input::create(machinery_.loop, std::move(pipe.write_end), Input::Kind::pipe));
  } else {
    child_side_[0] = ANCHORHOLD_TRY(open_null(O_RDONLY));
  }
  Pipe out = ANCHORHOLD_TRY(make_pipe());
  // Room for the command to go on while a chunk is under way; where the system grants no more it stays as it
  // is.
  (void)fcntl(out.write_end.get(), F_SETPIPE_SZ, output_pipe_bytes);
  child_side_[1] = std::move(out.write_end);
  ANCHORHOLD_CHECK(outputs_[0].open(std::move(out.read_end), changed));
  if (plan_.errors == wire::ERROR_MODE_APART) {
    Pipe err = ANCHORHOLD_TRY(make_pipe());
    child_side_[2] = std::move(err.write_end);
    ANCHORHOLD_CHECK(outputs_[1].open(std::move(err.read_end), changed));
  } else {
    child_side_[2] = plan_.errors == wire::ERROR_MODE_MERGED ? ANCHORHOLD_TRY(duplicate(child_side_[1].get()))
                                                             : ANCHORHOLD_TRY(open_null(O_WRONLY));
    outputs_[1].close();
  }
  if (geteuid() == 0) {
    if (plan_.feed_input) give(child_side_[0].get(), plan_.account.uid);
    give(child_side_[1].get(), plan_.account.uid);
    if (plan_.errors == wire::ERROR_MODE_APART) give(child_side_[2].get(), plan_.account.uid);
  }
  return {};
}

Output* Exec::output(wire::OutputStream stream) {
  switch (stream) {
    case wire::OUTPUT_STREAM_STDOUT:
      return &outputs_[0];
    case wire::OUTPUT_STREAM_STDERR:
      return &outputs_[1];
    default:
      return nullptr;
  }
}

Status Exec::resize(const wire::TerminalSize& size) {
  if (!controller_)
    return fail(ErrorCode::failed_precondition, fmt::format("command {} has no terminal", plan_.id));
  return resize_terminal(controller_.get(), size.rows(), size.columns());
}

void Exec::forget() {
  outputs_[0].close();
  outputs_[1].close();
}

}  // namespace anchorhold::guest
