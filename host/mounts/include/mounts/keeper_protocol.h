// What a client (the reader, or the host's own tools) asks of the keeper of a grant, and what it answers. The
// keeper is the only process that may change anything beneath the grant; it believes nothing a client says.
//
// Transport: one SOCK_SEQPACKET socket per client. One message is one RequestHeader, followed by exactly
// payload_size bytes; descriptors travel with it (SCM_RIGHTS). Each request gets one Reply, with the
// request's id and at most one descriptor. Several requests may be in flight on a socket; replies come in any
// order. Both ends run on one machine from one build, so integers are the machine's own. A message that
// breaks these rules ends that client's connection, with a report; a request that is well formed but refused
// gets an errno.
//
// How objects are named. An entry is (descriptor of its folder, name). An object is one descriptor of it:
// O_PATH, opened by the client, or one the keeper handed out. The keeper finds out for itself where the
// descriptor is beneath the grant and opens it again; a descriptor of something that is not there (never was,
// was moved away, was removed) gets ESTALE. Names are 1 to 255 bytes, no '/', no NUL, not "." and not "..":
// anything else is EINVAL. A hidden name is EACCES, unless the session made both what has it and the folder
// it is in: look_up_own says whether that is so (ENOENT: it is not, or there is nothing).
//
// Data goes between a client and the file without the keeper. Whoever writes says so beforehand (account), in
// pieces of any size; EDQUOT means that the grant's quota is used up.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace anchorhold::mounts {

inline constexpr std::uint32_t keeper_magic = 0x41484b31;  // "AHK1"
inline constexpr std::size_t max_name_bytes = 255;
inline constexpr std::size_t max_symlink_bytes = 4095;
inline constexpr std::size_t max_payload_bytes = 65536;  // a user xattr's value (XATTR_SIZE_MAX)
inline constexpr std::size_t max_request_descriptors = 2;

enum class Verb : std::uint16_t {
  // verb                  descriptors                     uses                                   replies with
  open_for_write = 1,    // file                            flags                                  descriptor
  create = 2,            // folder                          name, flags, mode                      descriptor
  make_directory = 3,    // folder                          name, mode                             –
  make_symlink = 4,      // folder                          name, payload: target                  –
  link = 5,              // file, new folder                name                                   –
  unlink = 6,            // folder                          name                                   –
  remove_directory = 7,  // folder                          name                                   –
  rename = 8,            // old folder, new folder          name, new_name, flags                  –
  set_attributes = 9,    // object                          valid, mode, times                     –
  truncate = 10,         // file (O_PATH or handed out)     size                                   –
  allocate = 11,         // file (handed out, writable)     flags, offset, size                    –
  set_xattr = 12,        // object                          name, flags, payload: value            –
  remove_xattr = 13,     // object                          name                                   –
  temporary_file = 14,   // folder                          flags, mode                            ENOTSUP: no
                         // name, so no place in the ledger
  statistics = 15,       // –                               –                                      numbers
  account = 16,          // –                               size: bytes about to be written        –
  look_up_own = 17,      // folder                          name that is hidden                    –
};
std::string_view to_string(Verb verb);

