// Rows of what the session makes, moves and removes of its own, and which old objects have no name any more,
// before they are in the journal. A commit for each of them would cost more than the change itself, and
// nothing is lost that was there before if the machine dies over it. So they are written to a file of the
// ledger, `recent`, one after another: that outlives the death of any process, as a commit does. They become
// rows in numbers, in one transaction, before anything of something pre-existing is recorded and within half
// a second.
//
// The file is a batch of entries; each has the batch's number and a check sum, and the first that has not
// ends it. The journal knows the number of the last batch it took (table `settled`), so that none counts
// twice.
//
// The name that is about to be made is announced here, too: it has no identity yet that a row could name.
// When the process is killed between making it and its row, whoever opens the ledger next finds by it what
// would else be nobody's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "object.h"

namespace anchorhold::mounts {

struct RecentEntry {
  enum class Kind : std::uint32_t {
    announced = 1,  // identity and path of the folder, and the name
    not_made = 2,   // what was announced last
    created = 3,    // the row of an object
    removed = 4,    // the row of this id goes
    renamed = 5,    // the path of the row of this id
    gone = 6,       // the last name of what has the row of this id
  };
  Kind kind = Kind::not_made;
  std::int64_t epoch = 0;
  std::int64_t time_ns = 0;
  std::int64_t id = 0;
  Identity identity;
  std::uint32_t mode = 0;
  std::uint32_t links = 0;
  std::uint64_t size = 0;
  Timestamp access_time{}, modify_time{};
  std::string path;
  std::string name;
};

// Of an object that the session made; id, epoch and time are for the caller to fill in.
RecentEntry created_entry(const Located& object);

// What a ledger's folder has in its file.
struct RecentBatch {
  std::uint64_t number = 0;
  std::vector<RecentEntry> entries;

  // What was announced and neither made nor given up.
  const RecentEntry* announced() const;
};

// Of what is in the file; what is damaged ends the batch.
RecentBatch parse_recent(std::string_view bytes);
// An empty batch when there is no file.
Result<RecentBatch> read_recent(const std::filesystem::path& folder);

// The file, as its one writer has it.
class Recent {
 public:
  // What it holds is in `batch`, and stays there until begin().
  static Result<Recent> open(const std::filesystem::path& folder, RecentBatch& batch);

  // 0 or an errno, and then the entry is not in the file.
  int append(const RecentEntry& entry);
  // A new, empty batch.
  int begin(std::uint64_t number);
  std::uint64_t batch() const { return batch_; }

 private:
  explicit Recent(UniqueFd file) : file_(std::move(file)) {}

  UniqueFd file_;
  std::uint64_t batch_ = 0;
  std::int64_t end_ = 0;
  std::string buffer_;
};

}  // namespace anchorhold::mounts
