#include <algorithm>
#include <fmt/format.h>

#include "text.h"
#include "tool.h"

namespace anchorhold::agent {
namespace {

constexpr std::size_t max_edit_bytes = 16u << 20;
constexpr std::size_t max_scan_bytes = 64u << 20;  // read to find a line
constexpr std::size_t chunk_bytes = 1u << 20;
constexpr std::size_t max_listed = 500;

// Lines [first, first + count) of a file, as far as they fit the cap.
struct Lines {
  std::string bytes;
  std::uint64_t last = 0;  // number of the last line in it, also when it is cut; 0: none
  bool at_end = false;
  bool cut = false;      // the last line is longer than fits
  bool too_far = false;  // the line was not found within max_scan_bytes
};

Result<Lines> read_lines(FileAccess& files, const std::string& path, std::uint64_t first, std::uint64_t count,
                         std::size_t cap) {
  Lines lines;
  std::uint64_t line = 1;
  for (std::uint64_t offset = 0;;) {
    std::string chunk = ANCHORHOLD_TRY(files.read(path, offset, chunk_bytes));
    std::string_view rest = chunk;
    while (!rest.empty()) {
      auto newline = rest.find('\n');
      std::string_view piece = rest.substr(0, newline == rest.npos ? rest.size() : newline + 1);
      rest.remove_prefix(piece.size());
      if (line >= first + count) return lines;
      if (line >= first) {
        std::size_t room = cap - lines.bytes.size();
        // A line that does not fit goes to the next call whole, unless it is the first.
        if (piece.size() > room) {
          if (lines.last == 0 || lines.last == line) {
            lines.bytes += piece.substr(0, room);
            lines.last = line;
            lines.cut = true;
          }
          return lines;
        }
        lines.bytes += piece;
        lines.last = line;
      }
      if (newline != rest.npos && piece.back() == '\n') ++line;
    }
    offset += chunk.size();
    if (chunk.size() < chunk_bytes) {
      lines.at_end = true;
      return lines;
    }
    if (lines.last == 0 && offset >= max_scan_bytes) {
      lines.too_far = true;
      return lines;
    }
  }
}

class ReadFile : public Tool {
 public:
  ToolSpec spec() const override {
    return {"read_file",
            "Reads a text file, or lines of it. Bytes that are not UTF-8 are shown as \xef\xbf\xbd.",
            R"({"type":"object","additionalProperties":false,"required":["path"],"properties":{
"path":{"type":"string","minLength":1,"maxLength":4096,"description":"for example /mnt/report/notes.txt"},
"first_line":{"type":"integer","minimum":1,"description":"1 if left out"},
"lines":{"type":"integer","minimum":1,"description":"how many; as many as fit if left out"}}})"};
  }

  std::string describe(const Json& input) const override { return one_line(string_or(input, "path")); }

  ToolOutcome run(const Json& input, ToolContext& context) const override {
    std::string path = guest_path(string_or(input, "path"));
    auto info = context.files.stat(path);
    if (!info) return tool_error(info.error());
    if (info->kind == FileKind::directory) return tool_error(fmt::format("{} is a folder: use list", path));
    auto beginning = context.files.read(path, 0, 8192);
    if (!beginning) return tool_error(beginning.error());
    if (looks_binary(*beginning))
      return tool_error(
          fmt::format("{} is a binary file of {} bytes: look at it with shell (file, xxd, python3)", path,
                      grouped(info->size)));
    std::uint64_t first = uint_or(input, "first_line", 1);
    auto lines =
        read_lines(context.files, path, first, uint_or(input, "lines", UINT32_MAX), context.result_cap);
    if (!lines) return tool_error(lines.error());
    if (lines->too_far)
      return tool_error(fmt::format("line {} is beyond the first {} bytes: use shell (sed, awk)", first,
                                    grouped(max_scan_bytes)));
    if (lines->last == 0)
      return info->size == 0 ? tool_ok("[the file is empty]", "empty")
                             : tool_error(fmt::format("{} has fewer than {} lines", path, first));
    std::size_t replaced = 0;
    std::string text = clean_utf8(
        lines->cut ? prefix_at_boundary(lines->bytes, lines->bytes.size()) : lines->bytes, &replaced);
    std::string summary = counted(lines->last - first + 1, "line", "lines");
    std::string note;
    if (lines->cut)
      note += fmt::format("[line {} is cut here: it is too long; use shell for the rest]", lines->last);
    if (!lines->at_end)
      note += fmt::format("[the file goes on: continue with first_line {}]", lines->last + 1);
    if (replaced > 0)
      note += fmt::format("[not UTF-8: {} replaced by U+FFFD; use shell to convert (iconv, python3)]",
                          counted(replaced, "byte", "bytes"));
    if (!note.empty()) text += (text.empty() || text.ends_with('\n') ? "" : "\n") + note;
    return tool_ok(std::move(text), std::move(summary));
  }
};

