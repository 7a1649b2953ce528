// What was there before: the ledger of one grant and session. It knows which objects the session made, and it
// keeps the old content and attributes of everything else before the first change. It is a folder of our
// state directory:
//   journal.db   SQLite: what was recorded, made, moved and removed (schema in ledger_schema.h)
//   recent       what the journal does not have yet of the session's own objects (ledger_recent.h)
//   kept/        one file per kept content, named by its number and, for a person, the path it had
//
// Order of things: content is in kept/ and on the disk, and its row is committed, before the caller makes its
// change. A content that is kept by moving the file itself (nothing is copied) is on the disk when the
// removal is, since the move is the removal. What is made is announced before, and is in `recent` right
// after. Rows of such moves, and of what the session makes, reach the disk within a second; the moved file's
// name in kept/ says where it belongs if the machine dies before.
//
// The old place of everything is known too: which names were taken from an object and which it was given, and
// how folders were moved, so that paths in the journal are those from before the session. At the end it is
// noted what every object that was touched has become (size, times, and a hash where that is cheap): what
// differs from it later was changed by somebody else.
//
// How content is kept: a removed file with one name is moved into kept/; what will be written to is cloned
// where the file system can (FICLONE), else copied. A file with a second name elsewhere is never moved, since
// it could still be changed by that name.
//
// Safe from any thread. Errors are errno values for the client; what is behind one is reported by the keeper.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "database/database.h"
#include "decide.h"
#include "mounts/review.h"
#include "object.h"

namespace anchorhold::mounts {

enum class HowKept { not_kept = 0, cloned = 1, moved = 2, copied = 3, in_row = 4 };

struct LedgerLimits {
  std::uint64_t quota_bytes = default_ledger_quota;
  std::uint64_t max_objects = 2'000'000;
};

struct RecentEntry;

// The session itself; undo and redo have numbers of their own (ledger_schema.h).
inline constexpr std::int64_t session_epoch = 0;

// What an object was when it was last in our hands.
struct Remains {
  Identity identity;
  std::string path;
  std::uint32_t mode = 0;
  std::uint64_t size = 0;
  std::int64_t modify_ns = 0;
  std::int64_t change_ns = 0;
  std::string hash;  // empty: none
};

class Ledger {
 public:
  // Makes or continues the ledger in the folder. Finishes what a crash left half done. root: O_PATH of the
  // granted folder; duplicated.
  static Result<std::unique_ptr<Ledger>> open(const std::filesystem::path& folder, const LedgerLimits& limits,
                                              int root, std::int64_t epoch = session_epoch);
  // Notes what was touched and ends the epoch.
  ~Ledger();

  // What is known of an object with this identity, reached by this name (folder and name empty when by
  // descriptor).
  Subject subject(const Located& object) const;
  Subject subject_at(const Located& folder, std::string_view name, const Located& object) const;

  // Attributes, and the target of a symlink, of something pre-existing. Once per object; then it costs a
  // look-up.
  int record(const Located& object);
  // The same and its content, for a file that is about to be written to. Not for long: would_wait
  // (keeper_protocol.h) in the place of copying a large one, or of waiting for another thread that does.
  enum class Wait { yes, not_for_long };
  int keep_content(const Located& object, Wait wait = Wait::yes);
  // The same for many files that are about to be written to one after another: two syncs for all of them.
  // What was copied, as it was then. The others are kept, or it is said why not, by keep_content; and what is
  // not as it was copied any more by keep_content_again.
  struct Place {
    std::string path;
    Identity identity;
  };
  std::unordered_map<Identity, Attributes, IdentityHash> keep_contents(const std::vector<Place>& places);
  int keep_content_again(const Located& object);
  // Everything, for something that is about to lose its name. `removed`: the object itself may be moved into
  // kept/, and moved_away then says that its name is already gone. `replaced`: the name stays in place until
  // something is renamed over it; a file gets a second name in kept/, and take_back undoes that when the
  // rename did not happen.
  enum class Loss { removed, replaced };
  struct Kept {
    int error = 0;
    bool moved_away = false;
  };
  Kept keep_all(const Located& folder, const std::string& name, const Located& object, Loss loss);
  void take_back(const Located& object);
  // Removes the name of something that need not be kept. It is looked at once more where nobody else can
  // reach it: what the host put under the name in the last moment goes back. 0 or an errno.
  int remove_name(const Located& folder, const std::string& name, const Located& object);

  // Something is about to be made under this name, where there is nothing. Should this process be killed
  // before add_created, the ledger knows nevertheless that the session made it. One at a time: the next takes
  // the place of the last. 0 or an errno.
  int announce(const Located& folder, std::string_view name);
  // It was not made.
  void forget_announced();
  // The session made it.
  int add_created(const Located& object);
  // One more name for something pre-existing, before it is given: this name is the session's own, the object
  // is not. 0 or an errno.
  int add_link(const Located& folder, std::string_view name, const Located& object);
  // It was not given.
  void forget_link(const Located& folder, std::string_view name);
  // The name is gone. object: as it was before.
  void removed(const Located& folder, std::string_view name, const Located& object);
  // Before a rename of something pre-existing; the number is 0 when there is nothing to note.
  Checked<std::int64_t> note_rename(const Located& object, const std::string& new_path, bool exchange);
  void forget_rename(std::int64_t number);
  // After a rename of anything.
  void renamed(const Located& folder, std::string_view name, const Located& object, const Located& new_folder,
               std::string_view new_name, const std::string& new_path);
  // The session's own object took the place of something pre-existing.
  void stand_in(const Located& object);

