#include "restore.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <limits>
#include <unistd.h>

#include "content.h"
#include "hand.h"
#include "items.h"

namespace anchorhold::mounts {
namespace {

using database::Database;

// Where something waits that is in the way of what was there before; a free name.
std::string parking_place(int root, const ObjectRow& row) {
  for (int number = 1;; ++number)
    if (auto name = fmt::format("{}{}-{}", parking_prefix, row.id, number); !attributes_at(root, name))
      return name;
}

bool is_at_or_beneath(const std::string& path, const std::string& above) {
  return above.empty() || path == above ||
         (path.size() > above.size() && path.starts_with(above) && path[above.size()] == '/');
}

std::string describe(int error) {
  switch (error) {
    case ESTALE:
      return "something else is there by now";
    case ENOTEMPTY:
    case EEXIST:
      return "something is there that the session did not make";
    case EBUSY:
      return "it is being changed at this moment";
    default:
      return std::strerror(error);
  }
}

class Restore {
 public:
  // hand: none for a dry run.
  Restore(const RestoreSpec& spec, Situation& situation, Hand* hand, int kept)
      : spec_(spec), situation_(situation), hand_(hand), kept_(kept) {}

  RestoreResult run();
  // Folders whose mode and times are as they were before the epoch.
  std::unordered_set<Identity, IdentityHash> restored_folders() const;

 private:
  // What is to be done about an item, and whether it may be.
  struct Plan {
    Item* item;
    bool in_scope = false;
    bool begun = false;
    bool parked = false;
    bool times_too = false;  // of a folder
    std::string refusal;
  };

  void choose();
  void judge(Plan& plan);
  std::string judge_missing(const Plan& plan, const std::string& path);
  bool has_work(const Item& item) const;
  void list_steps();

  void place_all();
  void place(Plan& plan, const std::string& path);
  int clear_place(const Plan& plan, const std::string& path);
  void remove_surplus();
  void restore_contents();
  void restore_attributes();

  Plan* plan_of(const Identity& identity);
  void refuse(Plan& plan, const std::string& path, std::string reason);
  void did(StepKind kind, const std::string& path, const std::string& other = {});

