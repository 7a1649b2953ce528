#include "net_changes.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <map>
#include <unistd.h>

#include "content.h"
#include "risk.h"
#include "text_diff.h"
#include "tree.h"

namespace anchorhold::mounts {
namespace {

// So many of one kind are a thing to look at as such.
constexpr std::size_t many_deleted = 25;
constexpr std::size_t many_rewritten = 50;
constexpr std::size_t max_diffs_bytes = 16 << 20;
// Renames that look like a copy and a removal are told by their content, for so many.
constexpr std::size_t max_compared = 2000;

Change::Object object_of(std::uint32_t mode) {
  return S_ISREG(mode)   ? Change::Object::file
         : S_ISDIR(mode) ? Change::Object::folder
         : S_ISLNK(mode) ? Change::Object::symlink
                         : Change::Object::other;
}

std::string read_piece(const Located& file, std::size_t most, bool from_end = false) {
  UniqueFd fd(open(descriptor_path(file.fd.get()).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  std::string bytes(static_cast<std::size_t>(std::min<std::uint64_t>(most, file.attributes.size)), '\0');
  auto offset = from_end ? file.attributes.size - bytes.size() : 0;
  ssize_t got = fd ? pread(fd.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset)) : 0;
  bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  return bytes;
}

// A change while it is put together: where its two contents are.
struct Draft {
  Change change;
  const Item* before = nullptr;  // its row says what was there
  const Item* now = nullptr;     // nothing when it is deleted
};

class Net {
 public:
  Net(Situation& situation, int root, int kept, const NetOptions& options)
      : situation_(situation), root_(root), kept_(kept), options_(options) {}
  std::vector<Change> run(std::uint64_t& left_out);

 private:
  void draft(Item& item);
  void draft_created(Item& item);
  void add(Change::Kind kind, const std::string& path, const Item* before, const Item* now,
           const std::string& old_path = {});
  // What was deleted and made again at one path was replaced, and what was made elsewhere with its content
  // moved.
  void join_replaced();
  void join_moved();
  bool was_moved(const Draft& gone, const Draft& made) const;
  void fill(Draft& draft);
  void fill_contents(Draft& draft);
  void mark_bulk();
  bool is_asked_for(const Change& change) const;
  Checked<Located> content_before(const Draft& draft) const;

  Situation& situation_;
  const int root_;
  const int kept_;
  const NetOptions& options_;
  std::vector<Draft> drafts_;
  std::size_t diffs_bytes_ = 0;
};

void Net::add(Change::Kind kind, const std::string& path, const Item* before, const Item* now,
              const std::string& old_path) {
  Draft draft;
  draft.change.kind = kind;
  draft.change.path = path;
  draft.change.old_path = old_path;
  draft.change.object = object_of(now ? now->names.front()->attributes.mode : before->row.mode);
  draft.before = before;
  draft.now = now;
  drafts_.push_back(std::move(draft));
}

void Net::draft_created(Item& item) {
  for (std::size_t i = 0; i < item.names.size(); ++i)
    add(i == 0 ? Change::Kind::created : Change::Kind::linked, item.names[i]->path(), nullptr, &item);
}

void Net::draft(Item& item) {
  if (item.row.created) return draft_created(item);
  auto surplus = item.surplus;
  for (const auto& path : item.missing) {
    if (path.empty()) continue;
    if (!surplus.empty()) {
      add(Change::Kind::renamed, surplus.back()->path(), &item, &item, path);
      surplus.pop_back();
    } else if (item.taken_away()) {
      add(Change::Kind::deleted, path, &item, nullptr);
    }
  }
  for (const Node* node : surplus) add(Change::Kind::linked, node->path(), &item, &item);
  bool renamed = item.names.size() == 1 && !item.surplus.empty();
  if (!item.alive() || renamed) return;
  std::string path = item.names.front()->path();
  if (item.content_differs)
    add(Change::Kind::modified, path, &item, &item);
  else if (item.mode_differs || item.xattrs_differ || (item.times_differ && item.row.is_file()))
    add(Change::Kind::attributes, path, &item, &item);
}

Checked<Located> Net::content_before(const Draft& draft) const {
  if (!draft.before) return refuse_with(ENOENT);
  if (draft.before->row.content_is_kept()) return kept_file(kept_, draft.before->row);
  if (!draft.before->alive()) return refuse_with(ENOENT);
  return locate_beneath(root_, draft.before->names.front()->path());
}

void Net::join_replaced() {
  std::map<std::string, std::size_t> deleted;
  for (std::size_t i = 0; i < drafts_.size(); ++i)
    if (drafts_[i].change.kind == Change::Kind::deleted) deleted.emplace(drafts_[i].change.path, i);
  std::vector<bool> gone(drafts_.size());
  for (std::size_t i = 0; i < drafts_.size(); ++i) {
    Draft& made = drafts_[i];
    auto found = made.change.kind == Change::Kind::created ? deleted.find(made.change.path) : deleted.end();
    if (found == deleted.end()) continue;
    const Draft& old = drafts_[found->second];
    if (object_of(old.before->row.mode) != made.change.object) continue;
    gone[found->second] = true;
    made.before = old.before;
    const auto& attributes = made.now->names.front()->attributes;
    bool mode = (attributes.mode & 07777) != (old.before->row.mode & 07777);
    bool same = made.change.object == Change::Object::folder;
    auto now = locate_beneath(root_, made.change.path);
    if (now && now->is_symlink()) same = target_of(*now) == old.before->row.target;
    if (auto before = content_before(made); now && now->is_file() && before)
      same = same_content(*now, *before);
    made.change.kind = same ? Change::Kind::attributes : Change::Kind::modified;
    gone[i] = same && !mode;
  }
  std::size_t next = 0;
  for (std::size_t i = 0; i < drafts_.size(); ++i) {
    if (gone[i]) continue;
    if (next != i) drafts_[next] = std::move(drafts_[i]);
    ++next;
  }
  drafts_.resize(next);
}

bool Net::was_moved(const Draft& gone, const Draft& made) const {
  auto before = content_before(gone);
  auto now = locate_beneath(root_, made.change.path);
  return before && now && before->attributes.size > 0 && same_content(*before, *now);
}

void Net::join_moved() {
  std::multimap<std::uint64_t, std::size_t> deleted;
  for (std::size_t i = 0; i < drafts_.size(); ++i)
    if (drafts_[i].change.kind == Change::Kind::deleted && drafts_[i].before->row.is_file())
      deleted.emplace(drafts_[i].before->row.size, i);
  std::size_t compared = 0;
  for (auto& made : drafts_) {
    if (made.change.kind != Change::Kind::created || made.change.object != Change::Object::file) continue;
    auto [at, end] = deleted.equal_range(made.now->names.front()->attributes.size);
    for (; at != end && compared < max_compared; ++at, ++compared) {
      Draft& gone = drafts_[at->second];
      if (!was_moved(gone, made)) continue;
      made.change.kind = Change::Kind::renamed;
      made.change.old_path = gone.change.path;
      made.before = gone.before;
      gone.before = nullptr;
      deleted.erase(at);
      break;
    }
  }
  std::erase_if(drafts_, [](const Draft& draft) { return !draft.before && !draft.now; });
}

void Net::fill_contents(Draft& draft) {
  Change& change = draft.change;
  std::string before_text, now_text, before_beginning, now_beginning;
  auto before = draft.change.kind == Change::Kind::linked ? refuse_with(ENOENT) : content_before(draft);
  auto now = draft.now ? locate_beneath(root_, change.path) : refuse_with(ENOENT);
  bool has_before = before && before->is_file(), has_now = now && now->is_file();
  if (has_before) before_beginning = read_piece(*before, risk_beginning_bytes);
  if (has_now) now_beginning = read_piece(*now, risk_beginning_bytes);
  change.text = looks_like_text(before_beginning) && looks_like_text(now_beginning);
  if (change.kind == Change::Kind::renamed && draft.before == draft.now)
    change.content_changed = draft.now->content_differs;
  else
    change.content_changed = change.kind == Change::Kind::modified;
  if (has_now) {
    bool executable = (now->attributes.mode & 0111) != 0;
    bool before_executable = draft.before && (draft.before->row.mode & 0111) != 0;
    auto end = now_beginning.starts_with("PK") ? read_piece(*now, risk_end_bytes, true) : std::string();
    if (auto reason = risk_of_running({change.path, executable && !before_executable, now_beginning, end})) {
      change.risk = Change::Risk::runs_here;
      change.risk_reason = *reason;
    } else if (executable && change.content_changed) {
      change.risk = Change::Risk::runs_here;
      change.risk_reason = "it is a program, and another one than before";
    }
  }
  bool differs =
      change.content_changed || change.kind == Change::Kind::created || change.kind == Change::Kind::deleted;
  if (!options_.diff || !differs || !change.text || diffs_bytes_ > max_diffs_bytes) return;
  if ((has_before && before->attributes.size > max_diff_input_bytes) ||
      (has_now && now->attributes.size > max_diff_input_bytes))
    return;
  if (has_before) before_text = read_piece(*before, max_diff_input_bytes);
  if (has_now) now_text = read_piece(*now, max_diff_input_bytes);
  change.diff = unified_diff(before_text, now_text);
  diffs_bytes_ += change.diff.size();
}

void Net::fill(Draft& draft) {
  Change& change = draft.change;
  if (draft.before) {
    change.old_size = draft.before->row.size;
    change.old_mode = draft.before->row.mode & 07777;
  }
  if (draft.now) {
    const Node& node = *draft.now->names.front();
    change.size = node.attributes.size;
    change.mode = node.attributes.mode & 07777;
    change.changed_since = !situation_.is_as_we_left_it(*draft.now, node);
    if (draft.before) {
      change.mode_changed = !S_ISLNK(node.attributes.mode) && change.mode != change.old_mode;
      change.times_changed =
          !draft.before->row.is_folder() && node.attributes.modify_time != draft.before->row.modify_time;
    }
    if (draft.before == draft.now) change.xattrs_changed = draft.now->xattrs_differ;
  }
  if (change.object == Change::Object::file) return fill_contents(draft);
  if (change.object != Change::Object::symlink) return;
  auto now = draft.now ? locate_beneath(root_, change.path) : refuse_with(ENOENT);
  change.target = now && now->is_symlink() ? target_of(*now) : draft.before ? draft.before->row.target : "";
  if (now && symlink_escapes(change.path, change.target)) {
    change.risk = Change::Risk::leads_outside;
    change.risk_reason = "it leads out of the folder";
  }
}

void Net::mark_bulk() {
  std::size_t deleted = 0, rewritten = 0;
  for (const auto& draft : drafts_) {
    deleted += draft.change.kind == Change::Kind::deleted;
    rewritten += draft.change.kind == Change::Kind::modified;
  }
  for (auto& [change, before, now] : drafts_) {
    if (change.risk != Change::Risk::none) continue;
    std::string reason;
    if (change.kind == Change::Kind::deleted && deleted >= many_deleted)
      reason = fmt::format("one of {} that were deleted", deleted);
    if (change.kind == Change::Kind::modified && rewritten >= many_rewritten)
      reason = fmt::format("one of {} that were rewritten", rewritten);
    if (reason.empty()) continue;
    change.risk = Change::Risk::bulk;
    change.risk_reason = std::move(reason);
  }
}

bool Net::is_asked_for(const Change& change) const {
  auto beneath = [](const std::string& path, const std::string& above) {
    return above.empty() || path == above || path.starts_with(above + "/");
  };
  return options_.paths.empty() ||
         std::any_of(options_.paths.begin(), options_.paths.end(), [&](const std::string& path) {
           return beneath(change.path, path) || (!change.old_path.empty() && beneath(change.old_path, path));
         });
}

std::vector<Change> Net::run(std::uint64_t& left_out) {
  for (auto& item : situation_.items()) draft(item);
  join_replaced();
  join_moved();
  std::erase_if(drafts_, [&](const Draft& draft) { return !is_asked_for(draft.change); });
  for (auto& draft : drafts_) fill(draft);
  mark_bulk();
  std::stable_sort(drafts_.begin(), drafts_.end(), [](const Draft& a, const Draft& b) {
    return a.change.risk != b.change.risk ? a.change.risk < b.change.risk : a.change.path < b.change.path;
  });
  left_out = drafts_.size() > max_changes ? drafts_.size() - max_changes : 0;
  if (left_out > 0) drafts_.resize(max_changes);
  std::vector<Change> changes;
  for (auto& draft : drafts_) changes.push_back(std::move(draft.change));
  return changes;
}

}  // namespace

std::vector<Change> net_changes(Situation& situation, int root, int kept, const NetOptions& options,
                                std::uint64_t& left_out) {
  return Net(situation, root, kept, options).run(left_out);
}

}  // namespace anchorhold::mounts
