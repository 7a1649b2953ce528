// anchorhold changes: what a session did to its granted folders, what could be dangerous first.
#include <fmt/format.h>

#include "base/clock.h"
#include "commands.h"
#include "ledgers.h"

namespace anchorhold::cli {
namespace {

using mounts::Change;

std::string size_text(std::uint64_t bytes) {
  if (bytes < 10'240) return fmt::format("{} B", bytes);
  if (bytes < 10'485'760) return fmt::format("{} KiB", bytes / 1024);
  return fmt::format("{} MiB", bytes / 1'048'576);
}

std::string_view heading(Change::Risk risk) {
  switch (risk) {
    case Change::Risk::runs_here:
      return "could be run on this computer:";
    case Change::Risk::leads_outside:
      return "leads out of the folder:";
    case Change::Risk::bulk:
      return "many at once:";
    case Change::Risk::none:
      break;
  }
  return "everything else:";
}

std::string details(const Change& change) {
  std::vector<std::string> words;
  if (change.object == Change::Object::folder) words.push_back("folder");
  if (change.object == Change::Object::symlink) words.push_back("symlink to " + one_line(change.target, 300));
  if (change.object == Change::Object::file) {
    if (change.kind == Change::Kind::deleted)
      words.push_back(size_text(change.old_size));
    else if (change.content_changed)
      words.push_back(size_text(change.old_size) + " → " + size_text(change.size));
    else
      words.push_back(size_text(change.size));
    if (!change.text) words.push_back("binary");
  }
  if (change.mode_changed) words.push_back(fmt::format("mode {:03o} → {:03o}", change.old_mode, change.mode));
  if (change.xattrs_changed) words.push_back("extended attributes");
  if (change.times_changed && change.kind == Change::Kind::attributes && !change.mode_changed &&
      !change.xattrs_changed)
    words.push_back("times");
  if (change.changed_since) words.push_back("changed by somebody else since");
  if (!change.risk_reason.empty()) words.push_back(change.risk_reason);
  return fmt::format("{}", fmt::join(words, ", "));
}

Json to_json(const Change& change, const mounts::LedgerPlace& place) {
  Json object{{"type", "change"},
              {"grant", place.name},
              {"risk", mounts::to_string(change.risk)},
              {"kind", mounts::to_string(change.kind)},
              {"object", mounts::to_string(change.object)}};
  put_path(object, "path", change.path);
  put_path(object, "host_path",
           place.only_file ? place.host_path.string() : (place.host_path / change.path).string());
  if (!change.old_path.empty()) put_path(object, "old_path", change.old_path);
  if (!change.risk_reason.empty()) object["risk_reason"] = change.risk_reason;
  object.update(Json{{"old_size", change.old_size},
                     {"size", change.size},
                     {"old_mode", fmt::format("{:04o}", change.old_mode)},
                     {"mode", fmt::format("{:04o}", change.mode)},
                     {"text", change.text},
                     {"content_changed", change.content_changed},
                     {"mode_changed", change.mode_changed},
                     {"times_changed", change.times_changed},
                     {"xattrs_changed", change.xattrs_changed},
                     {"changed_since", change.changed_since}});
  if (!change.target.empty()) put_path(object, "target", change.target);
  if (!change.diff.empty()) object["diff"] = change.diff;
  return object;
}

Json to_json(const mounts::UndoRecord& undo, const mounts::LedgerPlace& place) {
  Json paths = Json::array();
  for (const auto& path : undo.paths) paths.push_back(path);
  return Json{{"type", "undo"},
              {"grant", place.name},
              {"number", undo.number},
              {"redo", undo.redo},
              {"finished", undo.finished},
              {"taken_back", undo.taken_back},
              {"time", to_rfc3339(undo.begun)},
              {"paths", std::move(paths)}};
}

void print_diff(const Change& change, Console& console) {
  if (change.diff.empty()) return;
  console.line(fmt::format("--- {}", change.kind == Change::Kind::created ? "/dev/null"
                                     : change.old_path.empty()            ? shown_path(change.path)
                                                                          : shown_path(change.old_path)));
  console.line(
      fmt::format("+++ {}", change.kind == Change::Kind::deleted ? "/dev/null" : shown_path(change.path)));
  auto text = printable(change.diff);
  if (text.ends_with('\n')) text.pop_back();
  console.line(text);
}

void print(const mounts::LedgerPlace& place, const mounts::Review& review, Console& console) {
  console.line(
      fmt::format("{} ({}): {} changes; {} of {} kept for undo{}", shown_path(place.host_path.string()),
                  mounts::to_string(place.mode), review.changes.size() + review.left_out,
                  size_text(review.bytes_kept), size_text(place.quota_bytes),
                  review.undo_bytes_kept > 0 ? fmt::format(", {} by undos", size_text(review.undo_bytes_kept))
                                             : std::string()));
  std::optional<Change::Risk> risk;
  for (const auto& change : review.changes) {
    if (risk != change.risk) console.line(fmt::format("  {}", heading(change.risk)));
    risk = change.risk;
    auto path = change.old_path.empty() ? shown_path(change.path)
                                        : shown_path(change.old_path) + " → " + shown_path(change.path);
    console.line(fmt::format("    {:<10}  {}  ({})", mounts::to_string(change.kind), path, details(change)));
    print_diff(change, console);
  }
  if (review.left_out > 0) console.line(fmt::format("    and {} more", review.left_out));
  for (const auto& undo : review.undos)
    console.line(fmt::format("  {} {} of {}{}{}", undo.redo ? "redo" : "undo", undo.number,
                             to_rfc3339(undo.begun), undo.finished ? "" : ", cut short: run it again",
                             undo.taken_back ? ", taken back" : ""));
}

}  // namespace

Result<int> run_changes_command(const ChangesCommand& command, Console& console) {
  auto ledgers = ANCHORHOLD_TRY(find_ledgers(command.id));
  for (const auto& [place, paths] : ANCHORHOLD_TRY(choose_ledgers(ledgers, command.paths))) {
    auto review = mounts::review(*place, {.diff = command.diff, .paths = paths});
    if (!review)
      return fail(with_context(std::move(review).error(),
                               fmt::format("the changes in {}", place->host_path.string())));
    for (const auto& change : review->changes) console.object(to_json(change, *place));
    for (const auto& undo : review->undos) console.object(to_json(undo, *place));
    Json summary{{"type", "ledger"}, {"grant", place->name}};
    put_path(summary, "host_path", place->host_path.string());
    summary.update(Json{{"mode", mounts::to_string(place->mode)},
                        {"changes", review->changes.size() + review->left_out},
                        {"left_out", review->left_out},
                        {"objects_kept", review->objects_kept},
                        {"bytes_kept", review->bytes_kept},
                        {"quota_bytes", place->quota_bytes},
                        {"undo_bytes_kept", review->undo_bytes_kept}});
    console.object(summary);
    print(*place, *review, console);
  }
  if (ledgers.places.empty())
    console.note(
        fmt::format("session {} was granted nothing that it could change", ledgers.session.id.value()));
  return exit_status::ok;
}

}  // namespace anchorhold::cli
