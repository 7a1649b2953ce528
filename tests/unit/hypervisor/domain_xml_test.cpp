// The domain XML against files that a person has read, and parsed back for what must hold in every machine.
#include "libvirt/domain_xml.h"

#include <cstdlib>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pugixml.hpp>
#include <sstream>

namespace anchorhold::hypervisor {
namespace {

using testing::HasSubstr;
using testing::Not;

MachineSpec small_spec() {
  MachineSpec spec;
  spec.id = MachineId("small");
  spec.kernel = "/images/vmlinux";
  spec.initrd = "/images/initrd";
  spec.vcpus = 1;
  spec.memory = ByteSize::mib(256);
  spec.console.path = "/logs/small";
  return spec;
}

MachineSpec full_spec() {
  MachineSpec spec = small_spec();
  spec.id = MachineId("full");
  spec.rootfs = "/images/rootfs.erofs";
  spec.kernel_words = {"quiet", "dm-mod.create=\"root,,,ro,0 8 verity 1 /dev/vda\"",
                       "anchorhold.root=/dev/dm-0"};
  spec.vcpus = 4;
  spec.memory = ByteSize::gib(2);
  spec.vsock_socket = "/run/session/vsock";
  spec.shares = {{"grant-report", "/run/session/fs0"}, {"grant-data", "/run/session/fs1"}};
  return spec;
}

XmlOptions emulated() {
  XmlOptions options;
  options.name = "anchorhold-test-1";
  options.emulator = "/usr/bin/qemu-system-x86_64";
  options.console_socket = "/run/host/c/test";
  options.tsc_khz = 2596122;
  return options;
}

XmlOptions accelerated() {
  XmlOptions options = emulated();
  options.acceleration = Acceleration::hardware;
  options.environment = {{"ANCHORHOLD_QEMU_VIEW", R"({"read":["/images/vmlinux"],"write":[]})"}};
  return options;
}

struct Case {
  const char* golden;
  MachineSpec spec;
  XmlOptions options;
};

std::vector<Case> cases() {
  MachineSpec q35 = full_spec();
  q35.type = MachineType::q35;
  return {{"microvm-small-tcg.xml", small_spec(), emulated()},
          {"microvm-full-tcg.xml", full_spec(), emulated()},
          {"microvm-full-kvm.xml", full_spec(), accelerated()},
          {"q35-full-tcg.xml", q35, emulated()},
          {"q35-full-kvm.xml", q35, accelerated()}};
}

std::string golden(const std::string& name) {
  std::ifstream file(std::string(ANCHORHOLD_SOURCE_DIR) + "/tests/unit/hypervisor/golden/" + name);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

pugi::xml_document parse(const std::string& xml) {
  pugi::xml_document document;
  EXPECT_TRUE(document.load_string(xml.c_str())) << xml;
  return document;
}

TEST(DomainXml, EqualsTheGoldenFiles) {
  for (const auto& test : cases()) {
    std::string xml = domain_xml(test.spec, test.options);
    // To renew them: ANCHORHOLD_WRITE_GOLDEN=1, then read the difference.
    if (std::getenv("ANCHORHOLD_WRITE_GOLDEN"))
      std::ofstream(std::string(ANCHORHOLD_SOURCE_DIR) + "/tests/unit/hypervisor/golden/" + test.golden)
          << xml;
    EXPECT_EQ(xml, golden(test.golden)) << test.golden;
  }
}

TEST(DomainXml, HoldsTheBoundariesInEveryMachine) {
  for (const auto& test : cases()) {
    SCOPED_TRACE(test.golden);
    auto document = parse(domain_xml(test.spec, test.options));
    auto domain = document.child("domain");
    auto devices = domain.child("devices");
    for (const char* forbidden :
         {"interface", "graphics", "video", "sound", "hostdev", "redirdev", "channel", "input", "vsock"})
      EXPECT_FALSE(devices.child(forbidden)) << forbidden;
    EXPECT_STREQ(devices.find_child_by_attribute("controller", "type", "usb").attribute("model").value(),
                 "none");
    EXPECT_STREQ(domain.child("memoryBacking").child("source").attribute("type").value(), "memfd");
    EXPECT_STREQ(domain.child("memoryBacking").child("access").attribute("mode").value(), "shared");
    EXPECT_STREQ(devices.child("memballoon").attribute("freePageReporting").value(), "on");
    for (auto disk : devices.children("disk")) EXPECT_TRUE(disk.child("readonly"));
    EXPECT_STREQ(domain.child_value("on_reboot"), "destroy");
    EXPECT_EQ(domain.child("memory").text().as_ullong() << 10, test.spec.memory.bytes);
    const auto vcpu = domain.child("vcpu");
    EXPECT_EQ(vcpu.attribute("current").as_uint(vcpu.text().as_uint()), test.spec.vcpus);
  }
}

TEST(DomainXml, AnEmulatedGuestRunsWhatOtherProcessesWriteIntoIt) {
  EXPECT_THAT(kernel_command_line(small_spec(), emulated()), HasSubstr("init_on_alloc=1"));
  EXPECT_THAT(kernel_command_line(small_spec(), accelerated()), Not(HasSubstr("init_on_alloc")));
}

TEST(DomainXml, GivesTheClockRatesToEmulatedGuestsOnly) {
  EXPECT_THAT(kernel_command_line(small_spec(), emulated()),
              HasSubstr("tsc_early_khz=2596122 tsc=reliable lapic_timer_khz=1000000"));
  EXPECT_THAT(kernel_command_line(small_spec(), accelerated()),
              Not(testing::AnyOf(HasSubstr("tsc"), HasSubstr("lapic"))));
  XmlOptions unknown = emulated();
  unknown.tsc_khz.reset();
  EXPECT_THAT(kernel_command_line(small_spec(), unknown), Not(HasSubstr("tsc")));
}

TEST(DomainXml, KeepsTextThatLooksLikeMarkupOrArguments) {
  MachineSpec spec = full_spec();
  spec.rootfs = "/a <b> & \"c\"/d'e";
  spec.vsock_socket = "/run/x,server=on";
  spec.kernel_words = {"x=\"<&>\""};
  auto document = parse(domain_xml(spec, emulated()));
  auto domain = document.child("domain");
  EXPECT_EQ(domain.child("devices").child("disk").child("source").attribute("file").value(),
            spec.rootfs.native());
  EXPECT_THAT(domain.child("os").child_value("cmdline"), testing::EndsWith("x=\"<&>\""));
  bool found = false;
  for (auto argument : domain.child("qemu:commandline").children("qemu:arg"))
    found = found ||
            std::string_view(argument.attribute("value").value()) == "socket,id=vsock,path=/run/x,,server=on";
  EXPECT_TRUE(found);
}

TEST(DomainXml, HasNoDoorWithoutAVsockSocket) {
  EXPECT_THAT(domain_xml(small_spec(), emulated()), Not(HasSubstr("vsock")));
}

TEST(DomainXml, NamesEachRunApart) {
  EXPECT_EQ(domain_name(MachineId("a"), "1f"), "anchorhold-a-1f");
  EXPECT_NE(domain_name(MachineId("a"), "1f"), domain_name(MachineId("a"), "20"));
}

}  // namespace
}  // namespace anchorhold::hypervisor
