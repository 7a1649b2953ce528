// Files whose content is not on this computer: a cloud's client has left a placeholder and would fetch the
// rest when somebody asked for it in its own way. Writing to one, or removing it, would be taken for a change
// of the real file in the cloud, and the ledger could keep no more than the placeholder.
//
// What can be recognised on Linux:
//   Nextcloud, ownCloud    "report.odt.nextcloud", ".owncloud", ".opencloud": one byte, the name tells
//   Nextcloud (xattr)      user.nextcloud.hydrate_exec
//   ownCloud, OpenCloud    user.openvfs.state "dehydrated" or "hydrating", or that state in user.openvfs.data
//   iCloud                 ".report.pages.icloud": a small property list
//   OneDrive and others    the Windows attributes OFFLINE, RECALL_ON_OPEN, RECALL_ON_DATA_ACCESS, where the
//                          file system tells them: NTFS (system.ntfs_attrib), SMB (user.cifs.dosattrib)
// Folders that are mounted by a client (FUSE: rclone, onedriver, Google Drive) fetch what is read like any
// network file system; nothing there is a placeholder.
#pragma once

#include <string_view>

#include "object.h"

namespace anchorhold::mounts {

// By its name and size alone. Whose it is; empty: none.
std::string_view placeholder_by_name(std::string_view name, std::uint64_t size);
// By what `attribute` says of it; the value of an extended attribute.
std::string_view placeholder_by_attribute(std::string_view attribute, std::string_view value);
// Of a file found beneath the grant.
std::string_view placeholder_of(const Located& file);

}  // namespace anchorhold::mounts