  // Has no name any more, but was this session's or was written to by it.
  bool is_removed_object(const Identity& identity) const;

  // Recorded or made by this epoch, also before this process.
  bool knows(const Identity& identity) const;

  std::uint64_t objects_kept() const;
  std::uint64_t bytes_kept() const;
  std::uint64_t quota_bytes() const { return limits_.quota_bytes; }

 private:
  struct Known {
    std::int64_t id = 0;
    bool created = false;
    bool stands_for_pre_existing = false;
    bool content_kept = false;
    mutable bool touched = false;  // by this process
  };
  struct LinkName {
    Identity folder;
    std::string name;
    bool operator==(const LinkName&) const = default;
  };
  struct LinkNameHash {
    std::size_t operator()(const LinkName& link) const {
      return IdentityHash()(link.folder) ^ std::hash<std::string>()(link.name);
    }
  };
  struct GainedName {
    Identity object;
    std::int64_t number = 0;  // of its row
    bool linked = false;      // it is one more name; else the old one was renamed to it
  };
  struct Statements;

  Ledger(database::Database database, UniqueFd kept, UniqueFd journal, UniqueFd root,
         const LedgerLimits& limits);
  Status load(bool was_cut_short);
  Status load_gained();
  // Where this was, or its folder would be, before the epoch began.
  std::string path_before(const std::string& path) const;
  int note_lost(const Known& known, const Located& folder, const std::string& name, const Located& object);
  int note_name(const Located& object, std::int64_t id, const std::string& path);
  void note_remains();
  struct Noting;
  bool note_one(Noting& noting, const std::string& path, const Identity& identity);
  void note_by_walking(Noting& noting);
  Status finish_announced();
  Status adopt_announced(const RecentEntry& announced);
  // There is something to settle or to sync.
  void set_dirty();
  Status finish_unfinished();
  Status finish_kept_file(const std::string& name);
  Checked<Known*> known_or_recorded(const Located& object);
  int reserve(std::uint64_t bytes);
  void release(std::uint64_t bytes);
  int set_kept(Known& known, HowKept how, const std::string& name, std::uint64_t bytes);
  int clear_kept(Known& known);
  int sync_journal();
  int copy_and_set_kept(const Located& object);
  struct KeptCopy;
  int set_all_kept(const std::vector<KeptCopy>& copies);
  struct Noted {
    Known* known = nullptr;
    bool done = false;  // nothing more is to be kept
  };
  Checked<Noted> record_loss(const Located& folder, const std::string& name, const Located& object,
                             bool may_move);
  // After record_loss.
  Kept move_or_link(const Located& folder, const std::string& name, const Located& object, Known& known,
                    Loss loss);
  int check_moved(const std::string& kept_name, const Located& folder, const std::string& name,
                  const Located& object);
  void remember_removed(const Identity& identity);
  bool is_session_name(const Located& folder, std::string_view name, const Located& object) const;
  void run_sync_thread();

  LedgerLimits limits_;
  database::Database database_;
  UniqueFd kept_;
  UniqueFd journal_;  // the write-ahead log, for syncing it
  UniqueFd root_;
  std::unique_ptr<Statements> statements_;

  // Guards everything below and the database. Copies of content are made without it.
  mutable std::mutex mutex_;
  std::unordered_map<Identity, Known, IdentityHash> known_;
  std::unordered_map<LinkName, GainedName, LinkNameHash> link_names_;
  // Pre-existing folders that are not where they were, and where that was.
  std::unordered_map<Identity, std::string, IdentityHash> moved_folders_;
  // Names that are about to be given by the latest rename.
  std::vector<std::pair<LinkName, GainedName>> names_to_come_;
  std::int64_t renames_noted_ = 0;
  std::unordered_set<Identity, IdentityHash> being_kept_;
  std::condition_variable keeping_changed_;
  std::unordered_set<Identity, IdentityHash> removed_objects_;
  std::deque<Identity> removed_order_;
  std::uint64_t objects_kept_ = 0;
  std::uint64_t bytes_kept_ = 0;

  bool dirty_ = false;
  bool stopping_ = false;
  std::condition_variable sync_wanted_;
  std::thread sync_thread_;
};

// "000000000000002a.m.docs%2freport.txt": unique by the number; "m" the object itself was moved here, "c" a
// copy or clone; the path's end is for people and for putting things back when the journal lost its last
// moments. At most 255 bytes.
std::string kept_file_name(std::int64_t id, bool moved, std::string_view path);

}  // namespace anchorhold::mounts
