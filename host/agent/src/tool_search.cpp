#include <algorithm>
#include <fmt/format.h>
#include <re2/re2.h>

#include "glob.h"
#include "text.h"
#include "tool.h"

namespace anchorhold::agent {
namespace {

constexpr std::size_t max_visited = 50'000;  // entries looked at in one search
constexpr std::size_t max_depth = 64;
constexpr std::size_t max_in_folder = 20'000;
constexpr std::size_t max_found = 500;                  // files named by glob, lines shown by grep
constexpr std::uint64_t max_file_bytes = 32u << 20;     // larger files are not searched
constexpr std::uint64_t max_search_bytes = 512u << 20;  // read in one search
constexpr std::size_t chunk_bytes = 1u << 20;
constexpr std::size_t max_line_bytes = 300;  // of a line that is shown
constexpr std::int64_t max_regex_memory = 8 << 20;

struct Walk {
  std::size_t visited = 0;
  bool truncated = false;  // there was more than the limits allow
  std::vector<std::string> unreadable;
};

// Every file below the folder, in order, symlinks not followed. `visit` gets the whole path, the path below
// the folder, and what it is; false ends the walk.
template <typename Visit>
Result<Walk> walk(FileAccess& files, const std::string& root, const std::stop_token& stop, Visit&& visit) {
  struct Folder {
    std::string relative;
    std::size_t depth;
  };
  Walk done;
  std::vector<Folder> open{{"", 0}};
  while (!open.empty()) {
    if (stop.stop_requested()) return fail(ErrorCode::cancelled, "stopped");
    Folder folder = std::move(open.back());
    open.pop_back();
    auto listing = files.list(folder.relative.empty() ? root : root + "/" + folder.relative, max_in_folder);
    if (!listing) {
      if (folder.depth == 0) return fail(listing.error());
      done.unreadable.push_back(folder.relative);
      continue;
    }
    done.truncated |= listing->truncated;
    std::vector<Folder> below;
    for (const auto& entry : listing->entries) {
      if (++done.visited > max_visited) {
        done.truncated = true;
        return done;
      }
      std::string relative = folder.relative.empty() ? entry.name : folder.relative + "/" + entry.name;
      if (entry.info.kind == FileKind::directory) {
        // The inside of a repository's store is nobody's text.
        if (entry.name == ".git") continue;
        if (folder.depth + 1 > max_depth) {
          done.truncated = true;
        } else {
          below.push_back({std::move(relative), folder.depth + 1});
        }
      } else if (!visit(root + "/" + relative, relative, entry.info)) {
        done.truncated = true;
        return done;
      }
    }
    open.insert(open.end(), std::make_move_iterator(below.rbegin()), std::make_move_iterator(below.rend()));
  }
  return done;
}

std::string remarks(const Walk& walk) {
  std::string text;
  if (walk.truncated) text += "[there is more: search a smaller folder, or use shell]\n";
  if (!walk.unreadable.empty())
    text += fmt::format("[{} could not be read, the first is {}]\n",
                        counted(walk.unreadable.size(), "folder", "folders"), clean_utf8(walk.unreadable[0]));
  return text;
}

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

class GlobTool : public Tool {
 public:
  ToolSpec spec() const override {
    return {"glob",
            "Finds files by name below a folder: *, ?, ** for any folders, [a-z], {a,b}. A pattern without / "
            "matches names at any depth.",
            R"({"type":"object","additionalProperties":false,"required":["pattern"],"properties":{
"pattern":{"type":"string","minLength":1,"maxLength":4096,"description":"for example *.csv or data/**/2024-*.json"},
"path":{"type":"string","maxLength":4096,"description":"the folder; /mnt if left out"}}})"};
  }

  std::string describe(const Json& input) const override { return one_line(string_or(input, "pattern")); }

  ToolOutcome run(const Json& input, ToolContext& context) const override {
    auto glob = Glob::parse(string_or(input, "pattern"));
    if (!glob) return tool_error(glob.error());
    std::string text;
    std::size_t found = 0;
    auto walked = walk(context.files, without_slash(guest_path(string_or(input, "path"))), context.stop,
                       [&](const std::string& path, const std::string& relative, const FileInfo&) {
                         if (!glob->matches(relative)) return true;
                         if (found == max_found || text.size() + path.size() > context.result_cap)
                           return false;
                         ++found;
                         text += clean_utf8(path) + "\n";
                         return true;
                       });
    if (!walked) return tool_error(walked.error());
    text += remarks(*walked);
    if (text.empty()) text = "[no file matches]";
    return tool_ok(std::move(text), counted(found, "file", "files"));
  }
};

// Searches one file line by line, in bounded memory.
class LineSearch {
 public:
  LineSearch(const RE2& regex, std::size_t cap) : regex_(regex), cap_(cap) {}

