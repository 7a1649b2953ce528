// Everything beneath a granted folder, one entry after another.
#pragma once

#include <functional>
#include <string>

#include "object.h"

namespace anchorhold::mounts {

// Called for each entry but the folder itself, a folder before what is in it: its path from the grant, and
// the open folder it is in and its name there. False: what is in this folder is left out.
using TreeVisitor = std::function<bool(const std::string& path, const Attributes& attributes, int folder,
                                       const std::string& name)>;

// Follows no symlink and crosses no mount; what cannot be read is left out. Depth-first; one descriptor at a
// time, however deep it is.
// unreadable: asked about a folder that this person may not read; true when that has changed.
void walk_tree(int root, const TreeVisitor& visitor,
               const std::function<bool(const Located&)>& unreadable = {});

}  // namespace anchorhold::mounts
