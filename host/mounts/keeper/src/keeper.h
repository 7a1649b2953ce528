// The keeper of one grant: judges and carries out requests. Everything in a request is hostile; the
// descriptors too.
#pragma once

#include <atomic>
#include <memory>
#include <shared_mutex>
#include <string>
#include <vector>

#include "base/fd.h"
#include "bulk_guard.h"
#include "ledger.h"
#include "mounts/keeper_protocol.h"
#include "mounts/mode.h"
#include "mounts/report.h"
#include "tree.h"

namespace anchorhold::mounts {

struct Answer {
  Reply reply{};
  UniqueFd descriptor;
};

// What one session may use of the grant, counted from the keeper's start, and what it is asked about.
struct KeeperLimits {
  BulkLimits bulk;
  std::uint64_t bytes_written = 256ull << 30;  // all that is written, also over the same place again
  std::uint64_t files = 1'000'000;             // names made and not removed again
  bool refuse_escaping_symlinks = false;       // else they are reported
};

// Safe from any thread; the server calls it from several.
class Keeper {
 public:
  Keeper(Mode mode, Tree tree, std::unique_ptr<Ledger> ledger, Reporter& reporter,
         const KeeperLimits& limits = {})
      : mode_(mode),
        tree_(std::move(tree)),
        ledger_(std::move(ledger)),
        reporter_(reporter),
        limits_(limits),
        guard_(limits.bulk, reporter) {}

  Answer handle(const Request& request, const std::vector<UniqueFd>& descriptors);
  // A client's message was not one of the protocol.
  void report_malformed(const Error& error);

 private:
  struct Done {
    KeeperNumbers numbers{};
    UniqueFd descriptor;
  };
  using Outcome = Checked<Done>;

  Outcome dispatch(const Request& request, const std::vector<UniqueFd>& descriptors);
  // dispatch, and as often again as a person allows it after the bulk guard stopped it.
  Outcome dispatch_guarded(const Request& request, const std::vector<UniqueFd>& descriptors);
  // keeper_files.cpp
  Outcome open_for_write(const Request& request, int file);
  Outcome open_located(const Located& file, std::uint32_t flags);
  Outcome truncate(const Request& request, int file);
  Outcome allocate(const Request& request, int file);
  Outcome set_attributes(const Request& request, int object);
  Outcome set_xattr(const Request& request, int object);
  Outcome remove_xattr(const Request& request, int object);
  // keeper_names.cpp
  Outcome create(const Request& request, int folder);
  Outcome make_directory(const Request& request, int folder);
  Outcome make_symlink(const Request& request, int folder);
  Outcome link(const Request& request, int file, int folder);
  Outcome remove(const Request& request, int folder, bool directory);
  Outcome rename(const Request& request, int old_folder, int new_folder);
  Outcome look_up_own(const Request& request, int folder);
  Outcome statistics();
  Outcome account(std::uint64_t bytes);

  struct Rename;
  Checked<Rename> plan_rename(const Request& request, int old_folder, int new_folder);
  int check_rename(const Request& request, const Rename& rename, const Facts& facts);
  int keep_for_rename(const Request& request, const Rename& rename, const Decision& decision);

  // The object a client's descriptor stands for; a file without a name is accepted when this session had it.
  Checked<Located> locate(const Request& request, int passed);
  Checked<Located> locate_changeable(const Request& request, int passed);
  Checked<Located> locate_folder(const Request& request, int passed);
  // A folder, and a name in it that may be used and is free or not.
  Checked<Located> folder_for(const Request& request, int passed, std::string_view name);
  Checked<Located> with_name(const Request& request, Located folder, std::string_view name);
  // What was just made is recorded as the session's own, or removed again. file: of a file, so that it is
  // known by its descriptor and not by a name that the host may have given to something else.
  Outcome finish_made(const Located& folder, const std::string& name, const UniqueFd& file);
  // The session made it, so that it holds none of the person's secrets.
  bool is_own(const Located& object) const;
  // Everything from the first hidden name of the path on, and the folder that name is in.
  bool is_own_from_hidden(const Located& object) const;
  // 0, or why nothing may get this name: EACCES for a hidden one that is not the session's own.
  int check_hidden(const Located& folder, std::string_view name) const;
  // What has or gets a hidden name must be the session's own: of a link or a rename.
  int check_hidden_objects(const Request& request, const Located& object, const Located* other,
                           bool hidden_name);
  int check_escape(const Request& request, const std::string& path, std::string_view target);
  int check_file_quota(const Request& request, const std::string& path);
  void release_file();
  // Nothing replaces or removes what is only a placeholder of a file in a cloud.
  int check_placeholder(const Request& request, const Located& object, const Subject& subject);
  // 0, EACCES, or ask_first.
  int check_bulk(const Request& request, Operation operation, const Located& object, const Facts& facts);
  // Decides, reports a refusal, and keeps what the decision says.
  Checked<Decision> decide_for(const Request& request, Operation operation, const Located& object,
                               const Facts& facts);
  int keep(const Request& request, const Decision& decision, const Located& object);
  // Both for one object: 0 when the change may be made and what it would lose is kept.
  int decide_and_keep(const Request& request, Operation operation, const Located& object);
  // Before names in it change, a folder's own times are kept.
  int record_folder(const Request& request, const Located& folder);
  // Before something is made under the name; not_made takes it back and passes the error on.
  int prepare_making(const Request& request, const Located& folder, const std::string& name);
  int not_made(int error);
  int report_unkept(const Request& request, const std::string& path, int error);
  void report(ReportKind kind, const Request& request, const std::string& path, int error,
              std::string_view reason);

  const Mode mode_;
  const Tree tree_;
  const std::unique_ptr<Ledger> ledger_;
  Reporter& reporter_;
  const KeeperLimits limits_;
  BulkGuard guard_;
  // Names are changed by one request at a time, so that what was decided about a name still holds when it is
  // changed.
  std::shared_mutex names_;
  std::atomic<std::uint64_t> requests_{0}, refused_{0}, created_{0}, removed_{0}, bytes_written_{0};
  std::atomic<std::uint64_t> files_{0};  // made and not removed again
};

}  // namespace anchorhold::mounts
