// Git over HTTPS as far as it must be understood to hold it against a grant: which repository a request is
// for, what it does there, and which refs a push changes. A push is judged by its commands, which stand
// before its pack; nothing of it goes on before they were read. What cannot be read exactly is refused. Pure.
// Sources: gitprotocol-http(5), gitprotocol-pack(5) "Pushing Data To a Server", gitprotocol-common(5)
// (pkt-lines), gitprotocol-capabilities(5); the paths of large files: git-lfs docs/api.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "egress/body.h"
#include "egress/http_head.h"
#include "policy/git_grant.h"

namespace anchorhold::egress {

struct GitRequest {
  std::string repository;                                        // canonical, percent-decoded
  policy::GitOperation operation = policy::GitOperation::fetch;  // fetch, push or lfs
  bool carries_commands = false;                                 // a push whose body begins with commands
  bool gzip = false;                                             // its body is compressed
};
// permission_denied with the reason for everything that is not exactly a request of smart HTTP or of LFS.
Result<GitRequest> git_request(const RequestHead& head);
// The same, held against what is granted.
Result<GitRequest> judge_git_request(const RequestHead& head, const std::vector<policy::GitGrant>& grants);

struct GitPush {
  struct Command {
    std::string old_id, new_id, ref;
    bool creates() const { return is_zero(old_id); }
    bool removes() const { return is_zero(new_id); }
    static bool is_zero(std::string_view id) { return id.find_first_not_of('0') == std::string_view::npos; }
  };
  std::vector<Command> commands;
  std::vector<std::string> options;
  bool report_status = false;  // the client reads what became of each ref
  bool side_band = false;      // …in bands, beside which there is room for words
  bool has_options = false;
};

// Of the commands with everything before the pack, as they are after decompression. Below the window of an
// HTTP/2 stream, since nothing is passed on before they are whole. About 2000 refs.
inline constexpr std::size_t max_push_commands = 192 * 1024;

// Reads the commands of a push while its body comes, and nothing after them.
class GitPushReader {
 public:
  explicit GitPushReader(bool gzip);
  ~GitPushReader();
  GitPushReader(GitPushReader&&) noexcept;
  GitPushReader& operator=(GitPushReader&&) noexcept;

  // The next bytes of the body. True when the commands are whole; what follows is not looked at.
  Result<bool> take(std::string_view bytes);
  // The body is over. Ok when the commands are whole, or when there are none: the four bytes with which a
  // client asks beforehand whether it may push.
  Status end();
  const GitPush& push() const { return push_; }

 private:
  struct Inflater;
  enum class Section { commands, options, nothing, whole };
  Status take_plain(std::string_view bytes);
  Status take_line(std::string_view payload);
  Status take_flush();
  Status take_command(std::string_view payload);
  Status take_capabilities(std::string_view list);

  std::unique_ptr<Inflater> inflater_;  // none: the bytes are plain
  std::string line_;                    // what came of a line that is not whole
  std::size_t total_ = 0;
  Section section_ = Section::commands;
  std::size_t id_size_ = 0;
  bool has_shallow_ = false;
  GitPush push_;
};

// The commands of a push in an HTTP/1 body that stays where it is: each call gets all of the body's bytes
// there are, from its first.
class HeldPush {
 public:
  HeldPush(const BodyFraming& framing, bool gzip);
  // True when the commands are whole. An error (permission_denied, invalid_argument) when they cannot be.
  Result<bool> look(std::string_view body);
  const GitPush& push() const { return reader_.push(); }

 private:
  BodyFraming framing_;
  ChunkedReader chunks_;
  GitPushReader reader_;
  std::size_t seen_ = 0;
};

struct GitPushJudgement {
  std::string reason;                // empty: the push may go on as it is
  std::vector<std::string> of_refs;  // for each command, why not; empty: it is not the one
  bool allowed() const { return reason.empty(); }
};
GitPushJudgement judge_git_push(const GitPush& push, std::string_view repository,
                                const std::vector<policy::GitGrant>& grants);
// What a server answers that takes none of it, so that a client tells the person why, ref by ref. Empty when
// the client did not ask for such an answer.
std::string git_push_report(const GitPush& push, const GitPushJudgement& judgement, std::string_view words);
// "update refs/heads/a, create refs/tags/b, delete refs/heads/c"; cut when it is long.
std::string text_of_refs(const GitPush& push);

}  // namespace anchorhold::egress
