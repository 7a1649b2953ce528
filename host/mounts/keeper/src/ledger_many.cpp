// Keeping the content of many files at once: for an undo, which knows beforehand what it will write to.
#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

#include "content.h"
#include "ledger.h"
#include "ledger_statements.h"

namespace anchorhold::mounts {

struct Ledger::KeptCopy {
  Identity identity;
  std::string name;
  std::uint64_t bytes = 0;
  HowKept how = HowKept::not_kept;
};

std::unordered_map<Identity, Attributes, IdentityHash> Ledger::keep_contents(
    const std::vector<Place>& places) {
  std::unordered_map<Identity, Attributes, IdentityHash> kept;
  std::vector<KeptCopy> copies;
  for (const auto& place : places) {
    auto object = locate_beneath(root_.get(), place.path);
    if (!object || object->identity() != place.identity || !object->is_file()) continue;
    KeptCopy copy{.identity = place.identity, .name = {}, .bytes = bytes_of(object->attributes)};
    {
      std::lock_guard lock(mutex_);
      auto known = known_or_recorded(*object);
      if (!known || (*known)->created || (*known)->content_kept || reserve(copy.bytes) != 0) continue;
      copy.name = kept_file_name((*known)->id, false, place.path);
    }
    auto cloned = keep_copy(*object, kept_.get(), copy.name, Durable::later);
    if (cloned) {
      copy.how = *cloned ? HowKept::cloned : HowKept::copied;
      kept.emplace(copy.identity, object->attributes);
      copies.push_back(std::move(copy));
    } else {
      std::lock_guard lock(mutex_);
      release(copy.bytes);
    }
  }
  if (copies.empty() || set_all_kept(copies) == 0) return kept;
  std::lock_guard lock(mutex_);
  for (const auto& copy : copies) {
    known_.at(copy.identity).content_kept = false;
    release(copy.bytes);
    unlinkat(kept_.get(), copy.name.c_str(), 0);
  }
  return {};
}

// The copies and their names come to the disk, and then their rows, in one transaction.
int Ledger::set_all_kept(const std::vector<KeptCopy>& copies) {
  UniqueFd folder(openat(kept_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder || syncfs(folder.get()) != 0) return errno;
  std::lock_guard lock(mutex_);
  auto transaction = database::Transaction::begin(database_);
  if (!transaction) return journal_failed(transaction.error());
  for (const auto& copy : copies)
    if (int error = set_kept(known_.at(copy.identity), copy.how, copy.name, copy.bytes); error != 0)
      return error;
  if (auto committed = transaction->commit(); !committed) return journal_failed(committed.error());
  return sync_journal();
}

int Ledger::keep_content_again(const Located& object) {
  std::string name;
  {
    std::lock_guard lock(mutex_);
    auto known = known_.find(object.identity());
    if (known == known_.end()) return ENOENT;
    auto row = statements_->kept_of(known->second.id);
    if (!row) return journal_failed(row.error());
    name = row->name;
  }
  // It takes the place of the one before when it is on the disk.
  auto copied = keep_copy(object, kept_.get(), name);
  return copied ? 0 : copied.error();
}

}  // namespace anchorhold::mounts
