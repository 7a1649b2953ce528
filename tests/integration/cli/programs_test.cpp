// Programs that lie in a granted folder run as what they are. An emulator has to notice that for each page
// which the process that serves the folder fills.
#include <cstdint>
#include <cstring>
#include <elf.h>
#include <random>

#include "cli_fixture.h"

namespace anchorhold::cli {
namespace {

constexpr std::uint64_t address = 0x400000;
constexpr std::size_t code_bytes = 8 * 4096;
constexpr int programs_there = 150;  // each has an exit status of its own

// A static program, every instruction of which counts for its exit status.
std::string program_that_ends_with(std::uint8_t status, std::mt19937& random) {
  std::string code = "\x31\xff";  // xor edi, edi
  std::uint32_t sum = 0;
  auto add = [&](std::uint32_t number) {
    code += "\x81\xc7";  // add edi, number
    code.append(reinterpret_cast<const char*>(&number), sizeof number);
    sum += number;
  };
  while (code.size() < code_bytes) add(static_cast<std::uint32_t>(random()));
  add(status - sum);
  code += "\xb8\x3c";  // mov eax, 60 (exit); syscall
  code.append("\0\0\0\x0f\x05", 5);

  Elf64_Ehdr head{};
  std::memcpy(head.e_ident, ELFMAG, SELFMAG);
  head.e_ident[EI_CLASS] = ELFCLASS64;
  head.e_ident[EI_DATA] = ELFDATA2LSB;
  head.e_ident[EI_VERSION] = EV_CURRENT;
  head.e_type = ET_EXEC;
  head.e_machine = EM_X86_64;
  head.e_version = EV_CURRENT;
  head.e_entry = address + sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr);
  head.e_phoff = sizeof head;
  head.e_ehsize = sizeof head;
  head.e_phentsize = sizeof(Elf64_Phdr);
  head.e_phnum = 1;
  Elf64_Phdr segment{};
  segment.p_type = PT_LOAD;
  segment.p_flags = PF_R | PF_X;
  segment.p_vaddr = segment.p_paddr = address;
  segment.p_filesz = segment.p_memsz = sizeof head + sizeof segment + code.size();
  segment.p_align = 4096;
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof head);
  bytes.append(reinterpret_cast<const char*>(&segment), sizeof segment);
  return bytes + code;
}

TEST_F(CliTest, ProgramsOfAFolderRunAsWhatTheyAre) {
  ANCHORHOLD_NEEDS_IMAGE();
  constexpr unsigned seed = 20261130;
  std::mt19937 random(seed);
  const std::filesystem::path programs = folder("programs");
  for (int i = 1; i <= programs_there; ++i) {
    const auto status = static_cast<std::uint8_t>(i);
    const auto file = programs / std::to_string(status);
    write_text(file, program_that_ends_with(status, random));
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
  }
  // Again and again, in pages that others of them were in before.
  auto outcome = run(
      {"run", "--image", image_, "--user", "root", "--memory", "512M", "--ro", programs, "--", "bash", "-c",
       "for round in 1 2 3 4; do for each in $(seq $1 | shuf); do /mnt/programs/$each; got=$?; "
       "[ $got = $each ] || echo $each ended with $got; done; "
       "echo 1 > /proc/sys/vm/drop_caches; done; echo done",
       "bash", std::to_string(programs_there)});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "done\n");
}

}  // namespace
}  // namespace anchorhold::cli
