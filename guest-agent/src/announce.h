// What programs of the host changed in a share, made known to this kernel: what it remembers of the paths is
// asked for anew, and whoever watches them (inotify(7)) is told. The share's reader answers requests under
// the announcing groups (base/guest_numbers.h) as if the change were made now; it touches nothing.
#pragma once

#include <google/protobuf/repeated_field.h>
#include <string>

#include "base/error.h"
#include "proto/guest.pb.h"

namespace anchorhold::guest {

namespace wire = ::anchorhold::guest::v1;

// `root` is a folder descriptor of the whole share, which allows changes. Blocks as long as the share's host
// does. What cannot be announced (gone again, say) is left out: the host tells how it is now.
void announce(int root, const google::protobuf::RepeatedPtrField<wire::HostChange>& changes);

// A path relative to the share without empty parts, "." or "..".
Status check_change_path(const std::string& path, bool may_be_empty);

}  // namespace anchorhold::guest
