// The files of the vault as anybody may have changed them: the list, the header, and entries as they are
// behind the encryption.
#include <cstdint>
#include <cstdlib>

#include "vault/credential.h"
#include "vault/vault_file.h"

using namespace anchorhold;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (auto header = vault::parse_vault_header(bytes)) {
    if (header->memory > 1u << 30 || header->operations > 16) std::abort();
    if (vault::open_vault(bytes, Secret::of(std::string(32, 'k')))) std::abort();
  }
  (void)vault::parse_entries(bytes);
  if (auto list = vault::parse_catalogue(bytes, "file")) {
    auto again = vault::parse_catalogue(vault::encode_catalogue(*list), "file");
    if (!again || *again != *list) std::abort();
  }
  return 0;
}
