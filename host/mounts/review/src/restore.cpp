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
#include "plan.h"

namespace anchorhold::mounts {
namespace {

using database::Database;

// Where something waits that is in the way of what was there before; a free name.
std::string parking_place(int root, const ObjectRow& row) {
  for (int number = 1;; ++number)
    if (auto name = fmt::format("{}{}-{}", parking_prefix, row.id, number); !attributes_at(root, name))
      return name;
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
  Restore(const RestoreSpec& spec, Situation& situation, Plans& plans, Hand& hand)
      : spec_(spec), situation_(situation), plans_(plans), hand_(hand) {}

  std::vector<Step> run();
  // Folders whose mode and times are as they were before the epoch.
  std::unordered_set<Identity, IdentityHash> restored_folders() const;

 private:
  void place_all();
  void place(Plan& plan, const std::string& path);
  int clear_place(const Plan& plan, const std::string& path);
  void remove_surplus();
  void restore_contents();
  void restore_attributes();

  void did(StepKind kind, const std::string& path, const std::string& other = {}) {
    steps_.push_back({kind, path, other});
  }
  // As a person knows it: what was put out of the way is told by the name it had.
  std::string shown(const std::string& path) const;

  const RestoreSpec& spec_;
  Situation& situation_;
  Plans& plans_;
  Hand& hand_;
  std::unordered_map<std::string, std::string> parked_;  // by where it waits
  std::vector<Step> steps_;
};

std::string Restore::shown(const std::string& path) const {
  auto slash = path.find('/');
  auto parked = parked_.find(path.substr(0, slash));
  if (parked == parked_.end()) return path;
  return slash == std::string::npos ? parked->second : parked->second + path.substr(slash);
}

// Whatever is at a path is moved out of the way or removed, when it is ours.
int Restore::clear_place(const Plan& plan, const std::string& path) {
  auto there = locate_beneath(spec_.root, path);
  if (!there) return there.error() == ENOENT ? 0 : there.error();
  Plan* other = plans_.of(there->identity());
  if (!other || !other->is_open()) {
    if (!spec_.force || there->is_folder()) return EEXIST;
    return hand_.remove(path, there->identity());
  }
  if (other->item == plan.item) return 0;
  const auto& wanted = other->item->wanted;
  if (std::find(wanted.begin(), wanted.end(), path) != wanted.end()) return EEXIST;
  Node* node = situation_.tree().find(path);
  if (!node || node->identity != there->identity()) return ESTALE;
  std::string parking = parking_place(spec_.root, other->item->row);
  int error = hand_.move(path, there->identity(), parking);
  if (error != 0) return error;
  situation_.tree().move(node, parking);
  parked_.emplace(parking, shown(path));
  auto& surplus = other->item->surplus;
  if (std::find(surplus.begin(), surplus.end(), node) == surplus.end()) surplus.push_back(node);
  return 0;
}

void Restore::place(Plan& plan, const std::string& path) {
  Item& item = *plan.item;
  auto there = locate_beneath(spec_.root, path);
  if (there && there->identity() == item.row.identity) return;
  if (there && !item.alive() && !plans_.of(there->identity()) &&
      ((item.row.is_folder() && there->is_folder()) ||
       (item.row.is_symlink() && there->is_symlink() && target_of(*there) == item.row.target))) {
    if (int error = hand_.adopt(item.row, *there); error != 0)
      return plans_.refuse(plan, path, describe(error));
    item.row.identity = there->identity();
    item.names = {situation_.tree().add(path, there->identity(), there->attributes)};
    return did(StepKind::put_back, path);
  }
  if (int error = clear_place(plan, path); error != 0) return plans_.refuse(plan, path, describe(error));
  auto& tree = situation_.tree();
  if (!item.surplus.empty()) {
    Node* node = item.surplus.back();
    std::string from = node->path();
    if (int error = hand_.move(from, item.row.identity, path); error != 0)
      return plans_.refuse(plan, path, describe(error));
    tree.move(node, path);
    item.surplus.pop_back();
    return did(StepKind::move_back, path, shown(from));
  }
  if (item.alive()) {
    std::string from = item.names.front()->path();
    if (int error = hand_.link(from, item.row.identity, path); error != 0)
      return plans_.refuse(plan, path, describe(error));
    item.names.push_back(tree.add(path, item.row.identity, item.names.front()->attributes));
    return did(StepKind::link, path);
  }
  auto made = hand_.make_again(item.row, path);
  if (!made)
    return plans_.refuse(plan, path,
                         made.error() == ENOENT ? "the folder it was in is gone" : describe(made.error()));
  item.row.identity = made->identity();
  item.names = {tree.add(path, made->identity(), made->attributes)};
  did(StepKind::put_back, path);
}

// From the top down: a folder is in its place before what was in it.
void Restore::place_all() {
  std::vector<std::pair<std::string, Plan*>> places;
  for (auto& plan : plans_.all())
    if (plan.is_open())
      for (const auto& path : plan.item->missing) places.emplace_back(path, &plan);
  auto depth = [](const std::string& path) { return std::count(path.begin(), path.end(), '/'); };
  std::stable_sort(places.begin(), places.end(), [&](const auto& a, const auto& b) {
    auto left = depth(a.first), right = depth(b.first);
    return left != right ? left < right : a.first < b.first;
  });
  std::vector<const ObjectRow*> gone;
  for (const auto& plan : plans_.all())
    if (plan.is_open() && !plan.item->missing.empty() && !plan.item->alive()) gone.push_back(&plan.item->row);
  hand_.prepare_to_make_again(gone);
  for (auto& [path, plan] : places)
    if (plan->refusal.empty()) place(*plan, path);
}

// From the bottom up: what is in a folder goes before the folder.
void Restore::remove_surplus() {
  std::vector<std::pair<Node*, Plan*>> surplus;
  for (auto& plan : plans_.all())
    if (plan.is_open())
      for (Node* node : plan.item->surplus) surplus.emplace_back(node, &plan);
  std::stable_sort(surplus.begin(), surplus.end(),
                   [](const auto& a, const auto& b) { return a.first->depth() > b.first->depth(); });
  for (auto& [node, plan] : surplus) {
    std::string path = node->path();
    int error = hand_.remove(path, plan->item->row.identity);
    if (error == 0) {
      std::erase(plan->item->names, node);
      situation_.tree().drop(node);
      did(StepKind::remove, shown(path));
    } else if (error == ENOTEMPTY || error == EEXIST) {
      did(StepKind::left_in_place, shown(path));
    } else if (error != ENOENT) {
      plans_.refuse(*plan, shown(path), describe(error));
    }
  }
}

void Restore::restore_contents() {
  auto wanted = [](const Plan& plan) {
    return plan.is_open() && plan.item->content_differs && plan.item->alive();
  };
  std::vector<Ledger::Place> places;
  for (const auto& plan : plans_.all())
    if (wanted(plan)) places.push_back({plan.item->names.front()->path(), plan.item->row.identity});
  hand_.prepare_contents(places);
  for (auto& plan : plans_.all()) {
    Item& item = *plan.item;
    if (!wanted(plan)) continue;
    std::string path = item.names.front()->path();
    if (int error = hand_.restore_content(path, item.row); error != 0)
      plans_.refuse(plan, path, describe(error));
    else
      did(StepKind::content, path);
  }
}

// Files first, and folders from the bottom up, so that no folder's times change after they were set.
void Restore::restore_attributes() {
  std::vector<std::pair<std::string, Plan*>> places;
  for (auto& plan : plans_.all()) {
    const Item& item = *plan.item;
    if (plan.is_open() && !item.row.created && item.alive() && item.row.identity.inode != 0)
      places.emplace_back(item.names.front()->path(), &plan);
  }
  std::stable_sort(places.begin(), places.end(), [](const auto& a, const auto& b) {
    bool left = a.second->item->row.is_folder(), right = b.second->item->row.is_folder();
    return left != right ? right : a.first.size() > b.first.size();
  });
  for (auto& [path, plan] : places) {
    const ObjectRow& row = plan->item->row;
    auto now = locate_beneath(spec_.root, path);
    if (!now || now->identity() != row.identity) continue;
    bool mode = !row.is_symlink() && (now->attributes.mode & 07777) != (row.mode & 07777);
    bool xattrs = !row.is_symlink() && user_xattrs(*now) != row.xattrs;
    bool times = now->attributes.modify_time != row.modify_time && (!row.is_folder() || plan->times_too);
    if (!mode && !xattrs && !times) continue;
    bool listed = plan->item->content_differs || (row.is_folder() && !plan->item->mode_differs && !xattrs) ||
                  !plan->item->attributes_differ() || !plan->item->missing.empty();
    if (int error = hand_.restore_attributes(path, row, !row.is_folder() || plan->times_too); error != 0)
      plans_.refuse(*plan, path, describe(error));
    else if (!listed)
      did(StepKind::attributes, path);
  }
}

std::vector<Step> Restore::run() {
  place_all();
  remove_surplus();
  restore_contents();
  restore_attributes();
  return std::move(steps_);
}

std::unordered_set<Identity, IdentityHash> Restore::restored_folders() const {
  std::unordered_set<Identity, IdentityHash> folders;
  for (const auto& plan : plans_.all())
    if (plan.is_open() && plan.times_too && !plan.item->row.created) folders.insert(plan.item->row.identity);
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
  Plans plans(spec, situation, kept.get(),
              [&](const Identity& identity) { return hand && hand->has_begun(identity); });
  if (!hand) return RestoreResult{.steps = plans.steps(), .refused = plans.refused()};
  Restore work(spec, situation, plans, *hand);
  RestoreResult result{.steps = work.run(), .refused = plans.refused()};
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
