#include "libvirt/kvm_probe.h"

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/kvm.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"

namespace anchorhold::hypervisor {
namespace {

// What the child says before it ends. Its steps are in order: the one that failed is the answer.
enum class Step : std::uint32_t {
  open,
  version,
  make_machine,
  interrupt_controller,
  memory,
  make_vcpu,
  registers,
  run,
  answer,
  done
};
struct Report {
  Step step = Step::open;
  std::int32_t error = 0;         // errno of the step
  std::uint32_t exit_reason = 0;  // KVM_EXIT_… of the run
};

// Guest-physical layout of the probe's 2 MiB, all of it mapped one to one by a single large page.
constexpr std::uint64_t memory_size = 2 << 20;
constexpr std::uint64_t pml4_at = 0x1000;
constexpr std::uint64_t pdpt_at = 0x2000;
constexpr std::uint64_t page_directory_at = 0x3000;
constexpr std::uint64_t data_at = 0x4000;  // 16-byte aligned, for cmpxchg16b and movaps
constexpr std::uint64_t code_at = 0x5000;
constexpr std::uint16_t answer_port = 0x42;
constexpr std::uint32_t loop_rounds = 1'000'000;
constexpr std::uint64_t data_low = 0x1122334455667788, data_high = 0x99aabbccddeeff00;

// 64-bit code at privilege 0, interrupts off: the instructions a kernel cannot do without and a partial
// virtualization leaves out, and a loop that takes too long where each instruction is interpreted. The answer
// goes to the port.
constexpr std::array<std::uint8_t, 79> guest_code = {
    0x48, 0xc7, 0xc6, 0x00, 0x40, 0x00, 0x00,  // mov rsi, data_at
    0x48, 0x8b, 0x06,                          // mov rax, [rsi]
    0x48, 0x8b, 0x56, 0x08,                    // mov rdx, [rsi+8]
    0x48, 0xc7, 0xc3, 0x78, 0x56, 0x34, 0x12,  // mov rbx, 0x12345678
    0x48, 0x31, 0xc9,                          // xor rcx, rcx
    0xf0, 0x48, 0x0f, 0xc7, 0x0e,              // lock cmpxchg16b [rsi]
    0x75, 0x2f,                                // jne give_up
    0x0f, 0x28, 0x06,                          // movaps xmm0, [rsi]
    0x0f, 0x57, 0xc9,                          // xorps xmm1, xmm1
    0x66, 0x0f, 0xfe, 0xc1,                    // paddd xmm0, xmm1
    0x31, 0xc0,                                // xor eax, eax
    0x0f, 0xa2,                                // cpuid
    0xb9, 0x00, 0x01, 0x00, 0xc0,              // mov ecx, 0xc0000100 (the base of fs)
    0x0f, 0x32,                                // rdmsr
    0x0f, 0x30,                                // wrmsr
    0x66, 0x0f, 0x7e, 0xc3,                    // movd ebx, xmm0
    0xb9, 0x40, 0x42, 0x0f, 0x00,              // mov ecx, loop_rounds
    0x31, 0xc0,                                // xor eax, eax
    0xff, 0xc0,                                // again: inc eax
    0xff, 0xc9,                                // dec ecx
    0x75, 0xfa,                                // jnz again
    0x01, 0xd8,                                // add eax, ebx
    0x66, 0xba, 0x42, 0x00,                    // mov dx, answer_port
    0xef,                                      // out dx, eax
    0xf4,                                      // give_up: hlt
};
constexpr std::uint32_t expected_answer = loop_rounds + 0x12345678;

void fill_memory(std::uint8_t* memory) {
  auto put = [memory](std::uint64_t at, std::uint64_t value) {
    std::memcpy(memory + at, &value, sizeof value);
  };
  put(pml4_at, pdpt_at | 3);  // present, writable
  put(pdpt_at, page_directory_at | 3);
  put(page_directory_at, 0 | 0x83);  // present, writable, 2 MiB
  put(data_at, data_low);
  put(data_at + 8, data_high);
  std::memcpy(memory + code_at, guest_code.data(), guest_code.size());
}

// Long mode as a 64-bit kernel has it (Intel SDM volume 3, 9.8.5): paging, PAE, SSE on, flat segments.
void fill_registers(kvm_sregs& system, kvm_regs& general) {
  kvm_segment code{};
  code.limit = 0xffffffff;
  code.selector = 8;
  code.type = 11;
  code.present = 1;
  code.s = 1;
  code.l = 1;
  code.g = 1;
  system.cs = code;
  kvm_segment data = code;
  data.selector = 16;
  data.type = 3;
  data.l = 0;
  data.db = 1;
  system.ds = system.es = system.fs = system.gs = system.ss = data;
  system.cr3 = pml4_at;
  system.cr4 = 0x20 | 0x200 | 0x400;            // PAE, OSFXSR, OSXMMEXCPT
  system.cr0 = 0x80000001 | 0x2 | 0x10 | 0x20;  // PG, PE, MP, ET, NE
  system.efer = 0x500;                          // LME, LMA
  general.rip = code_at;
  general.rflags = 2;
  general.rsp = 0x10000;
}

// CPUID of the guest: what the device offers, so that long mode and cmpxchg16b are there. The kernel's
// kvm_cpuid2 ends in a flexible array, to which C++ gives another size and so other request numbers: the same
// layout, written out.
struct CpuidTable {
  std::uint32_t count;
  std::uint32_t padding;
};
constexpr unsigned max_cpuid_entries = 256;
constexpr unsigned long get_supported_cpuid = _IOWR(KVMIO, 0x05, CpuidTable);
constexpr unsigned long set_cpuid = _IOW(KVMIO, 0x90, CpuidTable);

bool give_cpuid(int kvm, int vcpu) {
  alignas(8) std::uint8_t storage[sizeof(CpuidTable) + max_cpuid_entries * sizeof(kvm_cpuid_entry2)] = {};
  CpuidTable table{max_cpuid_entries, 0};
  std::memcpy(storage, &table, sizeof table);
  return ioctl(kvm, get_supported_cpuid, storage) == 0 && ioctl(vcpu, set_cpuid, storage) == 0;
}

// Between fork and exit: system calls only.
Report run_probe(const char* device) {
  Report report;
  auto failed = [&report] {
    report.error = errno;
    return report;
  };
  int kvm = open(device, O_RDWR | O_CLOEXEC);
  if (kvm < 0) return failed();
  report.step = Step::version;
  errno = 0;
  if (ioctl(kvm, KVM_GET_API_VERSION, 0) != KVM_API_VERSION) return failed();
  report.step = Step::make_machine;
  int machine = ioctl(kvm, KVM_CREATE_VM, 0);
  if (machine < 0) return failed();
  report.step = Step::interrupt_controller;
  if (ioctl(machine, KVM_SET_TSS_ADDR, 0xfffbd000) != 0 || ioctl(machine, KVM_CREATE_IRQCHIP, 0) != 0)
    return failed();
  report.step = Step::memory;
  void* memory = mmap(nullptr, memory_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return failed();
  fill_memory(static_cast<std::uint8_t*>(memory));
  kvm_userspace_memory_region region{0, 0, 0, memory_size, reinterpret_cast<std::uintptr_t>(memory)};
  if (ioctl(machine, KVM_SET_USER_MEMORY_REGION, &region) != 0) return failed();
  report.step = Step::make_vcpu;
  int vcpu = ioctl(machine, KVM_CREATE_VCPU, 0);
  int run_size = ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0);
  if (vcpu < 0 || run_size < static_cast<int>(sizeof(kvm_run))) return failed();
  void* mapped =
      mmap(nullptr, static_cast<std::size_t>(run_size), PROT_READ | PROT_WRITE, MAP_SHARED, vcpu, 0);
  if (mapped == MAP_FAILED) return failed();
  auto* run = static_cast<kvm_run*>(mapped);
  report.step = Step::registers;
  kvm_sregs system{};
  kvm_regs general{};
  if (!give_cpuid(kvm, vcpu) || ioctl(vcpu, KVM_GET_SREGS, &system) != 0) return failed();
  fill_registers(system, general);
  if (ioctl(vcpu, KVM_SET_SREGS, &system) != 0 || ioctl(vcpu, KVM_SET_REGS, &general) != 0) return failed();
  report.step = Step::run;
  while (ioctl(vcpu, KVM_RUN, 0) != 0)
    if (errno != EINTR && errno != EAGAIN) return failed();
  report.exit_reason = run->exit_reason;
  if (run->exit_reason != KVM_EXIT_IO) return report;
  report.step = Step::answer;
  std::uint32_t answer = 0;
  std::memcpy(&answer, reinterpret_cast<std::uint8_t*>(run) + run->io.data_offset, sizeof answer);
  if (run->io.direction != KVM_EXIT_IO_OUT || run->io.port != answer_port || run->io.size != 4 ||
      answer != expected_answer)
    return report;
  report.step = Step::done;
  return report;
}

std::string_view doing(Step step) {
  switch (step) {
    case Step::open:
      return "opening it";
    case Step::version:
      return "asking its version";
    case Step::make_machine:
      return "making a machine";
    case Step::interrupt_controller:
      return "making its interrupt controller";
    case Step::memory:
      return "giving it memory";
    case Step::make_vcpu:
      return "making a processor";
    case Step::registers:
      return "setting its registers";
    case Step::run:
      return "running it";
    case Step::answer:
      return "checking its answer";
    case Step::done:
      return "ending";
  }
  return "probing";
}

KvmVerdict judge(const Report& report) {
  using Outcome = KvmVerdict::Outcome;
  if (report.step == Step::done) return {Outcome::works, ""};
  if (report.step == Step::open) {
    if (report.error == ENOENT || report.error == ENXIO || report.error == ENODEV)
      return {Outcome::absent, "there is no such device"};
    if (report.error == EACCES || report.error == EPERM)
      return {Outcome::no_permission, "this user may not open it"};
  }
  if (report.error != 0)
    return {Outcome::broken, fmt::format("{} failed: {}", doing(report.step), std::strerror(report.error))};
  if (report.step == Step::answer) return {Outcome::broken, "a test guest computed a wrong result on it"};
  if (report.step == Step::version) return {Outcome::broken, "it is not KVM, or of an unknown version"};
  return {Outcome::broken,
          fmt::format(
              "a test guest stopped on ordinary instructions (exit reason {}), as on virtualization inside "
              "a virtual machine that is not a full one",
              report.exit_reason)};
}

}  // namespace

KvmVerdict probe_kvm(const std::filesystem::path& device, std::chrono::milliseconds limit) {
  using Outcome = KvmVerdict::Outcome;
  auto pipe = make_pipe();
  if (!pipe) return {Outcome::broken, pipe.error().message};
  std::string path = device.string();
  pid_t parent = getpid();
  pid_t child = fork();
  if (child < 0) return {Outcome::broken, fmt::format("fork failed: {}", std::strerror(errno))};
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    Report report = run_probe(path.c_str());
    (void)!write(pipe->write_end.get(), &report, sizeof report);
    _exit(0);
  }
  pipe->write_end.reset();
  pollfd entry{.fd = pipe->read_end.get(), .events = POLLIN, .revents = 0};
  auto deadline = std::chrono::steady_clock::now() + limit;
  int ready = 0;
  do {
    auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    ready = poll(&entry, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
  } while (ready < 0 && errno == EINTR);
  Report report;
  bool told = ready > 0 && read(pipe->read_end.get(), &report, sizeof report) == sizeof report;
  kill(child, SIGKILL);
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (told) return judge(report);
  if (ready == 0)
    return {Outcome::broken, fmt::format("a test guest did not end within {} s", limit.count() / 1000.0)};
  return {Outcome::broken, "the probe of it was killed"};
}

}  // namespace anchorhold::hypervisor
