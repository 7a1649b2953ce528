#include "review_wire.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>

namespace anchorhold::mounts {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 4> risks{"runs_here", "leads_outside", "bulk", "none"};
constexpr std::array<std::string_view, 6> kinds{"created", "modified", "renamed",
                                                "deleted", "linked",   "attributes"};
constexpr std::array<std::string_view, 4> objects{"file", "folder", "symlink", "other"};
constexpr std::array<std::string_view, 7> steps{"removed", "put_back",   "moved_back",   "linked",
                                                "content", "attributes", "left_in_place"};
constexpr std::array<std::string_view, 12> codes{
    "invalid_argument",   "not_found",           "already_exists", "permission_denied",
    "resource_exhausted", "failed_precondition", "unavailable",    "deadline_exceeded",
    "cancelled",          "data_loss",           "unsupported",    "internal"};

std::string dump(const Json& object) {
  return object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

template <typename Enum, std::size_t count>
Enum parse_word(const Json& object, const char* key, const std::array<std::string_view, count>& words) {
  auto found = object.find(key);
  if (found != object.end() && found->is_string())
    for (std::size_t i = 0; i < count; ++i)
      if (found->template get_ref<const std::string&>() == words[i]) return static_cast<Enum>(i);
  return static_cast<Enum>(count - 1);
}

std::string get_bytes(const Json& object, const char* key) {
  auto hex = object.find(std::string(key) + "_hex");
  if (hex != object.end() && hex->is_string()) {
    std::string bytes;
    const auto& text = hex->get_ref<const std::string&>();
    auto digit = [](char c) { return c >= 'a' ? c - 'a' + 10 : c - '0'; };
    if (text.size() % 2 != 0 || text.find_first_not_of("0123456789abcdef") != std::string::npos) return {};
    for (std::size_t i = 0; i < text.size(); i += 2)
      bytes += static_cast<char>(digit(text[i]) * 16 + digit(text[i + 1]));
    return bytes;
  }
  auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::uint64_t get_number(const Json& object, const char* key) {
  auto found = object.find(key);
  return found != object.end() && found->is_number_unsigned() ? found->get<std::uint64_t>() : 0;
}

bool get_flag(const Json& object, const char* key) {
  auto found = object.find(key);
  return found != object.end() && found->is_boolean() && found->get<bool>();
}

bool is_utf8(std::string_view bytes) {
  try {
    (void)Json(std::string(bytes)).dump();
    return true;
  } catch (const Json::exception&) {
    return false;
  }
}

Result<Json> parse_line(std::string_view line) {
  auto object = Json::parse(line, nullptr, false);
  if (!object.is_object())
    return fail(ErrorCode::internal, "anchorhold-ledger said something that is none of its words");
  if (get_bytes(object, "type") != "error") return object;
  Error error;
  error.code = parse_word<ErrorCode>(object, "code", codes);
  error.message = get_bytes(object, "message");
  error.hint = get_bytes(object, "hint");
  return fail(std::move(error));
}

Change change_of(const Json& object) {
  Change change;
  change.kind = parse_word<Change::Kind>(object, "kind", kinds);
  change.object = parse_word<Change::Object>(object, "object", objects);
  change.risk = parse_word<Change::Risk>(object, "risk", risks);
  change.risk_reason = get_bytes(object, "risk_reason");
  change.path = get_bytes(object, "path");
  change.old_path = get_bytes(object, "old_path");
  change.old_size = get_number(object, "old_size");
  change.size = get_number(object, "size");
  change.old_mode = static_cast<std::uint32_t>(get_number(object, "old_mode"));
  change.mode = static_cast<std::uint32_t>(get_number(object, "mode"));
  change.text = get_flag(object, "text");
  change.content_changed = get_flag(object, "content_changed");
  change.mode_changed = get_flag(object, "mode_changed");
  change.times_changed = get_flag(object, "times_changed");
  change.xattrs_changed = get_flag(object, "xattrs_changed");
  change.changed_since = get_flag(object, "changed_since");
  change.target = get_bytes(object, "target");
  change.diff = get_bytes(object, "diff");
  return change;
}

UndoRecord undo_of(const Json& object) {
  UndoRecord undo;
  undo.number = static_cast<std::int64_t>(get_number(object, "number"));
  undo.redo = get_flag(object, "redo");
  undo.finished = get_flag(object, "finished");
  undo.taken_back = get_flag(object, "taken_back");
  // A clock of nanoseconds ends in 2262.
  undo.begun = std::chrono::system_clock::time_point(
      std::chrono::seconds(std::min<std::uint64_t>(get_number(object, "begun"), 9'000'000'000)));
  if (auto paths = object.find("paths"); paths != object.end() && paths->is_array())
    for (const auto& path : *paths)
      if (path.is_object()) undo.paths.push_back(get_bytes(path, "path"));
  return undo;
}

}  // namespace

std::string_view to_string(Change::Risk risk) {
  return risks[static_cast<std::size_t>(risk)];
}
std::string_view to_string(Change::Kind kind) {
  return kinds[static_cast<std::size_t>(kind)];
}
std::string_view to_string(Change::Object object) {
  return objects[static_cast<std::size_t>(object)];
}
std::string_view to_string(UndoStep::Kind kind) {
  return steps[static_cast<std::size_t>(kind)];
}

void put_bytes(Json& object, const char* key, std::string_view bytes) {
  object[key] = std::string(bytes);
  if (is_utf8(bytes)) return;
  std::string hex;
  for (unsigned char c : bytes) hex += fmt::format("{:02x}", c);
  object[std::string(key) + "_hex"] = std::move(hex);
}

std::string encode(const Change& change) {
  Json object{{"type", "change"},
              {"kind", to_string(change.kind)},
              {"object", to_string(change.object)},
              {"risk", to_string(change.risk)}};
  if (!change.risk_reason.empty()) object["risk_reason"] = change.risk_reason;
  put_bytes(object, "path", change.path);
  if (!change.old_path.empty()) put_bytes(object, "old_path", change.old_path);
  object.update(Json{{"old_size", change.old_size},
                     {"size", change.size},
                     {"old_mode", change.old_mode},
                     {"mode", change.mode},
                     {"text", change.text},
                     {"content_changed", change.content_changed},
                     {"mode_changed", change.mode_changed},
                     {"times_changed", change.times_changed},
                     {"xattrs_changed", change.xattrs_changed},
                     {"changed_since", change.changed_since}});
  if (!change.target.empty()) put_bytes(object, "target", change.target);
  if (!change.diff.empty()) put_bytes(object, "diff", change.diff);
  return dump(object);
}

std::string encode(const UndoRecord& undo) {
  Json object{{"type", "undo"},
              {"number", static_cast<std::uint64_t>(undo.number)},
              {"redo", undo.redo},
              {"finished", undo.finished},
              {"taken_back", undo.taken_back},
              {"begun",
               static_cast<std::uint64_t>(
                   std::chrono::duration_cast<std::chrono::seconds>(undo.begun.time_since_epoch()).count())}};
  Json paths = Json::array();
  for (const auto& path : undo.paths) put_bytes(paths.emplace_back(Json::object()), "path", path);
  object["paths"] = std::move(paths);
  return dump(object);
}

std::string encode(const UndoStep& step) {
  Json object{{"type", "step"}, {"kind", to_string(step.kind)}};
  put_bytes(object, "path", step.path);
  if (!step.from.empty()) put_bytes(object, "from", step.from);
  return dump(object);
}

std::string encode(const UndoRefusal& refusal) {
  Json object{{"type", "refused"}};
  put_bytes(object, "path", refusal.path);
  object["reason"] = refusal.reason;
  return dump(object);
}

std::string encode_end(const Review& review) {
  return dump({{"type", "end"},
               {"left_out", review.left_out},
               {"objects_kept", review.objects_kept},
               {"bytes_kept", review.bytes_kept},
               {"undo_bytes_kept", review.undo_bytes_kept}});
}

std::string encode_end(const UndoOutcome& outcome) {
  return dump({{"type", "end"}, {"number", static_cast<std::uint64_t>(outcome.number)}});
}

std::string encode_error(const Error& error) {
  return dump({{"type", "error"},
               {"code", codes[static_cast<std::size_t>(error.code)]},
               {"message", error.message},
               {"hint", error.hint}});
}

Result<bool> decode_line(std::string_view line, Review& review) {
  auto object = ANCHORHOLD_TRY(parse_line(line));
  auto type = get_bytes(object, "type");
  if (type == "change") review.changes.push_back(change_of(object));
  if (type == "undo") review.undos.push_back(undo_of(object));
  if (type != "end") return false;
  review.left_out = get_number(object, "left_out");
  review.objects_kept = get_number(object, "objects_kept");
  review.bytes_kept = get_number(object, "bytes_kept");
  review.undo_bytes_kept = get_number(object, "undo_bytes_kept");
  return true;
}

Result<bool> decode_line(std::string_view line, UndoOutcome& outcome) {
  auto object = ANCHORHOLD_TRY(parse_line(line));
  auto type = get_bytes(object, "type");
  if (type == "step")
    outcome.steps.push_back({parse_word<UndoStep::Kind>(object, "kind", steps), get_bytes(object, "path"),
                             get_bytes(object, "from")});
  if (type == "refused") outcome.refused.push_back({get_bytes(object, "path"), get_bytes(object, "reason")});
  if (type != "end") return false;
  outcome.number = static_cast<std::int64_t>(get_number(object, "number"));
  return true;
}

}  // namespace anchorhold::mounts