  // False: enough was found.
  Result<bool> search(FileAccess& files, const std::string& path, std::uint64_t size) {
    std::string pending;
    std::uint64_t line = 1;
    bool binary = false;
    for (std::uint64_t offset = 0; offset < size || offset == 0;) {
      std::string chunk = ANCHORHOLD_TRY(files.read(path, offset, chunk_bytes));
      if (offset == 0) binary = looks_binary(chunk);
      if (binary || chunk.empty()) break;
      offset += chunk.size();
      bytes_ += chunk.size();
      pending += chunk;
      std::size_t begin = 0;
      for (auto end = pending.find('\n'); end != pending.npos; end = pending.find('\n', begin)) {
        if (!try_line(path, line++, std::string_view(pending).substr(begin, end - begin))) return false;
        begin = end + 1;
      }
      pending.erase(0, begin);
      if (chunk.size() < chunk_bytes) break;
    }
    return pending.empty() || binary || try_line(path, line, pending);
  }

  std::string text;
  std::size_t found = 0;
  std::uint64_t bytes() const { return bytes_; }

 private:
  bool try_line(const std::string& path, std::uint64_t number, std::string_view line) {
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!RE2::PartialMatch(re2::StringPiece(line.data(), line.size()), regex_)) return true;
    std::string shown = clean_utf8(prefix_at_boundary(line, max_line_bytes));
    std::string entry = fmt::format("{}:{}: {}{}\n", clean_utf8(path), number, shown,
                                    line.size() > max_line_bytes ? " …" : "");
    if (found == max_found || text.size() + entry.size() > cap_) return false;
    text += entry;
    ++found;
    return true;
  }

  const RE2& regex_;
  std::size_t cap_;
  std::uint64_t bytes_ = 0;
};

class Grep : public Tool {
 public:
  ToolSpec spec() const override {
    return {"grep",
            "Finds lines by a regular expression (RE2 syntax: no look-around, no back references) in the "
            "text files below a folder, or in one file.",
            R"({"type":"object","additionalProperties":false,"required":["pattern"],"properties":{
"pattern":{"type":"string","minLength":1,"maxLength":4096},
"path":{"type":"string","maxLength":4096,"description":"a folder or a file; /mnt if left out"},
"files":{"type":"string","minLength":1,"maxLength":4096,"description":"only files whose name matches, for example *.py"},
"ignore_case":{"type":"boolean"}}})"};
  }

  std::string describe(const Json& input) const override { return one_line(string_or(input, "pattern")); }

  ToolOutcome run(const Json& input, ToolContext& context) const override {
    RE2::Options options;
    options.set_log_errors(false);
    options.set_max_mem(max_regex_memory);
    options.set_case_sensitive(!bool_or(input, "ignore_case"));
    RE2 regex(string_or(input, "pattern"), options);
    if (!regex.ok()) return tool_error(fmt::format("the regular expression is not valid: {}", regex.error()));
    auto names = Glob::parse(string_or(input, "files", "**"));
    if (!names) return tool_error(names.error());
    std::string path = without_slash(guest_path(string_or(input, "path")));
    LineSearch search(regex, context.result_cap);
    std::uint64_t skipped = 0;
    auto visit = [&](const std::string& file, const std::string& relative, const FileInfo& info) {
      if (info.kind != FileKind::file || !names->matches(relative)) return true;
      if (info.size > max_file_bytes) {
        ++skipped;
        return true;
      }
      if (context.stop.stop_requested() || search.bytes() > max_search_bytes) return false;
      auto more = search.search(context.files, file, info.size);
      if (!more) ++skipped;
      return !more || *more;
    };
    auto walked = search_in(path, context, visit);
    if (!walked) return tool_error(walked.error());
    std::string text = std::move(search.text) + remarks(*walked);
    if (skipped > 0)
      text +=
          fmt::format("[{} not searched: too large or not readable]\n", counted(skipped, "file", "files"));
    if (text.empty()) text = "[no line matches]";
    return tool_ok(std::move(text), counted(search.found, "line", "lines"));
  }

 private:
  template <typename Visit>
  static Result<Walk> search_in(const std::string& path, ToolContext& context, Visit& visit) {
    if (path != "/mnt") {
      auto info = ANCHORHOLD_TRY(context.files.stat(path));
      if (info.kind != FileKind::directory) {
        Walk one;
        one.truncated = !visit(path, path.substr(path.rfind('/') + 1), info);
        return one;
      }
    }
    return walk(context.files, path, context.stop, visit);
  }
};

}  // namespace

void add_search_tools(ToolSet& tools) {
  tools.push_back(std::make_unique<GlobTool>());
  tools.push_back(std::make_unique<Grep>());
}

}  // namespace anchorhold::agent
