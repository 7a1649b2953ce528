#include "plan.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace anchorhold::mounts {
namespace {

bool is_at_or_beneath(const std::string& path, const std::string& above) {
  return above.empty() || path == above ||
         (path.size() > above.size() && path.starts_with(above) && path[above.size()] == '/');
}

bool has_work(const Item& item) {
  return !item.surplus.empty() || !item.missing.empty() || item.content_differs || item.attributes_differ();
}

}  // namespace

Plans::Plans(const RestoreSpec& spec, Situation& situation, int kept,
             const std::function<bool(const Identity&)>& begun)
    : spec_(spec), situation_(situation), kept_(kept) {
  choose(begun);
  for (auto& plan : plans_) judge(plan);
}

Plan* Plans::of(const Identity& identity) {
  Item* item = situation_.item_of(identity);
  auto found = item ? by_item_.find(item) : by_item_.end();
  return found == by_item_.end() ? nullptr : &plans_[found->second];
}

void Plans::refuse(Plan& plan, const std::string& path, std::string reason) {
  if (plan.refusal.empty()) plan.refusal = reason;
  refused_.push_back({path, std::move(reason)});
}

// Which items belong to the paths that were asked for: also the folders that must be there again for them,
// and what has taken their places.
void Plans::choose(const std::function<bool(const Identity&)>& begun) {
  auto asked = [&](const Item& item) {
    if (spec_.paths.empty()) return true;
    return std::any_of(spec_.paths.begin(), spec_.paths.end(), [&](const std::string& path) {
      return std::any_of(item.wanted.begin(), item.wanted.end(),
                         [&](const std::string& each) { return is_at_or_beneath(each, path); }) ||
             std::any_of(item.names.begin(), item.names.end(),
                         [&](const Node* node) { return is_at_or_beneath(node->path(), path); });
    });
  };
  for (auto& item : situation_.items()) {
    by_item_.emplace(&item, plans_.size());
    for (const auto& path : item.missing) by_missing_.emplace(path, plans_.size());
    plans_.push_back({.item = &item, .in_scope = asked(item), .begun = begun(item.row.identity)});
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
        if (auto found = by_missing_.find(above); found != by_missing_.end()) also(found->second);
      auto now = place_now(path);
      if (Node* there = now ? situation_.tree().find(*now) : nullptr)
        if (Item* in_the_way = situation_.item_of(there->identity)) also(by_item_.at(in_the_way));
    }
  }
}

// Where that is now which will be at the path once the folders above it are in their places; nothing when the
// folder will be a new one.
std::optional<std::string> Plans::place_now(const std::string& path) const {
  for (auto above = folder_and_name(path).first; !above.empty(); above = folder_and_name(above).first) {
    auto found = by_missing_.find(above);
    if (found == by_missing_.end()) continue;
    const Item& folder = *plans_[found->second].item;
    if (!folder.alive()) return std::nullopt;
    return folder.names.front()->path() + path.substr(above.size());
  }
  return path;
}

std::string Plans::judge_missing(const Plan& plan, const std::string& path) {
  const Item& item = *plan.item;
  auto now = place_now(path);
  Checked<Located> there = refuse_with(ENOENT);
  if (now) there = locate_beneath(spec_.root, *now);
  if (there && !of(there->identity())) {
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

void Plans::judge(Plan& plan) {
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

std::vector<Step> Plans::steps() const {
  std::vector<Step> steps;
  auto did = [&](StepKind kind, const std::string& path, const std::string& other = {}) {
    steps.push_back({kind, path, other});
  };
  for (const auto& plan : plans_) {
    const Item& item = *plan.item;
    if (!plan.is_open()) continue;
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
  return steps;
}

}  // namespace anchorhold::mounts
