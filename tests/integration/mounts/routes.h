// Every route by which something that was there before could vanish, tried as root in the guest, and what
// each mode says to it. The scripts run in Python.
#pragma once

#include <vector>

namespace anchorhold::mounts {

struct Route {
  const char* name;
  // Lines of Python in a folder with victim, other, old/inner, empty/, hard (a second name of victim2) and
  // to_victim (a symlink), and remote.odt.nextcloud (a cloud's placeholder), all of them old, and with own
  // and own_folder/, which the session made. What fails raises OSError. Under ro own and own_folder/ are old,
  // too.
  const char* script;
  // 0, or the errno in this mode.
  int rw;
  int no_delete;
  // The file system may not know this at all (EOPNOTSUPP, EINVAL): then nothing may have changed either.
  bool may_be_unknown = false;
};

const std::vector<Route>& routes();

// What the scripts use.
extern const char* const route_prelude;

}  // namespace anchorhold::mounts
