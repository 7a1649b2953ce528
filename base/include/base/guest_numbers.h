// Numbers that programs of the host and of the guest have to agree on, where no protocol carries them.
#pragma once

#include <cstdint>

namespace anchorhold {

// File requests under these groups announce what a program of the host did: the guest's agent repeats the
// change so that the guest's kernel learns of it and tells its inotify watchers, and the reader answers as if
// it were happening now, without touching anything. Whoever else in the guest uses them confuses that guest
// alone. The second one is for changes to folders. Under the third one a name is looked up as always, but its
// attributes are not to be remembered: a kernel throws an answer away when another one overtook it, and what
// it believes then must not stay.
inline constexpr std::uint32_t announcing_group = 0x41484e44;
inline constexpr std::uint32_t announcing_folder_group = announcing_group + 1;
inline constexpr std::uint32_t asking_anew_group = announcing_group + 2;

}  // namespace anchorhold
