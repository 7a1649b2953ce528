// Where the door to a session is.
#pragma once

#include <filesystem>

#include "base/error.h"
#include "base/fd.h"
#include "base/id.h"

namespace anchorhold::session {

// Made, private to this person, when it is not there.
Result<std::filesystem::path> control_folder();
std::filesystem::path control_socket(const std::filesystem::path& folder, const SessionId& session);
Result<UniqueFd> connect_to_control(const std::filesystem::path& path);
// It appears at the path when connections are taken; leavings of sessions that were killed are removed.
Result<UniqueFd> listen_for_control(const std::filesystem::path& path);
// Whether the other end of the connection is a process of this person.
bool is_own_user(int connection);

}  // namespace anchorhold::session
