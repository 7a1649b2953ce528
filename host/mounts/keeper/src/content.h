// Copying what is to be kept.
#pragma once

#include <string>

#include "object.h"

namespace anchorhold::mounts {

// A clone where the file system can make one (FICLONE), else a copy that keeps holes. Durable when it
// returns: written under a temporary name in the folder, synced, given its name, and the folder synced.
// Starts again when the file changed meanwhile. True: cloned. With Durable::later it is for the caller to
// sync.
enum class Durable { now, later };
Checked<bool> keep_copy(const Located& object, int kept_folder, const std::string& name,
                        Durable durable = Durable::now);

// The same into an open, empty file; not synced. 0 or an errno.
int copy_content(int from, int to);

// What the content takes on the disk: a sparse file is not what its size says.
std::uint64_t bytes_of(const Attributes& attributes);
// Nobody has written to the file in between.
bool unchanged(const Attributes& before, const Attributes& now);

// BLAKE2b-256 of a regular file, 32 bytes.
Checked<std::string> content_hash(const Located& file);

// What temporary names begin with; a crash may leave one behind.
inline constexpr std::string_view unfinished_prefix = "unfinished.";

// All user xattrs as one text: for each, two bytes size of the name, four bytes size of the value (the
// machine's order), name, value. Empty when there are none or the file system has none.
std::string user_xattrs(const Located& object);
// Makes them exactly those of the text. 0 or an errno; one that is cut short is EINVAL and changes nothing
// more.
int set_user_xattrs(const Located& object, std::string_view xattrs);

}  // namespace anchorhold::mounts
