// The commands of a push.
#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <set>
#include <zlib.h>

#include "egress/git.h"

namespace anchorhold::egress {
namespace {

using policy::GitOperation;

constexpr std::size_t largest_line = 65520, length_digits = 4;
constexpr std::size_t max_reason = 200, max_ref_text = 1500;

tl::unexpected<Error> refuse(std::string what) {
  return fail(ErrorCode::permission_denied, std::move(what));
}

// -1 for what is no number of four lower-case hexadecimal digits.
int line_length(std::string_view digits) {
  int length = 0;
  for (char c : digits.substr(0, length_digits)) {
    int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return -1;
    length = length * 16 + digit;
  }
  return length;
}

bool is_id(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

std::string printable(std::string_view text, std::size_t most) {
  std::string result;
  for (char c : text.substr(0, most)) result += c >= 0x20 && c < 0x7f ? c : '?';
  return result;
}

void add_line(std::string& out, std::string_view payload) {
  fmt::format_to(std::back_inserter(out), "{:04x}{}", payload.size() + length_digits, payload);
}

}  // namespace

// Only as much is decompressed as the commands need.
struct GitPushReader::Inflater {
  Inflater() { usable = inflateInit2(&stream, 15 + 16) == Z_OK; }
  ~Inflater() {
    if (usable) inflateEnd(&stream);
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  z_stream stream{};
  bool usable = false, over = false;
};

GitPushReader::GitPushReader(bool gzip) {
  if (gzip) inflater_ = std::make_unique<Inflater>();
}
GitPushReader::~GitPushReader() = default;
GitPushReader::GitPushReader(GitPushReader&&) noexcept = default;
GitPushReader& GitPushReader::operator=(GitPushReader&&) noexcept = default;

Result<bool> GitPushReader::take(std::string_view bytes) {
  if (!inflater_) {
    ANCHORHOLD_CHECK(take_plain(bytes));
    return section_ == Section::whole;
  }
  z_stream& stream = inflater_->stream;
  if (!inflater_->usable) return fail(ErrorCode::resource_exhausted, "there is no memory to decompress");
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  std::array<char, 4096> part;
  while (section_ != Section::whole) {
    if (inflater_->over) {
      if (stream.avail_in > 0) return refuse("something follows the compressed commands of the push");
      break;
    }
    stream.next_out = reinterpret_cast<Bytef*>(part.data());
    stream.avail_out = part.size();
    int result = inflate(&stream, Z_SYNC_FLUSH);
    std::size_t count = part.size() - stream.avail_out;
    // What stands before a fault is taken, or the fault would count or not by how the body comes in pieces.
    ANCHORHOLD_CHECK(take_plain({part.data(), count}));
    if (section_ == Section::whole) break;
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR)
      return refuse("the compressed body of the push cannot be read");
    inflater_->over = result == Z_STREAM_END;
    if (count == 0 && stream.avail_in == 0) break;
  }
  return section_ == Section::whole;
}

Status GitPushReader::take_plain(std::string_view bytes) {
  while (!bytes.empty() && section_ != Section::whole) {
    if (section_ == Section::nothing) return refuse("the push has no commands, and more than that");
    if (++total_ > max_push_commands)
      return refuse(
          fmt::format("the push changes too many refs at once (its commands are longer than {} KiB)",
                      max_push_commands / 1024));
    line_ += bytes.front();
    bytes.remove_prefix(1);
    if (line_.size() < length_digits) continue;
    int length = line_length(line_);
    if (length < 0 || length > static_cast<int>(largest_line))
      return refuse("the push is not made of Git's lines");
    if (length == 0) {
      line_.clear();
      ANCHORHOLD_CHECK(take_flush());
      continue;
    }
    if (length <= static_cast<int>(length_digits)) return refuse("a line that does not belong into a push");
    if (line_.size() < static_cast<std::size_t>(length)) {
      // All of it that is there, at once.
      std::size_t count = std::min(bytes.size(), static_cast<std::size_t>(length) - line_.size());
      line_ += bytes.substr(0, count);
      total_ += count;
      bytes.remove_prefix(count);
    }
    if (line_.size() < static_cast<std::size_t>(length)) continue;
    std::string_view payload = std::string_view(line_).substr(length_digits);
    if (payload.ends_with('\n')) payload.remove_suffix(1);
    ANCHORHOLD_CHECK(take_line(payload));
    line_.clear();
  }
  return {};
}

Status GitPushReader::take_line(std::string_view payload) {
  if (section_ == Section::commands) return take_command(payload);
  if (payload.find('\0') != std::string_view::npos) return refuse("a push option with a NUL");
  push_.options.emplace_back(payload);
  return {};
}

Status GitPushReader::take_flush() {
  if (section_ == Section::options)
    section_ = Section::whole;
  else if (push_.commands.empty())
    section_ = has_shallow_ ? Section::whole : Section::nothing;
  else
    section_ = push_.has_options ? Section::options : Section::whole;
  if (section_ == Section::whole && push_.commands.empty()) return refuse("the push has no commands");
  return {};
}

// "old-id new-id ref", and after a NUL on the first of them what the client can and wants.
Status GitPushReader::take_command(std::string_view payload) {
  constexpr std::string_view shallow = "shallow ";
  if (payload.starts_with(shallow)) {
    payload.remove_prefix(shallow.size());
    if (!push_.commands.empty() || (payload.size() != 40 && payload.size() != 64) || !is_id(payload))
      return refuse("a malformed line about a shallow clone");
    has_shallow_ = true;
    return {};
  }
  if (payload.starts_with("push-cert"))
    return refuse("signed pushes (git push --signed) are not allowed, since they cannot be judged");
  std::string_view command = payload.substr(0, payload.find('\0'));
  if (push_.commands.empty()) {
    auto first_space = command.find(' ');
    id_size_ = first_space == std::string_view::npos ? 0 : first_space;
    if (command.size() < payload.size())
      ANCHORHOLD_CHECK(take_capabilities(payload.substr(command.size() + 1)));
  } else if (command.size() < payload.size()) {
    return refuse("a NUL where it does not belong in the commands of the push");
  }
  bool shape = (id_size_ == 40 || id_size_ == 64) && command.size() > 2 * id_size_ + 2 &&
               command[id_size_] == ' ' && command[2 * id_size_ + 1] == ' ';
  if (!shape) return refuse("a malformed command in the push");
  GitPush::Command read{std::string(command.substr(0, id_size_)),
                        std::string(command.substr(id_size_ + 1, id_size_)),
                        std::string(command.substr(2 * id_size_ + 2))};
  if (!is_id(read.old_id) || !is_id(read.new_id) || (read.creates() && read.removes()))
    return refuse("a malformed command in the push");
  if (!policy::is_ref_name(read.ref))
    return refuse(fmt::format("{} is no name of a ref", printable(read.ref, max_reason)));
  push_.commands.push_back(std::move(read));
  return {};
}

// Those that are known, and change nothing about which refs are touched.
Status GitPushReader::take_capabilities(std::string_view list) {
  if (list.find('\0') != std::string_view::npos) return refuse("a second NUL in the commands of the push");
  while (!list.empty()) {
    auto space = std::min(list.find(' '), list.size());
    std::string_view capability = list.substr(0, space);
    list.remove_prefix(std::min(space + 1, list.size()));
    if (capability.empty() || capability == "delete-refs" || capability == "ofs-delta" ||
        capability == "quiet" || capability == "atomic" || capability.starts_with("agent=") ||
        capability.starts_with("session-id="))
      continue;
    if (capability == "report-status" || capability == "report-status-v2")
      push_.report_status = true;
    else if (capability == "side-band-64k")
      push_.side_band = true;
    else if (capability == "push-options")
      push_.has_options = true;
    else if ((capability == "object-format=sha1" && id_size_ == 40) ||
             (capability == "object-format=sha256" && id_size_ == 64))
      continue;
    else
      return refuse(fmt::format("the push asks for '{}', which is not known here, so it cannot be judged",
                                printable(capability, max_reason)));
  }
  return {};
}

Status GitPushReader::end() {
  if (section_ == Section::nothing) section_ = Section::whole;
  if (section_ == Section::whole) return {};
  return refuse("the push ended before its commands did");
}

HeldPush::HeldPush(const BodyFraming& framing, bool gzip) : framing_(framing), reader_(gzip) {}

Result<bool> HeldPush::look(std::string_view body) {
  bool length = framing_.kind == BodyFraming::Kind::length;
  if (length)
    body = body.substr(0, static_cast<std::size_t>(std::min<std::uint64_t>(body.size(), framing_.length)));
  bool over = framing_.kind == BodyFraming::Kind::none;
  while (!over) {
    std::string_view news = body.substr(seen_);
    if (length) {
      seen_ = body.size();
      if (ANCHORHOLD_TRY(reader_.take(news))) return true;
      over = seen_ == framing_.length;
      if (!over) break;
    } else {
      auto step = ANCHORHOLD_TRY(chunks_.next(news));
      seen_ += step.consumed;
      if (step.kind == ChunkedReader::Step::Kind::data) {
        if (ANCHORHOLD_TRY(reader_.take(step.data))) return true;
      } else {
        over = step.kind == ChunkedReader::Step::Kind::done;
        if (!over) break;
      }
    }
  }
  if (over) {
    ANCHORHOLD_CHECK(reader_.end());
    return true;
  }
  if (body.size() > 2 * max_push_commands) return refuse("the commands of the push come in pieces too small");
  return false;
}

GitPushJudgement judge_git_push(const GitPush& push, std::string_view repository,
                                const std::vector<policy::GitGrant>& grants) {
  GitPushJudgement judgement;
  std::set<std::string_view> seen;
  auto refused = [&](std::string reason) {
    if (judgement.reason.empty()) judgement.reason = reason;
    return reason;
  };
  for (const auto& command : push.commands) {
    std::string reason;
    bool named = policy::git_allows_ref(grants, repository, GitOperation::push, command.ref);
    if (!seen.insert(command.ref).second)
      reason = fmt::format("{} stands twice in the push", command.ref);
    else if (!named)
      reason = fmt::format("a push to {} may change {}, not {}", repository,
                           policy::git_refs_of(grants, repository), command.ref);
    else if (command.removes() &&
             !policy::git_allows_ref(grants, repository, GitOperation::deletes, command.ref))
      reason = fmt::format("a push to {} may not delete {}", repository, command.ref);
    judgement.of_refs.push_back(reason.empty() ? reason : refused(std::move(reason)));
  }
  for (const auto& option : push.options)
    if (!policy::git_allows_option(grants, repository, option))
      refused(fmt::format("the push option '{}' is not allowed for {}", printable(option, max_reason),
                          repository));
  return judgement;
}

std::string git_push_report(const GitPush& push, const GitPushJudgement& judgement, std::string_view words) {
  if (!push.report_status || push.commands.empty()) return {};
  std::string report;
  add_line(report, "unpack ok\n");
  for (std::size_t i = 0; i < push.commands.size(); ++i) {
    std::string reason = "not sent, since the push as a whole is refused";
    if (i < judgement.of_refs.size() && !judgement.of_refs[i].empty()) reason = "not allowed";
    add_line(report, fmt::format("ng {} {}\n", push.commands[i].ref, reason));
  }
  report += "0000";
  if (!push.side_band) return report;
  std::string out;
  if (!words.empty()) add_line(out, fmt::format("\x02{}\n", words.substr(0, 4096)));
  constexpr std::size_t room = largest_line - length_digits - 1;
  for (std::size_t at = 0; at < report.size(); at += room) add_line(out, "\x01" + report.substr(at, room));
  return out + "0000";
}

std::string text_of_refs(const GitPush& push) {
  std::string text;
  for (const auto& command : push.commands) {
    if (text.size() > max_ref_text) return text + fmt::format(" and others, {} in all", push.commands.size());
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ",
                        command.removes()   ? "delete"
                        : command.creates() ? "create"
                                            : "update",
                        command.ref);
  }
  return text;
}

}  // namespace anchorhold::egress