class WriteFile : public Tool {
 public:
  ToolSpec spec() const override {
    return {"write_file",
            "Writes a text file: makes it, or replaces all of it. Folders above it are made as needed.",
            R"({"type":"object","additionalProperties":false,"required":["path","content"],"properties":{
"path":{"type":"string","minLength":1,"maxLength":4096},
"content":{"type":"string","maxLength":16777216}}})"};
  }

  std::string describe(const Json& input) const override { return one_line(string_or(input, "path")); }

  ToolOutcome run(const Json& input, ToolContext& context) const override {
    std::string path = guest_path(string_or(input, "path"));
    std::string content = string_or(input, "content");
    if (auto written = context.files.write(path, content); !written) return tool_error(written.error());
    std::string size = counted(content.size(), "byte", "bytes");
    return tool_ok(fmt::format("wrote {} to {}", size, path), size);
  }
};

class EditFile : public Tool {
 public:
  ToolSpec spec() const override {
    return {
        "edit_file",
        "Replaces text in a file. old_text must stand in the file exactly once, byte for byte, including "
        "white space; give "
        "enough of its surroundings to make it so, or set replace_all.",
        R"({"type":"object","additionalProperties":false,"required":["path","old_text","new_text"],"properties":{
"path":{"type":"string","minLength":1,"maxLength":4096},
"old_text":{"type":"string","minLength":1,"maxLength":16777216},
"new_text":{"type":"string","maxLength":16777216},
"replace_all":{"type":"boolean"}}})"};
  }

  std::string describe(const Json& input) const override { return one_line(string_or(input, "path")); }

  ToolOutcome run(const Json& input, ToolContext& context) const override {
    std::string path = guest_path(string_or(input, "path"));
    std::string old_text = string_or(input, "old_text");
    std::string new_text = string_or(input, "new_text");
    if (old_text == new_text) return tool_error("old_text and new_text are the same: nothing to do");
    auto content = context.files.read(path, 0, max_edit_bytes + 1);
    if (!content) return tool_error(content.error());
    if (content->size() > max_edit_bytes)
      return tool_error(
          fmt::format("{} is larger than {} bytes: edit it with shell", path, grouped(max_edit_bytes)));
    std::string edited;
    std::size_t count = 0;
    std::size_t from = 0;
    for (auto at = content->find(old_text); at != content->npos; at = content->find(old_text, from)) {
      edited.append(*content, from, at - from);
      edited += new_text;
      from = at + old_text.size();
      ++count;
    }
    edited.append(*content, from);
    if (count == 0)
      return tool_error(
          fmt::format("old_text does not stand in {}: read the file and copy the text exactly", path));
    if (count > 1 && !bool_or(input, "replace_all"))
      return tool_error(fmt::format(
          "old_text stands {} times in {}: give more of its surroundings, or set replace_all", count, path));
    if (edited.size() > max_edit_bytes * 2) return tool_error("the edited file would be too large");
    if (auto written = context.files.write(path, edited); !written) return tool_error(written.error());
    std::string how = counted(count, "replacement", "replacements");
    return tool_ok(fmt::format("{} in {}", how, path), how);
  }
};

class List : public Tool {
 public:
  ToolSpec spec() const override {
    return {"list", "Lists a folder. /mnt lists the granted folders.",
            R"({"type":"object","additionalProperties":false,"properties":{
"path":{"type":"string","maxLength":4096,"description":"/mnt if left out"}}})"};
  }

  std::string describe(const Json& input) const override {
    return one_line(string_or(input, "path", "/mnt"));
  }

  ToolOutcome run(const Json& input, ToolContext& context) const override {
    std::string path = guest_path(string_or(input, "path"));
    auto listing = context.files.list(path, max_listed);
    if (!listing) return tool_error(listing.error());
    std::string text;
    for (const auto& entry : listing->entries) {
      std::string name = clean_utf8(entry.name);
      std::replace(name.begin(), name.end(), '\n', ' ');
      switch (entry.info.kind) {
        case FileKind::directory:
          text += name + "/\n";
          break;
        case FileKind::symlink:
          text += name + " (symlink)\n";
          break;
        case FileKind::other:
          text += name + " (special file)\n";
          break;
        case FileKind::file:
          text += fmt::format("{} ({})\n", name, counted(entry.info.size, "byte", "bytes"));
          break;
      }
    }
    if (listing->truncated)
      text += fmt::format("[only the first {} are shown: use glob, or shell]\n", max_listed);
    if (text.empty()) text = path == "/mnt" ? "[no folder is granted]" : "[the folder is empty]";
    return tool_ok(std::move(text), counted(listing->entries.size(), "entry", "entries"));
  }
};

}  // namespace

void add_file_tools(ToolSet& tools) {
  tools.push_back(std::make_unique<ReadFile>());
  tools.push_back(std::make_unique<WriteFile>());
  tools.push_back(std::make_unique<EditFile>());
  tools.push_back(std::make_unique<List>());
}

}  // namespace anchorhold::agent
