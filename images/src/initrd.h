// The initial RAM disk: an uncompressed cpio archive with the guest's agent as /init and nothing else but
// what the kernel needs to start it. Changing the agent rebuilds this and nothing more.
#pragma once

#include <string>
#include <string_view>

namespace anchorhold::images {

// The same program always gives the same bytes. Format "newc": Linux,
// Documentation/driver-api/early-userspace/buffer-format.rst.
std::string make_initrd(std::string_view agent);

}  // namespace anchorhold::images
