// The ledgers of a session, for `changes` and `undo`.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "console.h"
#include "mounts/review.h"
#include "session/session_store.h"

namespace anchorhold::cli {

struct Ledgers {
  session::SessionRecord session;
  std::vector<mounts::LedgerPlace> places;
};
// Errors: not_found when there is no such session.
Result<Ledgers> find_ledgers(const std::string& id);

// What was asked for, by grant: for each place the paths from its granted folder. When nothing was asked for,
// every place with no paths; a place that none of the paths is in is left out. invalid_argument for a path
// that is in none.
struct Chosen {
  const mounts::LedgerPlace* place;
  std::vector<std::string> paths;
};
Result<std::vector<Chosen>> choose_ledgers(const Ledgers& ledgers, const std::vector<std::string>& paths);

// A path of any bytes: as `key`, and as `key_hex` where it is not UTF-8.
void put_path(Json& object, const char* key, const std::string& path);
// For people, on one line; the granted folder itself is ".".
std::string shown_path(const std::string& path);

}  // namespace anchorhold::cli
