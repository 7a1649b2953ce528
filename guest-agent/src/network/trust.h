// The certificate authority of the session in the guest's trust stores, and what commands are told so that
// they find it and the proxy.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "base/error.h"

namespace anchorhold::guest {

inline constexpr std::size_t max_authority_bytes = 1 << 20;

// `bundle` without what an earlier call added, with the authority added. Pure.
std::string bundle_with(std::string_view bundle, std::string_view authority_pem);

// What was given last is trusted, and nothing that was given before: the session's authority, then those that
// the person trusts besides the system's. In the bundle of the system, in OpenSSL's default place, and in a
// keystore for Java. `root`: of the system.
Status trust_authority(std::string_view authority_pem, const std::filesystem::path& root = "/");

// For every command that does not say otherwise.
std::map<std::string, std::string> network_environment(std::uint16_t proxy_port);

}  // namespace anchorhold::guest
