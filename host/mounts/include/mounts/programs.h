// How the programs of grants are started: the numbers of their descriptors and their arguments.
// mounts/share.h and mounts/spares.h start them; the programs' mains read this.
//
//   anchorhold-fsd --name NAME --mode ro|rw|rw-no-delete [--only-file NAME] [--hidden PATTERN]… [--watch]
//   [--allow-weak] anchorhold-keeper --name NAME --mode rw|rw-no-delete --ledger FOLDER --clients N
//   [--only-file NAME]
//                     [--hidden PATTERN]… [--quota BYTES] [--bulk-changes N] [--bulk-seconds N]
//                     [--answer-seconds N] [--max-bytes N] [--max-files N] [--refuse-escaping-symlinks]
//                     [--allow-weak]
//
//   anchorhold-spares --count N [--allow-weak]
//
// Without --hidden the standard list holds. With --only-file the grant is a single file: the root descriptor
// is the folder it is in, and nothing but that one name exists in it. Each program seals itself, sends
// ReportKind::ready, and serves until its other ends are closed. Exit status: 0 the end was wanted, 1 it
// could not begin (a fatal report says why), 2 it ended because of what a client sent.
#pragma once

#include <cstddef>
#include <string_view>

namespace anchorhold::mounts {

namespace reader_fd {
inline constexpr int listener =
    3;  // vhost-user: a bound and listening unix stream socket; one connection is served
inline constexpr int root = 4;     // O_PATH|O_DIRECTORY of the granted folder
inline constexpr int reports = 5;  // SOCK_SEQPACKET, see mounts/report.h
inline constexpr int keeper = 6;   // SOCK_SEQPACKET, see mounts/keeper_protocol.h; not there under ro
// Both with --watch only.
inline constexpr int watch = 7;   // SOCK_SEQPACKET, see mounts/watch_protocol.h
inline constexpr int events = 8;  // inotify(7), to be read
}  // namespace reader_fd

namespace keeper_fd {
inline constexpr int root = 3;
inline constexpr int reports = 4;
inline constexpr int first_client = 5;  // then one after another
}  // namespace keeper_fd

// anchorhold-ledger review|undo --ledger FOLDER [--only-file NAME] [--path PATH]…
//   review: [--diff]   undo: [--redo] [--force] [--dry-run]
// Started by mounts/review.h, for as long as one of these takes.
namespace ledger_fd {
inline constexpr int root = 3;    // O_PATH of the granted folder; of a single file: the folder it is in
inline constexpr int output = 4;  // a pipe, see review_wire.h
}  // namespace ledger_fd

namespace spares_fd {
inline constexpr int reports = 3;
// SOCK_SEQPACKET. A question is one std::uint32_t, the number of a spare, with a descriptor: a connection to
// the reader that takes its place. The answer is `taken` when it did, else the reason as text.
inline constexpr int control = 4;
inline constexpr std::string_view taken = "taken";
inline constexpr int first_listener = 5;  // then one after another; each serves one connection
inline constexpr unsigned most_spares = 16;
inline constexpr std::size_t max_answer_bytes = 1024;
}  // namespace spares_fd

}  // namespace anchorhold::mounts
