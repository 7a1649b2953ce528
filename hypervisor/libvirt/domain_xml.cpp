#include "libvirt/domain_xml.h"

#include <fmt/format.h>
#include <pugixml.hpp>
#include <sstream>

namespace anchorhold::hypervisor {
namespace {

// Memory for translated code, per machine; QEMU's default is up to 1 GiB.
constexpr unsigned translation_cache_mib = 256;
// Entropy for the guest: enough to boot, too little to keep the host busy.
constexpr unsigned random_bytes_per_second = 65536;
// QEMU's emulated local APIC counts nanoseconds (hw/intc/apic.c). Guest kernels of ours take the rate from
// the command line instead of measuring it, which a processor that is not run for 100 ms gets wrong
// (images/kernel/lapic_timer.c); others ignore the word.
constexpr unsigned emulated_lapic_timer_khz = 1'000'000;
// On the first PCI bus, away from the numbers that libvirt gives out from below.
constexpr const char* vsock_pci_address = "bus=pcie.0,addr=0x1e";

class DomainWriter {
 public:
  DomainWriter(const MachineSpec& spec, const XmlOptions& options)
      : spec_(spec),
        options_(options),
        hardware_(options.acceleration == Acceleration::hardware),
        microvm_(spec.type != MachineType::q35) {}

  std::string write() {
    domain_ = document_.append_child("domain");
    domain_.append_attribute("type") = hardware_ ? "kvm" : "qemu";
    domain_.append_attribute("xmlns:qemu") = "http://libvirt.org/schemas/domain/qemu/1.0";
    text(domain_, "name", options_.name);
    write_resources();
    write_boot();
    write_platform();
    write_devices();
    write_arguments();
    std::ostringstream out;
    document_.save(out, "  ", pugi::format_indent | pugi::format_no_declaration);
    return out.str();
  }

 private:
  static pugi::xml_node text(pugi::xml_node parent, const char* name, const std::string& value) {
    auto node = parent.append_child(name);
    node.text() = value.c_str();
    return node;
  }
  static pugi::xml_node element(pugi::xml_node parent, const char* name,
                                std::initializer_list<std::pair<const char*, std::string>> attributes) {
    auto node = parent.append_child(name);
    for (const auto& [key, value] : attributes) node.append_attribute(key) = value.c_str();
    return node;
  }
  // A microvm has no PCI: each device says that it is a virtio-mmio one, and the guest finds it through ACPI.
  void place(pugi::xml_node device) {
    if (microvm_) element(device, "address", {{"type", "virtio-mmio"}});
  }

  void write_resources() {
    auto memory = text(domain_, "memory", std::to_string(spec_.memory.bytes >> 10));
    memory.append_attribute("unit") = "KiB";
    // A file in memory, shared: the vsock device and the file servers map the guest's memory.
    auto backing = domain_.append_child("memoryBacking");
    backing.append_child(
        "nosharepages");  // no merging of pages between guests: it can be measured from inside
    element(backing, "source", {{"type", "memfd"}});
    element(backing, "access", {{"mode", "shared"}});
    // QEMU emulates a machine that can only ever have one processor without barriers between that and the
    // programs that serve its devices: a kick or an interrupt may then be lost.
    const bool alone = options_.acceleration == Acceleration::emulation && spec_.vcpus == 1;
    auto vcpus = text(domain_, "vcpu", std::to_string(alone ? 2 : spec_.vcpus));
    vcpus.append_attribute("placement") = "static";
    if (alone) vcpus.append_attribute("current") = "1";
  }

  void write_boot() {
    auto os = domain_.append_child("os");
    auto type = text(os, "type", "hvm");
    type.append_attribute("arch") = "x86_64";
    type.append_attribute("machine") = microvm_ ? "microvm" : "q35";
    text(os, "kernel", spec_.kernel.native());
    if (!spec_.initrd.empty()) text(os, "initrd", spec_.initrd.native());
    text(os, "cmdline", kernel_command_line(spec_, options_));
  }

  void write_platform() {
    auto features = domain_.append_child("features");
    features.append_child("acpi");
    features.append_child("apic");
    if (!microvm_) {
      element(features, "vmport", {{"state", "off"}});
      element(features, "smm", {{"state", "off"}});
    }
    if (!hardware_) {
      auto cache = text(features.append_child("tcg"), "tb-cache", std::to_string(translation_cache_mib));
      cache.append_attribute("unit") = "MiB";
    }
    if (hardware_) {
      element(domain_, "cpu", {{"mode", "host-passthrough"}, {"check", "none"}, {"migratable", "off"}});
    } else {
      auto cpu = element(domain_, "cpu", {{"mode", "maximum"}, {"check", "none"}});
      // Translated 256-bit vectors cost more than they bring: numpy and its like choose the 128-bit ones
      // without them.
      for (const char* feature : {"avx", "avx2"})
        element(cpu, "feature", {{"policy", "disable"}, {"name", feature}});
    }
    element(domain_, "clock", {{"offset", "utc"}});
    // A guest that reboots or panics has ended; a fresh one takes its place.
    text(domain_, "on_poweroff", "destroy");
    text(domain_, "on_reboot", "destroy");
    text(domain_, "on_crash", "destroy");
  }