  const RestoreSpec& spec_;
  Situation& situation_;
  Hand* const hand_;
  const int kept_;
  std::vector<Plan> plans_;
  std::unordered_map<const Item*, std::size_t> plan_by_item_;
  RestoreResult result_;
};

Restore::Plan* Restore::plan_of(const Identity& identity) {
  Item* item = situation_.item_of(identity);
  auto found = item ? plan_by_item_.find(item) : plan_by_item_.end();
  return found == plan_by_item_.end() ? nullptr : &plans_[found->second];
}

void Restore::refuse(Plan& plan, const std::string& path, std::string reason) {
  if (plan.refusal.empty()) plan.refusal = reason;
  result_.refused.push_back({path, std::move(reason)});
}

void Restore::did(StepKind kind, const std::string& path, const std::string& other) {
  result_.steps.push_back({kind, path, other});
}

bool Restore::has_work(const Item& item) const {
  return !item.surplus.empty() || !item.missing.empty() || item.content_differs || item.attributes_differ();
}

// Which items belong to the paths that were asked for: also the folders that must be there again for them,
// and what has taken their places.
void Restore::choose() {
  auto asked = [&](const Item& item) {
    if (spec_.paths.empty()) return true;
    return std::any_of(spec_.paths.begin(), spec_.paths.end(), [&](const std::string& path) {
      return std::any_of(item.wanted.begin(), item.wanted.end(),
                         [&](const std::string& each) { return is_at_or_beneath(each, path); }) ||
             std::any_of(item.names.begin(), item.names.end(),
                         [&](const Node* node) { return is_at_or_beneath(node->path(), path); });
    });
  };
  std::unordered_map<std::string, std::size_t> by_missing;
  for (auto& item : situation_.items()) {
    plan_by_item_.emplace(&item, plans_.size());
    for (const auto& path : item.missing) by_missing.emplace(path, plans_.size());
    plans_.push_back({&item, asked(item), hand_ && hand_->has_begun(item.row.identity), false, false, {}});
  }
  std::vector<std::size_t> open;
  for (std::size_t i = 0; i < plans_.size(); ++i)
    if (plans_[i].in_scope) open.push_back(i);
  auto also = [&](std::size_t index) {
    if (!std::exchange(plans_[index].in_scope, true)) open.push_back(index);
  };
  while (!open.empty()) {
    const Item& item = *plans_[open.back()].item;
    open.pop_back();
    for (const auto& path : item.missing) {
      for (auto above = folder_and_name(path).first; !above.empty(); above = folder_and_name(above).first)
        if (auto found = by_missing.find(above); found != by_missing.end()) also(found->second);
      if (Node* there = situation_.tree().find(path))
        if (Item* in_the_way = situation_.item_of(there->identity)) also(plan_by_item_.at(in_the_way));
    }
  }
}

std::string Restore::judge_missing(const Plan& plan, const std::string& path) {
  const Item& item = *plan.item;
  auto there = locate_beneath(spec_.root, path);
  if (there && !plan_of(there->identity())) {
    bool same = !item.alive() &&
                (item.row.is_folder()    ? there->is_folder()
                 : item.row.is_symlink() ? there->is_symlink() && target_of(*there) == item.row.target
                                         : false);
    if (!same && (!spec_.force || there->is_folder())) return "something else is there by now";
  }
  if (item.alive()) return {};
  if (item.row.is_file() && !kept_file(kept_, item.row)) return "its content was not kept";
  return {};
}

void Restore::judge(Plan& plan) {
  Item& item = *plan.item;
  // The granted folder itself is not made, moved or removed.
  if (item.row.path.empty() && !item.row.created) item.missing.clear();
  plan.times_too = plan.begun || situation_.times_are_as_we_left_them(item);
  if (!has_work(item) || !plan.in_scope) return;
  if (item.alive() && !plan.begun && !spec_.force) {
    // A folder keeps its foreign content; only what was moved or made stricter by somebody else is a
    // question.
    const Node& node = *item.names.front();
    if (!situation_.is_as_we_left_it(item, node)) return refuse(plan, node.path(), "it was changed since");
  }
  if (!item.alive() && !item.missing.empty() && !item.taken_away()) {
    // Somebody else has removed it since. Then there is nothing to restore, but for its content.
    if (!item.row.content_is_kept() && !item.row.is_symlink()) return item.missing.clear();
    if (!spec_.force) return refuse(plan, item.path(), "it was removed since");
  }
  for (const auto& path : item.missing)
    if (auto reason = judge_missing(plan, path); !reason.empty())
      return refuse(plan, path, std::move(reason));
}

void Restore::list_steps() {
  for (const auto& plan : plans_) {
    const Item& item = *plan.item;
    if (!plan.in_scope || !plan.refusal.empty()) continue;
    auto surplus = item.surplus;
    for (const auto& path : item.missing) {
      if (!surplus.empty()) {
        did(StepKind::move_back, path, surplus.back()->path());
        surplus.pop_back();
      } else {
        did(item.alive() ? StepKind::link : StepKind::put_back, path);
      }
    }
    for (const Node* node : surplus) did(StepKind::remove, node->path());
    if (item.content_differs)
      did(StepKind::content, item.path());
    else if (item.alive() && item.attributes_differ() &&
             (!item.row.is_folder() || item.mode_differs || item.xattrs_differ))
      did(StepKind::attributes, item.path());
  }
}

// Whatever is at a path is moved out of the way or removed, when it is ours.
int Restore::clear_place(const Plan& plan, const std::string& path) {
  auto there = locate_beneath(spec_.root, path);
  if (!there) return there.error() == ENOENT ? 0 : there.error();
  Plan* other = plan_of(there->identity());
  if (!other || !other->refusal.empty() || !other->in_scope) {
    if (!spec_.force || there->is_folder()) return EEXIST;
    return hand_->remove(path, there->identity());
  }
  if (other->item == plan.item) return 0;
  const auto& wanted = other->item->wanted;
  if (std::find(wanted.begin(), wanted.end(), path) != wanted.end()) return EEXIST;
  Node* node = situation_.tree().find(path);
  if (!node || node->identity != there->identity()) return ESTALE;
  std::string parking = parking_place(spec_.root, other->item->row);
  int error = hand_->move(path, there->identity(), parking);
  if (error != 0) return error;
  situation_.tree().move(node, parking);
  other->parked = true;
  auto& surplus = other->item->surplus;
  if (std::find(surplus.begin(), surplus.end(), node) == surplus.end()) surplus.push_back(node);
  return 0;
}

void Restore::place(Plan& plan, const std::string& path) {
  Item& item = *plan.item;
  auto there = locate_beneath(spec_.root, path);
  if (there && there->identity() == item.row.identity) return;
  if (there && !item.alive() && !plan_of(there->identity()) &&
      ((item.row.is_folder() && there->is_folder()) ||
       (item.row.is_symlink() && there->is_symlink() && target_of(*there) == item.row.target))) {
    if (int error = hand_->adopt(item.row, *there); error != 0) return refuse(plan, path, describe(error));
    item.row.identity = there->identity();
    item.names = {situation_.tree().add(path, there->identity(), there->attributes)};
    return did(StepKind::put_back, path);
  }
  if (int error = clear_place(plan, path); error != 0) return refuse(plan, path, describe(error));
  auto& tree = situation_.tree();
  if (!item.surplus.empty()) {
    Node* node = item.surplus.back();
    std::string from = node->path();
    if (int error = hand_->move(from, item.row.identity, path); error != 0)
      return refuse(plan, path, describe(error));
    tree.move(node, path);
    item.surplus.pop_back();
    return did(StepKind::move_back, path, from);
  }
  if (item.alive()) {
    std::string from = item.names.front()->path();
    if (int error = hand_->link(from, item.row.identity, path); error != 0)
      return refuse(plan, path, describe(error));
    item.names.push_back(tree.add(path, item.row.identity, item.names.front()->attributes));
    return did(StepKind::link, path);
  }
  auto made = hand_->make_again(item.row, path);
  if (!made)
    return refuse(plan, path,
                  made.error() == ENOENT ? "the folder it was in is gone" : describe(made.error()));
  item.row.identity = made->identity();
  item.names = {tree.add(path, made->identity(), made->attributes)};
  did(StepKind::put_back, path);
}

// From the top down: a folder is in its place before what was in it.
void Restore::place_all() {
  std::vector<std::pair<std::string, Plan*>> places;
  for (auto& plan : plans_)
    if (plan.in_scope && plan.refusal.empty())
      for (const auto& path : plan.item->missing) places.emplace_back(path, &plan);
  auto depth = [](const std::string& path) { return std::count(path.begin(), path.end(), '/'); };
  std::stable_sort(places.begin(), places.end(), [&](const auto& a, const auto& b) {
    auto left = depth(a.first), right = depth(b.first);
    return left != right ? left < right : a.first < b.first;
  });
  std::vector<const ObjectRow*> gone;
  for (const auto& plan : plans_)
    if (plan.in_scope && plan.refusal.empty() && !plan.item->missing.empty() && !plan.item->alive())
      gone.push_back(&plan.item->row);
  hand_->prepare_to_make_again(gone);
  for (auto& [path, plan] : places)
    if (plan->refusal.empty()) place(*plan, path);
}

// From the bottom up: what is in a folder goes before the folder.
void Restore::remove_surplus() {
  std::vector<std::pair<Node*, Plan*>> surplus;
  for (auto& plan : plans_)
    if (plan.in_scope && plan.refusal.empty())
      for (Node* node : plan.item->surplus) surplus.emplace_back(node, &plan);
  std::stable_sort(surplus.begin(), surplus.end(),
                   [](const auto& a, const auto& b) { return a.first->depth() > b.first->depth(); });
  for (auto& [node, plan] : surplus) {
    std::string path = node->path();
    int error = hand_->remove(path, plan->item->row.identity);
    if (error == 0) {
      std::erase(plan->item->names, node);
      situation_.tree().drop(node);
      did(StepKind::remove, path);
    } else if (error == ENOTEMPTY || error == EEXIST) {
      did(StepKind::left_in_place, path);
    } else if (error != ENOENT) {
      refuse(*plan, path, describe(error));
    }
  }
}

void Restore::restore_contents() {
  for (auto& plan : plans_) {
    Item& item = *plan.item;
    if (!plan.in_scope || !plan.refusal.empty() || !item.content_differs || !item.alive()) continue;
    std::string path = item.names.front()->path();
    if (int error = hand_->restore_content(path, item.row); error != 0)
      refuse(plan, path, describe(error));
    else
      did(StepKind::content, path);
  }
}

// Files first, and folders from the bottom up, so that no folder's times change after they were set.
void Restore::restore_attributes() {
  std::vector<std::pair<std::string, Plan*>> places;
  for (auto& plan : plans_) {
    const Item& item = *plan.item;
    if (plan.in_scope && plan.refusal.empty() && !item.row.created && item.alive() &&
        item.row.identity.inode != 0)
      places.emplace_back(item.names.front()->path(), &plan);
  }
  std::stable_sort(places.begin(), places.end(), [](const auto& a, const auto& b) {
    bool left = a.second->item->row.is_folder(), right = b.second->item->row.is_folder();
    return left != right ? right : a.first.size() > b.first.size();
  });
  for (auto& [path, plan] : places) {
    const ObjectRow& row = plan->item->row;
    if (!row.is_file() && !row.is_folder() && !row.is_symlink()) continue;
    auto now = locate_beneath(spec_.root, path);
    if (!now || now->identity() != row.identity) continue;
    bool mode = !row.is_symlink() && (now->attributes.mode & 07777) != (row.mode & 07777);
    bool xattrs = !row.is_symlink() && user_xattrs(*now) != row.xattrs;
    bool times =
        nanoseconds(now->attributes.modify_time) != row.modify_ns && (!row.is_folder() || plan->times_too);
    if (!mode && !xattrs && !times) continue;
    bool listed = plan->item->content_differs || (row.is_folder() && !plan->item->mode_differs && !xattrs) ||
                  !plan->item->attributes_differ() || !plan->item->missing.empty();
    if (int error = hand_->restore_attributes(path, row, !row.is_folder() || plan->times_too); error != 0)
      refuse(*plan, path, describe(error));
    else if (!listed)
      did(StepKind::attributes, path);
  }
}

RestoreResult Restore::run() {
  choose();
  for (auto& plan : plans_) judge(plan);
  if (spec_.dry_run) {
    list_steps();
    return std::move(result_);
  }
  place_all();
  remove_surplus();
  restore_contents();
  restore_attributes();
  return std::move(result_);
}

std::unordered_set<Identity, IdentityHash> Restore::restored_folders() const {
  std::unordered_set<Identity, IdentityHash> folders;
  for (const auto& plan : plans_)
    if (plan.in_scope && plan.refusal.empty() && plan.times_too && !plan.item->row.created)
      folders.insert(plan.item->row.identity);
  return folders;
}

// Other folders in which the undo itself changed names (to park something, or for a part of what the session
// did) have the times and the mode they had before it.
void restore_passed_folders(Book& book, std::int64_t epoch, int root, Hand& hand,
                            const std::unordered_set<Identity, IdentityHash>& restored) {
  auto touched = book.objects(epoch);
  if (!touched) return;
  std::unordered_map<Identity, const ObjectRow*, IdentityHash> folders;
  std::unordered_set<Identity, IdentityHash> wanted;
  for (const auto& row : *touched)
    if (!row.created && row.is_folder() && !restored.contains(row.identity)) {
      folders.emplace(row.identity, &row);
      wanted.insert(row.identity);
    }
  if (folders.empty()) return;
  TreeNow tree(root, nullptr, wanted, {});
  std::vector<std::pair<std::string, const ObjectRow*>> places;
  for (const auto& [identity, row] : folders)
    for (const Node* node : tree.of(identity)) places.emplace_back(node->path(), row);
  std::sort(places.begin(), places.end(),
            [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
  for (const auto& [path, row] : places) (void)hand.restore_attributes(path, *row, true);
}

struct Epochs {
  std::int64_t inverted = session_epoch;
  std::int64_t number = 0;  // of the hand
};

// A hand that was killed over the same work goes on with its own epoch.
Result<Epochs> choose_epochs(Book& book, bool redo) {
  Epochs chosen;
  auto epochs = ANCHORHOLD_TRY(book.epochs());
  const EpochRow* cut_short = nullptr;
  for (const auto& epoch : epochs) {
    chosen.number = std::max(chosen.number, epoch.number + 1);
    if (redo && epoch.inverts == session_epoch && epoch.number > 0 && !epoch.taken_back)
      chosen.inverted = epoch.number;
  }
  if (redo && chosen.inverted == session_epoch)
    return fail(ErrorCode::not_found, "there is no undo to take back");
  if (!epochs.empty() && epochs.back().number > 0 && epochs.back().ended_ns <= 0) cut_short = &epochs.back();
  if (cut_short && cut_short->inverts == chosen.inverted) chosen.number = cut_short->number;
  return chosen;
}

}  // namespace

Result<RestoreResult> restore(const RestoreSpec& spec) {
  auto mode = spec.dry_run ? Database::Mode::read_only : Database::Mode::read_write;
  auto book = ANCHORHOLD_TRY(Book::open(spec.ledger, mode));
  auto epochs = ANCHORHOLD_TRY(choose_epochs(book, spec.redo));
  std::unique_ptr<Hand> hand;
  if (!spec.dry_run) {
    std::string paths;
    for (const auto& path : spec.paths) paths += path + '\0';
    ANCHORHOLD_CHECK(book.begin_epoch(epochs.number, epochs.inverted, paths));
    // First of all it finishes what a keeper that was killed left half done.
    constexpr auto unlimited = std::numeric_limits<std::uint64_t>::max() / 2;
    auto ledger = ANCHORHOLD_TRY(Ledger::open(
        spec.ledger, {.quota_bytes = unlimited, .max_objects = unlimited}, spec.root, epochs.number));
    hand = std::make_unique<Hand>(spec.root, spec.ledger / "kept", std::move(ledger), book);
  }
  UniqueFd kept(open((spec.ledger / "kept").c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!kept) return fail_errno(errno, "the kept files");
  auto situation = ANCHORHOLD_TRY(
      Situation::find(book, epochs.inverted, spec.root, kept.get(), spec.only_file,
                      [&](const Located& folder) { return hand && hand->open_up(folder) == 0; }));
  Restore work(spec, situation, hand.get(), kept.get());
  auto result = work.run();
  if (spec.dry_run) return result;
  restore_passed_folders(book, epochs.number, spec.root, *hand, work.restored_folders());
  UniqueFd readable(openat(spec.root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (readable) (void)syncfs(readable.get());
  hand.reset();
  if (spec.redo && spec.paths.empty() && result.refused.empty())
    ANCHORHOLD_CHECK(book.set_taken_back(epochs.inverted));
  ANCHORHOLD_CHECK(book.forget_epoch_without_objects(epochs.number));
  if (!result.steps.empty()) result.epoch = epochs.number;
  return result;
}

}  // namespace anchorhold::mounts
