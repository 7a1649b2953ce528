// What a ledger does when it is opened: finishes or takes back what a crash left half done, and reads what is
// known.
#include <cerrno>
#include <charconv>
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <optional>
#include <unistd.h>

#include "base/log.h"
#include "content.h"
#include "ledger.h"
#include "ledger_statements.h"

namespace anchorhold::mounts {
namespace {

struct KeptName {
  std::int64_t id = 0;
  bool moved = false;
  std::string path;
};

std::optional<KeptName> parse_kept_name(std::string_view name) {
  if (name.size() < 19 || name[16] != '.' || name[18] != '.' || (name[17] != 'm' && name[17] != 'c'))
    return std::nullopt;
  KeptName parsed;
  parsed.moved = name[17] == 'm';
  if (std::from_chars(name.data(), name.data() + 16, parsed.id, 16).ptr != name.data() + 16)
    return std::nullopt;
  auto escaped = name.substr(19);
  for (std::size_t i = 0; i < escaped.size(); ++i) {
    unsigned byte = 0;
    if (escaped[i] == '%' && i + 2 < escaped.size() &&
        std::from_chars(&escaped[i + 1], &escaped[i + 1] + 2, byte, 16).ptr == &escaped[i + 1] + 2) {
      parsed.path += static_cast<char>(byte);
      i += 2;
    } else {
      parsed.path += escaped[i];
    }
  }
  return parsed;
}

Result<std::vector<std::string>> names_in(int folder) {
  UniqueFd copy(openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!copy) return fail_errno(errno, "reading the kept files");
  std::unique_ptr<DIR, int (*)(DIR*)> stream(fdopendir(copy.get()), closedir);
  if (!stream) return fail_errno(errno, "reading the kept files");
  copy.release();
  std::vector<std::string> names;
  while (dirent* entry = readdir(stream.get())) {
    std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(std::move(name));
  }
  return names;
}

}  // namespace

Status Ledger::finish_unfinished() {
  for (const auto& name : ANCHORHOLD_TRY(names_in(kept_.get()))) ANCHORHOLD_CHECK(finish_kept_file(name));
  // A row that says "kept" without a file: the change it stands for was never made.
  auto rows = ANCHORHOLD_TRY(database_.prepare("SELECT id, kept_name FROM object WHERE kept IN (1,2,3)"));
  std::vector<std::int64_t> missing;
  while (ANCHORHOLD_TRY(rows.step()))
    if (auto found = attributes_at(kept_.get(), std::string(rows.text(1))); !found)
      missing.push_back(rows.integer(0));
  rows.reset();
  for (auto id : missing) ANCHORHOLD_CHECK(statements_->set_kept(id, HowKept::not_kept, "", 0));
  return {};
}

// One file of kept/ against its row.
Status Ledger::finish_kept_file(const std::string& name) {
  auto parsed = parse_kept_name(name);
  auto attributes = attributes_at(kept_.get(), name);
  if (!parsed || !attributes) {
    if (name.starts_with(unfinished_prefix)) unlinkat(kept_.get(), name.c_str(), 0);
    return {};
  }
  auto row = ANCHORHOLD_TRY(statements_->kept_of(parsed->id));
  bool row_knows = row.how != HowKept::not_kept && row.name == name;
  if (row_knows && row.how != HowKept::moved) return {};
  if (!parsed->moved) {
    // A copy whose row was never written: nothing was changed after it.
    unlinkat(kept_.get(), name.c_str(), 0);
    return {};
  }
  if (attributes->links > 1) {
    // Given its second name here, and then nothing was renamed over the first.
    unlinkat(kept_.get(), name.c_str(), 0);
    return row_knows ? statements_->set_kept(parsed->id, HowKept::not_kept, "", 0) : Status{};
  }
  if (!row_knows && row.how != HowKept::not_kept) {
    // On its way out, with its old content kept elsewhere.
    unlinkat(kept_.get(), name.c_str(), 0);
    return statements_->set_removed(parsed->id);
  }
  if (!row_knows) {
    log_warning(fmt::format(
        "ledger: {} is kept, but its row was lost; it is written again from the file's name", name));
    auto found = ANCHORHOLD_TRY(database_.prepare("SELECT 1 FROM object WHERE id=?1"));
    bool there = ANCHORHOLD_TRY(found.bind(1, parsed->id).step());
    found.reset();
    if (!there) {
      Located object;
      object.path = parsed->path;
      object.attributes = *attributes;
      std::int64_t next = std::max(statements_->next_object, parsed->id + 1);
      statements_->next_object = parsed->id;
      ANCHORHOLD_TRY(statements_->insert_object(object, object.path, "", ""));
      statements_->next_object = next;
    }
    ANCHORHOLD_CHECK(statements_->set_kept(parsed->id, HowKept::moved, name, attributes->size));
  }
  return statements_->set_removed(parsed->id);
}

Status Ledger::load(bool was_cut_short) {
  auto rows =
      ANCHORHOLD_TRY(database_.prepare("SELECT id, device, inode, birth_ns, created, stands, kept, "
                                       "kept_bytes, removed, generation FROM object WHERE epoch=?1"));
  rows.bind(1, statements_->epoch);
  while (ANCHORHOLD_TRY(rows.step())) {
    auto how = static_cast<HowKept>(rows.integer(6));
    if (how == HowKept::cloned || how == HowKept::moved || how == HowKept::copied) {
      ++objects_kept_;
      bytes_kept_ += static_cast<std::uint64_t>(rows.integer(7));
    }
    if (rows.integer(8) != 0) continue;
    Identity identity{static_cast<std::uint64_t>(rows.integer(1)),
                      static_cast<std::uint64_t>(rows.integer(2)), rows.integer(3),
                      static_cast<std::uint64_t>(rows.integer(9))};
    Known known;
    known.id = rows.integer(0);
    known.created = rows.integer(4) != 0;
    known.stands_for_pre_existing = rows.integer(5) != 0;
    known.touched = was_cut_short;
    known.content_kept = how != HowKept::not_kept;
    known_.insert_or_assign(identity, known);
  }
  return load_gained();
}

Status Ledger::load_gained() {
  auto rows = ANCHORHOLD_TRY(database_.prepare(
      "SELECT g.device, g.inode, g.birth_ns, g.generation, g.name, g.number, o.device, o.inode, o.birth_ns, "
      "o.generation, o.path, o.mode, g.linked FROM gained g JOIN object o ON o.id = g.object WHERE "
      "o.epoch=?1 "
      "ORDER BY g.number"));
  rows.bind(1, statements_->epoch);
  auto identity = [&](int column) {
    return Identity{static_cast<std::uint64_t>(rows.integer(column)),
                    static_cast<std::uint64_t>(rows.integer(column + 1)), rows.integer(column + 2),
                    static_cast<std::uint64_t>(rows.integer(column + 3))};
  };
  while (ANCHORHOLD_TRY(rows.step())) {
    link_names_.insert_or_assign(LinkName{identity(0), std::string(rows.text(4))},
                                 GainedName{identity(6), rows.integer(5), rows.integer(12) != 0});
    if (S_ISDIR(static_cast<std::uint32_t>(rows.integer(11))))
      moved_folders_.insert_or_assign(identity(6), std::string(rows.text(10)));
  }
  return {};
}

}  // namespace anchorhold::mounts