  void write_devices() {
    auto devices = domain_.append_child("devices");
    text(devices, "emulator", options_.emulator.native());
    element(devices, "controller", {{"type", "usb"}, {"model", "none"}});
    if (!spec_.rootfs.empty()) write_disk(devices);
    for (const auto& share : spec_.shares) write_share(devices, share);
    auto serial = element(devices, "serial", {{"type", "unix"}});
    element(serial, "source", {{"mode", "connect"}, {"path", options_.console_socket.native()}});
    element(serial, "target", {{"type", "isa-serial"}, {"port", "0"}});
    auto balloon = element(devices, "memballoon",
                           {{"model", "virtio"}, {"autodeflate", "on"}, {"freePageReporting", "on"}});
    element(balloon, "stats", {{"period", "2"}});
    place(balloon);
    auto random = element(devices, "rng", {{"model", "virtio"}});
    element(random, "rate", {{"bytes", std::to_string(random_bytes_per_second)}, {"period", "1000"}});
    text(random, "backend", "/dev/urandom").append_attribute("model") = "random";
    place(random);
  }

  void write_disk(pugi::xml_node devices) {
    auto disk = element(devices, "disk", {{"type", "file"}, {"device", "disk"}});
    // Through the host's page cache, which all guests of one image share. Nothing is ever written, so nothing
    // is flushed.
    element(disk, "driver", {{"name", "qemu"}, {"type", "raw"}, {"cache", "unsafe"}, {"io", "threads"}});
    element(disk, "source", {{"file", spec_.rootfs.native()}});
    element(disk, "target", {{"dev", "vda"}, {"bus", "virtio"}});
    disk.append_child("readonly");
    place(disk);
  }

  void write_share(pugi::xml_node devices, const ShareSpec& share) {
    auto filesystem = element(devices, "filesystem", {{"type", "mount"}});
    element(filesystem, "driver", {{"type", "virtiofs"}, {"queue", "128"}});
    element(filesystem, "source", {{"socket", share.socket_path.native()}});
    element(filesystem, "target", {{"dir", share.tag}});
    place(filesystem);
  }

  // What libvirt has no words for.
  void write_arguments() {
    std::vector<std::string> arguments;
    // Without a clock chip the guest's kernel polls for one for seconds. libvirt merges this with its own
    // -machine.
    if (microvm_) arguments.insert(arguments.end(), {"-machine", "rtc=on"});
    if (!spec_.vsock_socket.empty()) {
      std::string path;
      for (char c : spec_.vsock_socket.native()) path += c == ',' ? std::string(",,") : std::string(1, c);
      arguments.insert(arguments.end(), {"-chardev", "socket,id=vsock,path=" + path});
      arguments.insert(
          arguments.end(),
          {"-device", microvm_ ? "vhost-user-vsock-device,chardev=vsock"
                               : fmt::format("vhost-user-vsock-pci,chardev=vsock,{}", vsock_pci_address)});
    }
    if (arguments.empty() && options_.environment.empty()) return;
    auto command_line = domain_.append_child("qemu:commandline");
    for (const auto& argument : arguments) element(command_line, "qemu:arg", {{"value", argument}});
    for (const auto& [name, value] : options_.environment)
      element(command_line, "qemu:env", {{"name", name}, {"value", value}});
  }

  const MachineSpec& spec_;
  const XmlOptions& options_;
  const bool hardware_;
  const bool microvm_;
  pugi::xml_document document_;
  pugi::xml_node domain_;
};

}  // namespace

std::string domain_name(const MachineId& id, std::string_view run) {
  return fmt::format("anchorhold-{}-{}", id.value(), run);
}

std::string kernel_command_line(const MachineSpec& spec, const XmlOptions& options) {
  // Warnings and worse only: each byte on the serial port leaves the guest, which costs a boot up to a second
  // where that is slow. A panic resets the machine at once, which ends it.
  std::string line = "console=ttyS0 loglevel=5 panic=-1";
  if (options.acceleration == Acceleration::emulation) {
    if (options.tsc_khz) line += fmt::format(" tsc_early_khz={} tsc=reliable", *options.tsc_khz);
    line += fmt::format(" lapic_timer_khz={}", emulated_lapic_timer_khz);
    // What was translated of a page is thrown away when the guest writes there, not when another process
    // does. Without this, a page that held code went on as that code after a reader had filled it with a
    // program.
    line += " init_on_alloc=1";
  }
  for (const auto& word : spec.kernel_words) line += " " + word;
  return line;
}

std::string domain_xml(const MachineSpec& spec, const XmlOptions& options) {
  return DomainWriter(spec, options).write();
}

}  // namespace anchorhold::hypervisor