// flags of open_for_write and create. Without read_too the descriptor is write-only. The keeper opens files
// only to hand them out: it keeps no descriptor of its own.
namespace open_flag {
inline constexpr std::uint32_t read_too = 1;
inline constexpr std::uint32_t append = 2;
inline constexpr std::uint32_t truncate = 4;
inline constexpr std::uint32_t exclusive = 8;  // create only; without it an existing regular file is opened
inline constexpr std::uint32_t all = 15;
}  // namespace open_flag
namespace rename_flag {
inline constexpr std::uint32_t no_replace = 1;  // RENAME_NOREPLACE
inline constexpr std::uint32_t exchange = 2;    // RENAME_EXCHANGE
inline constexpr std::uint32_t all = 3;
}  // namespace rename_flag
// Those of fallocate(2), the same values.
namespace allocate_flag {
inline constexpr std::uint32_t keep_size = 0x01;
inline constexpr std::uint32_t punch_hole = 0x02;
inline constexpr std::uint32_t collapse_range = 0x08;
inline constexpr std::uint32_t zero_range = 0x10;
inline constexpr std::uint32_t insert_range = 0x20;
inline constexpr std::uint32_t all = 0x3b;
}  // namespace allocate_flag
namespace xattr_flag {
inline constexpr std::uint32_t create = 1;   // XATTR_CREATE
inline constexpr std::uint32_t replace = 2;  // XATTR_REPLACE
inline constexpr std::uint32_t all = 3;
}  // namespace xattr_flag
// Which attributes set_attributes sets. There is no owner: host files never change theirs.
namespace valid_flag {
inline constexpr std::uint32_t mode = 1;
inline constexpr std::uint32_t access_time = 2;
inline constexpr std::uint32_t modify_time = 4;
inline constexpr std::uint32_t access_time_now = 8;   // instead of access_time
inline constexpr std::uint32_t modify_time_now = 16;  // instead of modify_time
inline constexpr std::uint32_t all = 31;
}  // namespace valid_flag

struct Timestamp {
  std::int64_t seconds;
  std::uint32_t nanoseconds;
  std::uint32_t reserved;  // 0
  bool operator==(const Timestamp&) const = default;
};

// In the place of an errno, to a hurried request that would wait for a person's answer or for the copy of a
// large file. Whoever can wait asks again.
inline constexpr std::int32_t would_wait = EINPROGRESS;

// What a field a verb does not use holds is 0 (checked).
struct RequestHeader {
  std::uint32_t magic;
  Verb verb;
  std::uint16_t descriptors;  // how many travel with the message
  std::uint64_t id;           // the client's; comes back in the reply
  std::uint32_t flags;
  std::uint32_t mode;  // permission bits; setuid and setgid are stripped, or refused where they are asked for
  std::uint32_t valid;
  std::uint32_t payload_size;
  std::uint64_t offset;
  std::uint64_t size;
  Timestamp access_time;
  Timestamp modify_time;
  std::uint16_t name_size;
  std::uint16_t new_name_size;
  std::uint16_t processor;  // that the asking thread runs on, and one; 0: it does not say. A hint.
  std::uint16_t hurried;    // 1: rather than wait for long the keeper does nothing and replies would_wait
  char name[256];           // NUL behind name_size
  char new_name[256];
};

// Since the session of the grant began; bytes_kept and quota are of the ledger.
struct KeeperNumbers {
  std::uint64_t requests;
  std::uint64_t refused;
  std::uint64_t created;
  std::uint64_t removed;
  std::uint64_t objects_kept;
  std::uint64_t bytes_kept;
  std::uint64_t quota_bytes;
  std::uint64_t bytes_written;  // accounted for
};

struct Reply {
  std::uint32_t magic;
  std::int32_t error;  // 0, or an errno value
  std::uint64_t id;
  std::uint32_t descriptors;  // 0 or 1
  std::uint32_t reserved;
  KeeperNumbers numbers;
};

static_assert(sizeof(RequestHeader) == 600 && sizeof(Reply) == 88,
              "no padding: what is sent is what was set");

// A request taken apart. The views point into the message.
struct Request {
  RequestHeader header;
  std::string_view name;
  std::string_view new_name;
  std::string_view payload;
};

// Everything that can be checked without looking at the file system: sizes, the verb, its flags, unused
// fields, the number of descriptors, NULs. Pure; the names' meaning is not judged here. The error says what
// was wrong.
Result<Request> parse_request(std::span<const std::byte> message, std::size_t descriptors);

// Fills in name and sizes. Names that do not fit are cut off at 256 bytes and then refused by the keeper.
RequestHeader make_request(Verb verb, std::string_view name = {}, std::string_view new_name = {});

// 1 to 255 bytes, no '/', no NUL, neither "." nor "..".
bool is_valid_name(std::string_view name);

}  // namespace anchorhold::mounts
