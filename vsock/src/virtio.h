// Numbers of virtio 1.2 that the transport needs, with their sections.
#pragma once

#include <cstdint>

namespace anchorhold::vsock::virtio {

// 2.7.5: descriptor flags.
inline constexpr std::uint16_t descriptor_next = 1;
inline constexpr std::uint16_t descriptor_write = 2;
inline constexpr std::uint16_t descriptor_indirect = 4;
// 2.7.6: flags of the available ring.
inline constexpr std::uint16_t available_no_interrupt = 1;

// 6: reserved feature bits.
inline constexpr std::uint64_t feature_indirect_descriptors = 1ull << 28;
inline constexpr std::uint64_t feature_event_index = 1ull << 29;
inline constexpr std::uint64_t feature_version_1 = 1ull << 32;
// What our rings can do, whatever the device.
inline constexpr std::uint64_t feature_transport =
    feature_version_1 | feature_indirect_descriptors | feature_event_index;

}  // namespace anchorhold::vsock::virtio
