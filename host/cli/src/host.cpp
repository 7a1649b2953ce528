#include "host.h"

#include <algorithm>
#include <fmt/format.h>

#include "base/files.h"
#include "base/paths.h"
#include "hypervisor/libvirt.h"
#include "images/store.h"
#include "policy/person_rules.h"
#include "secret_input.h"
#include "session/credentials.h"

namespace anchorhold::cli {
namespace {

// What a person waits for, in their words.
std::string_view waiting_for(session::Stage stage) {
  switch (stage) {
    case session::Stage::image:
      return "checking the guest image";
    case session::Stage::devices:
      return "starting the sealed devices";
    case session::Stage::machine:
      return "starting the virtual machine";
    case session::Stage::boot:
      return "waiting for the guest";
    case session::Stage::hello:
    case session::Stage::clock:
    case session::Stage::mounts:
      return "preparing the guest";
  }
  return "starting";
}

// What a person should know and need not hear at every start; with --verbose always.
void tell_once(Console& console, const std::string& marker, const std::string& text) {
  auto state = state_directory();
  if (!state) return;
  auto told = read_file(*state / marker, 4096);
  if (told && *told == text) return console.detail(text);
  console.note(text);
  if (auto status = write_file_atomic(*state / marker, text); !status) console.detail(status.error().message);
}

// How this computer reaches the network.
Status find_network(session::EgressSpec& spec) {
  spec.resolver = ANCHORHOLD_TRY(egress::ResolverSpec::of_host());
  spec.proxies = ANCHORHOLD_TRY(egress::UpstreamProxies::from_environment());
  ANCHORHOLD_TRY(spec.trust.pem());
  return {};
}

}  // namespace

namespace {

// Whatever the vault must ask a person is asked now, and not while the guest waits.
Status have_credentials(const GuestArguments& arguments, session::EgressSpec& spec) {
  vault::VaultSpec vault;
  vault.ask_passphrase = ask_passphrase;
  spec.credentials = std::make_shared<session::Credentials>(std::move(vault), arguments.credentials);
  auto policy = spec.policy;
  ANCHORHOLD_TRY(spec.credentials->grant(policy));
  if (arguments.credentials)
    for (const auto& name : *arguments.credentials)
      if (!policy.credentials.contains(name))
        return fail(ErrorCode::not_found, fmt::format("this session cannot have the credential {}", name),
                    fmt::format("keep it (anchorhold credential add {}) and name it in a rule of config.toml "
                                "(credential = \"{}\"), or say where: --credential {}=HOST",
                                name, name, name));
  return spec.credentials->unlock();
}

}  // namespace

std::string describe(const mounts::Grant& grant) {
  return fmt::format("{} {} → {}", mounts::to_string(grant.mode), one_line(grant.host_path.string(), 1000),
                     grant.guest_path());
}

std::vector<std::string> describe(const std::vector<mounts::Grant>& grants) {
  std::vector<std::string> lines;
  for (const auto& grant : grants) lines.push_back(describe(grant));
  return lines;
}

Result<std::vector<mounts::Grant>> Host::resolve_grants(const std::vector<GrantArgument>& arguments) {
  std::vector<mounts::Grant> grants;
  if (arguments.empty()) return grants;
  auto rules = ANCHORHOLD_TRY(mounts::GrantRules::current());
  for (const auto& argument : arguments)
    grants.push_back(ANCHORHOLD_TRY(mounts::resolve_grant(argument.path, argument.mode, grants, rules)));
  return grants;
}

Result<std::unique_ptr<Host>> Host::open(Console& console) {
  auto folder = ANCHORHOLD_TRY(events::default_log_folder());
  auto log = ANCHORHOLD_TRY(events::EventLog::open({.folder = std::move(folder)}));
  return std::unique_ptr<Host>(new Host(console, std::move(log)));
}

session::GuestSpec Host::guest_spec(const GuestArguments& arguments) {
  session::GuestSpec spec;
  spec.image = arguments.image;
  spec.cpus = arguments.cpus > 0 ? arguments.cpus : session::default_cpus();
  spec.memory = arguments.memory;
  if (spec.memory.bytes == 0)
    spec.memory = session::default_memory(read_file("/proc/meminfo", 1 << 20).value_or(""));
  return spec;
}

Result<std::optional<session::EgressSpec>> Host::egress_spec(const GuestArguments& arguments) const {
  session::EgressSpec spec;
  spec.rules = ANCHORHOLD_TRY(config_directory());
  auto read = policy::load_person_rules(spec.rules);
  if (!read) {
    Error fault = std::move(read).error();
    if (fault.hint.empty()) fault.hint = fmt::format("mend the file, it is in {}", spec.rules.string());
    return fail(std::move(fault));
  }
  auto person = std::move(*read);
  auto& rules = spec.policy.rules;
  policy::apply(person, rules);
  rules.session = arguments.network;
  rules.answers = arguments.answers;
  spec.policy.person = asker_.can_ask() ? policy::Person::present : policy::Person::absent;
  spec.policy.ask_timeout = person.configured.ask_timeout;
  auto opens = [&](policy::EgressAction action) {
    return action == policy::EgressAction::allow ||
           (action == policy::EgressAction::ask && spec.policy.person == policy::Person::present);
  };
  auto some_open = [&](const std::vector<policy::EgressRule>& list) {
    return std::any_of(list.begin(), list.end(),
                       [&](const policy::EgressRule& rule) { return opens(rule.action); });
  };
  const bool open = opens(rules.unnamed) || some_open(rules.user) || some_open(rules.session) ||
                    some_open(rules.answers) || some_open(rules.kept);
  spec.trust.extra_ca = std::move(person.configured.extra_ca);
  auto found = find_network(spec);
  // The rules may open something later; only a computer that has no network goes without.
  if (!found && !open) return std::optional<session::EgressSpec>();
  if (!found) return fail(std::move(found).error());
  ANCHORHOLD_CHECK(have_credentials(arguments, spec));
  return std::optional(std::move(spec));
}

mounts::ShareLimits Host::share_limits(const GuestArguments& arguments) {
  mounts::ShareLimits limits;
  limits.bulk_changes = arguments.bulk_limit.value_or(0);
  limits.no_bulk_guard = arguments.bulk_limit == 0u;
  limits.bytes_written = arguments.write_limit.bytes;
  limits.files = arguments.file_limit;
  limits.refuse_escaping_symlinks = arguments.refuse_escaping_symlinks;
  return limits;
}

session::SessionParts Host::session_parts(const GuestArguments& arguments) {
  hypervisor::LibvirtOptions options;
  options.uri = arguments.hypervisor_uri;
  if (arguments.emulate) options.acceleration = hypervisor::AccelerationChoice::emulation;
  session::SessionParts parts{
      .events = events(),
      .clock = clock_,
      .make_hypervisor = [options] { return hypervisor::make_libvirt_hypervisor(options); },
      .verify_image = [](const std::string& name) -> Result<images::VerifiedImage> {
        return images::VerifiedImage::verify(ANCHORHOLD_TRY(images::ImageStore::open_default()), name);
      }};
  parts.asker = &asker_;
  parts.notice = [this](const std::string& text) { console_.note(text); };
  parts.progress = [this](session::Stage stage) {
    console_.progress(waiting_for(stage));
    console_.detail(fmt::format("stage {}: {}", session::to_string(stage), waiting_for(stage)));
  };
  parts.hypervisor_ready = [this](const hypervisor::Capabilities& capabilities) {
    console_.detail("hypervisor: " + capabilities.backend);
    if (capabilities.acceleration == hypervisor::Acceleration::emulation &&
        !capabilities.why_no_hardware.empty())
      tell_once(console_, "emulation-told",
                "note: guests are emulated here, which is slower: " + capabilities.why_no_hardware);
  };
  return parts;
}

}  // namespace anchorhold::cli
