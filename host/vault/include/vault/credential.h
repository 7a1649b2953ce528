// What is known of a credential without its secret, and the file that lists them. Nothing here is secret.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace anchorhold::vault {

enum class Kind {
  bearer,     // Authorization: Bearer SECRET
  basic,      // Authorization: Basic base64(user:SECRET)
  header,     // a header of its own: SECRET
  aws_sigv4,  // requests are signed; the secret is the secret access key, on a second line a session token
  git,        // Git over HTTPS: as basic, with the user that code hosts take for a token
};
std::string_view to_string(Kind kind);
std::optional<Kind> parse_kind(std::string_view text);

enum class Store { secret_service, file };
std::string_view to_string(Store store);
std::optional<Store> parse_store(std::string_view text);

struct Credential {
  std::string name;
  Kind kind = Kind::bearer;
  std::string user;     // basic, git: the user name; aws_sigv4: the access key id
  std::string header;   // header: its name
  std::string region;   // aws_sigv4: the only one it signs for; empty: any
  std::string service;  // likewise
  std::vector<std::string>
      variables;  // in which the guest gets its token; empty: those its hosts are known by
  Store store = Store::file;
  std::int64_t created = 0;  // seconds since 1970
  std::int64_t tested = 0;   // the last time; 0: never
  int tested_status = 0;     // the HTTP status of that

  bool operator==(const Credential&) const = default;
};

// Fills in what the kind implies (the user of git), and refuses what it does not have or needs:
// invalid_argument, for the person who typed it.
Status complete(Credential& credential);
// Whether this can be a secret of the kind: one line of visible ASCII (two for aws_sigv4); not empty, not
// longer than a header may be.
Status check_secret(Kind kind, std::string_view secret);

inline constexpr std::size_t max_credentials = 1000;
inline constexpr std::size_t max_catalogue_bytes = 1 << 20;
inline constexpr std::size_t max_secret_bytes = 16 << 10;

// The list as a text with a checksum in its first line, and back. `where` is what messages call it; a text
// that is not exactly what was written is data_loss.
std::string encode_catalogue(const std::vector<Credential>& credentials);
Result<std::vector<Credential>> parse_catalogue(std::string_view text, std::string_view where);

}  // namespace anchorhold::vault
