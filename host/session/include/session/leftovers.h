// What sessions leave behind when their process is killed, and its removal.
#pragma once

#include <cstddef>
#include <filesystem>

namespace anchorhold::session {

// Removes the sockets and consoles below the runtime directory whose host is gone; gives back of how many
// guests. Every start does it too.
std::size_t remove_leftovers(const std::filesystem::path& runtime_directory);

}  // namespace anchorhold::session
