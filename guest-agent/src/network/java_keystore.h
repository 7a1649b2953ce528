// The certificates of a bundle as Java reads them: a keystore of the kind "JKS", which every Java can read
// whatever its default is (sun.security.provider.JavaKeyStore: magic 0xfeedfeed, version 2, entries, digest).
// Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace anchorhold::guest {

// The DER form of every certificate in a PEM text; what is none is left out.
std::vector<std::string> certificates_in(std::string_view pem);

// Its password is Java's customary "changeit".
std::string java_keystore(const std::vector<std::string>& certificates);

}  // namespace anchorhold::guest
