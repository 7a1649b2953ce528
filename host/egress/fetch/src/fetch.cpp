#include "egress/fetch.h"

#include <csignal>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/paths.h"
#include "base/process.h"
#include "egress/control.h"
#include "messages.h"

namespace anchorhold::egress {
namespace {

using std::chrono::steady_clock;

// It ends by itself when its time is over; this is for one that does not.
constexpr std::chrono::seconds grace(10);

// True when it ended by itself.
Result<bool> await_end(Child& child, std::chrono::milliseconds limit, const std::stop_token& stop) {
  UniqueFd stopped(eventfd(0, EFD_CLOEXEC));
  if (!stopped) return fail_errno(errno, "eventfd");
  std::stop_callback wake(stop, [&] {
    std::uint64_t one = 1;
    (void)!write(stopped.get(), &one, sizeof one);
  });
  auto end = steady_clock::now() + limit;
  for (;;) {
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - steady_clock::now()).count();
    if (left <= 0) return false;
    pollfd entries[] = {{child.pidfd(), POLLIN, 0}, {stopped.get(), POLLIN, 0}};
    if (poll(entries, 2, static_cast<int>(left)) < 0) continue;
    if (entries[1].revents) return fail(ErrorCode::cancelled, "stopped");
    if (entries[0].revents) return true;
  }
}

}  // namespace

Result<FetchedPage> fetch_page(const FetchRequest& request, const FetchRoute& route, std::stop_token stop) {
  auto program = route.program;
  if (program.empty()) program = ANCHORHOLD_TRY(own_program("anchorhold-fetch"));
  UniqueFd order = ANCHORHOLD_TRY(text_descriptor(encode_order({request, route.trust_pem})));
  UniqueFd answer(memfd_create("answer", MFD_CLOEXEC));
  if (!answer) return fail_errno(errno, "memfd_create");
  SpawnSpec spawn;
  spawn.argv = {program.string()};
  if (route.allow_weak) spawn.argv.push_back("--allow-weak");
  spawn.environment.emplace();
  spawn.descriptors = {{2, 2}, {order.get(), fetch_fd::request}, {answer.get(), fetch_fd::answer}};
  std::vector<UniqueFd> streams;
  for (int hop = 0; hop <= max_redirects; ++hop) {
    auto [ours, doors] = ANCHORHOLD_TRY(socket_pair(SOCK_STREAM));
    ANCHORHOLD_CHECK(route.adopt(std::move(doors)));
    spawn.descriptors.push_back({ours.get(), fetch_fd::first_stream + hop});
    streams.push_back(std::move(ours));
  }
  auto child = ANCHORHOLD_TRY(Child::spawn(spawn));
  streams.clear();
  bool ended = ANCHORHOLD_TRY(await_end(child, request.limit + grace, stop));
  if (!ended) return fail(ErrorCode::deadline_exceeded, fmt::format("{} did not come in time", request.url));
  auto status = child.wait();
  if (!status.ok())
    return fail(ErrorCode::internal,
                fmt::format("the process that reads pages ended: {}", to_string(status)));
  std::string text = ANCHORHOLD_TRY(read_text_descriptor(answer.get()));
  return parse_answer(text, request);
}

}  // namespace anchorhold::egress
