// anchorhold-qemu ARG…: what libvirt starts in QEMU's place. Restricts itself to the files of one machine,
// then becomes QEMU. When libvirt only asks QEMU what it can do there is no machine and nothing hostile, and
// no view is given.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <unistd.h>

#include "launcher/view.h"
#include "libvirt/emulator.h"

namespace {

int give_up(const anchorhold::Error& error) {
  std::fprintf(stderr, "anchorhold-qemu: %s\n", error.message.c_str());
  if (!error.hint.empty()) std::fprintf(stderr, "%s\n", error.hint.c_str());
  return 126;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace anchorhold::hypervisor;
  if (argc < 1) return 126;
  const char* program = std::getenv(program_variable);
  auto emulator = find_emulator(program ? program : "");
  if (!emulator) return give_up(emulator.error());
  if (const char* text = std::getenv(view_variable)) {
    auto view = decode_view(text);
    if (!view) return give_up(view.error());
    if (auto dropped = drop_capabilities(); !dropped) return give_up(dropped.error());
    if (auto restricted = restrict_to(*view); !restricted) return give_up(restricted.error());
  }
  unsetenv(view_variable);
  unsetenv(program_variable);
  std::string name = emulator->string();
  argv[0] = name.data();
  execv(name.c_str(), argv);
  return give_up({anchorhold::ErrorCode::internal, "QEMU could not be started: " + name, ""});
}
