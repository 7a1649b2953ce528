// anchorhold-guest: PID 1 of the guest. With --serve-fd N it is an ordinary process that serves the stream N.
#include <charconv>
#include <cstring>
#include <fmt/format.h>
#include <string_view>
#include <sys/reboot.h>
#include <unistd.h>

#include "guest_agent/agent.h"

namespace {

using anchorhold::guest::Role;

anchorhold::Status run_guest() {
  ANCHORHOLD_CHECK(anchorhold::guest::boot_guest());
  ANCHORHOLD_CHECK(anchorhold::guest::prepare_process(Role::guest));
  return anchorhold::guest::run_agent(Role::guest, {});
}

anchorhold::Status run_hosted(int fd) {
  ANCHORHOLD_CHECK(anchorhold::guest::prepare_process(Role::hosted));
  return anchorhold::guest::run_agent(Role::hosted, anchorhold::UniqueFd(fd));
}

int complain(std::string_view what) {
  fmt::print(stderr, "anchorhold-guest: {}\n", what);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "--serve-fd") {
    int fd = -1;
    auto [end, error] = std::from_chars(argv[2], argv[2] + std::strlen(argv[2]), fd);
    if (error != std::errc() || *end != '\0' || fd < 3)
      return complain("--serve-fd needs a descriptor above 2");
    auto status = run_hosted(fd);
    return status ? 0 : complain(status.error().message);
  }
  if (argc == 2 && std::string_view(argv[1]) == "--version") {
    fmt::print("anchorhold-guest {}\n", ANCHORHOLD_VERSION);
    return 0;
  }
  if (getpid() != 1)
    return complain("this program is the first process of a guest; --serve-fd N serves a stream");
  auto status = run_guest();
  // PID 1 must not simply end: the console keeps the reason, the host sees the machine go.
  complain(status ? "ended" : status.error().message);
  reboot(RB_POWER_OFF);
  reboot(RB_AUTOBOOT);
  return 1;
}
