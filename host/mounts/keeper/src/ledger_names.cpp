// What the ledger knows of names: which a pre-existing object lost and which it was given, and where moved
// folders were.
#include <cerrno>

#include "ledger.h"
#include "ledger_statements.h"

namespace anchorhold::mounts {

bool Ledger::is_session_name(const Located& folder, std::string_view name, const Located& object) const {
  if (object.attributes.links < 2) return false;
  auto found = link_names_.find(LinkName{folder.identity(), std::string(name)});
  return found != link_names_.end() && found->second.linked && found->second.object == object.identity();
}

// A path is as it was unless one of the folders above was moved; the nearest of those says where it was.
std::string Ledger::path_before(const std::string& path) const {
  if (moved_folders_.empty()) return path;
  for (auto end = path.rfind('/'); end != std::string::npos && end > 0; end = path.rfind('/', end - 1)) {
    auto folder = locate_beneath(root_.get(), path.substr(0, end));
    if (!folder) continue;
    auto moved = moved_folders_.find(folder->identity());
    if (moved != moved_folders_.end()) return moved->second + path.substr(end);
  }
  return path;
}

int Ledger::note_lost(const Known& known, const Located& folder, const std::string& name,
                      const Located& object) {
  auto gained = link_names_.find(LinkName{folder.identity(), name});
  if (gained != link_names_.end() && gained->second.object == object.identity()) return 0;
  auto noted = statements_->add_lost(known.id, path_before(object.path));
  return noted ? 0 : journal_failed(noted.error());
}

int Ledger::add_link(const Located& folder, std::string_view name, const Located& object) {
  std::lock_guard lock(mutex_);
  if (link_names_.size() >= limits_.max_objects) return EDQUOT;
  auto known = known_or_recorded(object);
  if (!known) return known.error();
  auto number = statements_->add_gained((*known)->id, folder.identity(), name, true);
  if (!number) return journal_failed(number.error());
  link_names_.insert_or_assign(LinkName{folder.identity(), std::string(name)},
                               GainedName{object.identity(), *number, true});
  return 0;
}

void Ledger::forget_link(const Located& folder, std::string_view name) {
  std::lock_guard lock(mutex_);
  auto link = link_names_.find(LinkName{folder.identity(), std::string(name)});
  if (link == link_names_.end()) return;
  if (auto deleted = statements_->delete_gained(link->second.number); !deleted)
    journal_failed(deleted.error());
  link_names_.erase(link);
}

void Ledger::removed(const Located& folder, std::string_view name, const Located& object) {
  std::lock_guard lock(mutex_);
  auto link = link_names_.find(LinkName{folder.identity(), std::string(name)});
  if (link != link_names_.end()) {
    if (auto deleted = statements_->delete_gained(link->second.number); !deleted)
      journal_failed(deleted.error());
    link_names_.erase(link);
  }
  if (object.attributes.links > 1 && !object.is_folder()) return;
  remember_removed(object.identity());
  auto found = known_.find(object.identity());
  if (found == known_.end()) return;
  // The session's own object is as if it had never been.
  Known known = found->second;
  auto noted = known.created ? statements_->delete_created(known.id) : statements_->set_gone(known.id);
  if (!noted) journal_failed(noted.error());
  set_dirty();
  known_.erase(found);
}

// A pre-existing object is about to be called this. What it is called now is lost, unless it was given that.
int Ledger::note_name(const Located& object, std::int64_t id, const std::string& path) {
  auto [folder_path, name] = folder_and_name(object.path);
  auto folder = locate_beneath(root_.get(), folder_path);
  auto [new_folder_path, new_name] = folder_and_name(path);
  auto new_folder = locate_beneath(root_.get(), new_folder_path);
  if (!folder) return folder.error();
  if (!new_folder) return new_folder.error();
  Known known;
  known.id = id;
  if (int error = note_lost(known, *folder, name, object); error != 0) return error;
  auto old = link_names_.find(LinkName{folder->identity(), name});
  bool linked = old != link_names_.end() && old->second.linked && old->second.object == object.identity();
  auto number = statements_->add_gained(id, new_folder->identity(), new_name, linked);
  if (!number) return journal_failed(number.error());
  names_to_come_.push_back({{new_folder->identity(), new_name}, {object.identity(), *number, linked}});
  if (!object.is_folder()) return 0;
  auto before = statements_->path_of(id);
  if (!before) return journal_failed(before.error());
  moved_folders_.insert_or_assign(object.identity(), *before);
  return 0;
}

Checked<std::int64_t> Ledger::note_rename(const Located& object, const std::string& new_path, bool exchange) {
  std::lock_guard lock(mutex_);
  names_to_come_.clear();
  ++renames_noted_;
  auto note = [&](const Located& each, const std::string& path) {
    auto found = known_.find(each.identity());
    if (found != known_.end() && found->second.created) return 0;
    auto known = known_or_recorded(each);
    return known ? note_name(each, (*known)->id, path) : known.error();
  };
  int error = note(object, new_path);
  if (error == 0 && exchange) {
    auto other = locate_beneath(root_.get(), new_path);
    error = other ? note(*other, object.path) : other.error();
  }
  if (error == 0) return names_to_come_.empty() ? 0 : renames_noted_;
  return refuse_with(error);
}

void Ledger::forget_rename(std::int64_t number) {
  std::lock_guard lock(mutex_);
  if (number != renames_noted_) return;
  for (const auto& [name, gained] : names_to_come_)
    if (auto deleted = statements_->delete_gained(gained.number); !deleted) journal_failed(deleted.error());
  names_to_come_.clear();
}

void Ledger::renamed(const Located& folder, std::string_view name, const Located& object,
                     const Located& new_folder, std::string_view new_name, const std::string& new_path) {
  std::lock_guard lock(mutex_);
  auto identity = object.identity();
  auto link = link_names_.find(LinkName{folder.identity(), std::string(name)});
  if (link != link_names_.end() && link->second.object == identity) {
    if (auto deleted = statements_->delete_gained(link->second.number); !deleted)
      journal_failed(deleted.error());
    link_names_.erase(link);
  }
  for (const auto& [to_come, gained] : names_to_come_)
    if (gained.object == identity)
      link_names_.insert_or_assign(LinkName{new_folder.identity(), std::string(new_name)}, gained);
  auto found = known_.find(identity);
  if (found == known_.end() || !found->second.created) return;
  found->second.touched = true;
  if (auto set = statements_->set_created_path(found->second.id, new_path); !set) journal_failed(set.error());
  set_dirty();
}

}  // namespace anchorhold::mounts
