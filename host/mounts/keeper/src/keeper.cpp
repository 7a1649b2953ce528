#include "keeper.h"

#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>

#include "placeholder.h"

namespace anchorhold::mounts {
namespace {

// In the place of an errno: nothing was done yet, and a person has to be asked.
constexpr int ask_first = -1;

}  // namespace

Answer Keeper::handle(const Request& request, const std::vector<UniqueFd>& descriptors) {
  ++requests_;
  Answer answer;
  answer.reply.magic = keeper_magic;
  answer.reply.id = request.header.id;
  auto outcome = dispatch_guarded(request, descriptors);
  if (!outcome) {
    answer.reply.error = outcome.error();
    return answer;
  }
  answer.reply.numbers = outcome->numbers;
  answer.descriptor = std::move(outcome->descriptor);
  answer.reply.descriptors = answer.descriptor ? 1 : 0;
  return answer;
}

// The question is asked here, where no lock is held: other requests go on meanwhile.
Keeper::Outcome Keeper::dispatch_guarded(const Request& request, const std::vector<UniqueFd>& descriptors) {
  for (;;) {
    auto outcome = dispatch(request, descriptors);
    if (outcome || outcome.error() != ask_first) return outcome;
    if (request.header.hurried) return refuse_with(would_wait);
    auto located = descriptors.empty() ? refuse_with(ESTALE) : tree_.locate(descriptors.back().get());
    std::string path = located ? located->path : std::string();
    auto name = request.new_name.empty() ? request.name : request.new_name;
    if (!name.empty()) path += (path.empty() ? "" : "/") + std::string(name);
    if (guard_.ask(to_string(request.header.verb), path)) continue;
    report(ReportKind::refused, request, path, EACCES,
           "too many removals or rewrites of what was there before, and nobody allowed more");
    return refuse_with(EACCES);
  }
}

Keeper::Outcome Keeper::dispatch(const Request& request, const std::vector<UniqueFd>& descriptors) {
  auto fd = [&](std::size_t i) { return descriptors[i].get(); };
  switch (request.header.verb) {
    case Verb::open_for_write:
      return open_for_write(request, fd(0));
    case Verb::create:
      return create(request, fd(0));
    case Verb::make_directory:
      return make_directory(request, fd(0));
    case Verb::make_symlink:
      return make_symlink(request, fd(0));
    case Verb::link:
      return link(request, fd(0), fd(1));
    case Verb::unlink:
      return remove(request, fd(0), false);
    case Verb::remove_directory:
      return remove(request, fd(0), true);
    case Verb::rename:
      return rename(request, fd(0), fd(1));
    case Verb::set_attributes:
      return set_attributes(request, fd(0));
    case Verb::truncate:
      return truncate(request, fd(0));
    case Verb::allocate:
      return allocate(request, fd(0));
    case Verb::set_xattr:
      return set_xattr(request, fd(0));
    case Verb::remove_xattr:
      return remove_xattr(request, fd(0));
    case Verb::temporary_file:
      return refuse_with(ENOTSUP);
    case Verb::statistics:
      return statistics();
    case Verb::account:
      return account(request.header.size);
    case Verb::look_up_own:
      return look_up_own(request, fd(0));
  }
  return refuse_with(ENOSYS);
}

Keeper::Outcome Keeper::statistics() {
  Done done;
  done.numbers = {requests_,
                  refused_,
                  created_,
                  removed_,
                  ledger_->objects_kept(),
                  ledger_->bytes_kept(),
                  ledger_->quota_bytes(),
                  bytes_written_};
  return done;
}

Keeper::Outcome Keeper::account(std::uint64_t bytes) {
  std::uint64_t before = bytes_written_;
  do {
    if (bytes > limits_.bytes_written || before > limits_.bytes_written - bytes) return refuse_with(EDQUOT);
  } while (!bytes_written_.compare_exchange_weak(before, before + bytes));
  return Done{};
}

// Never below zero: what an earlier keeper of the session made may be removed under this one.
void Keeper::release_file() {
  std::uint64_t before = files_;
  while (before > 0 && !files_.compare_exchange_weak(before, before - 1)) {
  }
}

int Keeper::check_file_quota(const Request& request, const std::string& path) {
  if (files_ < limits_.files) return 0;
  report(ReportKind::refused, request, path, EDQUOT,
         fmt::format("the session has made {} files, which is its quota", limits_.files));
  return EDQUOT;
}

Checked<Located> Keeper::locate(const Request& request, int passed) {
  auto located = tree_.locate(passed);
  if (located && is_own_from_hidden(*located)) return located;
  int error = located ? EACCES : located.error();
  if (error == EACCES)
    report(ReportKind::refused, request, "", error, "a name in the path is hidden in this grant");
  if (error != ESTALE) return refuse_with(error);
  // Removed, but still open somewhere in the guest.
  auto attributes = attributes_of(passed);
  if (attributes && attributes->links == 0 && S_ISREG(attributes->mode) &&
      ledger_->is_removed_object(identity_of(*attributes, generation_of(passed)))) {
    Located removed;
    removed.fd = UniqueFd(fcntl(passed, F_DUPFD_CLOEXEC, 3));
    if (!removed.fd) return refuse_with(errno);
    removed.attributes = *attributes;
    removed.generation = generation_of(passed);
    removed.removed = true;
    return removed;
  }
  report(ReportKind::refused, request, "", error, "the object is not in the granted folder (any more)");
  return located;
}

Checked<Located> Keeper::locate_folder(const Request& request, int passed) {
  auto located = locate(request, passed);
  if (located && !located->is_folder()) return refuse_with(ENOTDIR);
  return located;
}

Checked<Located> Keeper::locate_changeable(const Request& request, int passed) {
  auto located = locate(request, passed);
  // With a single granted file, the folder it lies in is only there to be looked into.
  if (located && tree_.is_single_file() && !located->removed && located->path.empty())
    return refuse_with(EACCES);
  return located;
}

Checked<Located> Keeper::folder_for(const Request& request, int passed, std::string_view name) {
  auto folder = locate_folder(request, passed);
  return folder ? with_name(request, std::move(*folder), name) : folder;
}

Checked<Located> Keeper::with_name(const Request& request, Located folder, std::string_view name) {
  int error = tree_.check_name(folder, name);
  if (error == 0) error = check_hidden(folder, name);
  if (error == 0) return folder;
  std::string path = folder.path.empty() ? std::string(name) : folder.path + "/" + std::string(name);
  if (error == EINVAL)
    report(ReportKind::violation, request, path, error, "not a file name");
  else
    report(ReportKind::refused, request, path, error,
           "the name is hidden in this grant, or not the granted file");
  return refuse_with(error);
}

Checked<Decision> Keeper::decide_for(const Request& request, Operation operation, const Located& object,
                                     const Facts& facts) {
  Decision decision = decide(mode_, operation, facts);
  if (decision.error != 0) {
    report(ReportKind::refused, request, object.path, decision.error, decision.reason);
    return refuse_with(decision.error);
  }
  if (int error = check_bulk(request, operation, object, facts); error != 0) return refuse_with(error);
  return decision;
}

int Keeper::keep(const Request& request, const Decision& decision, const Located& object) {
  if (object.removed) return 0;
  const auto wait = request.header.hurried ? Ledger::Wait::not_for_long : Ledger::Wait::yes;
  int error = decision.keep_object     ? ledger_->keep_content(object, wait)
              : decision.record_object ? ledger_->record(object)
                                       : 0;
  return error == 0 || error == would_wait ? error : report_unkept(request, object.path, error);
}

int Keeper::report_unkept(const Request& request, const std::string& path, int error) {
  report(ReportKind::refused, request, path, error,
         error == EDQUOT ? "what it would replace cannot be kept: the ledger's quota is used up"
                         : "what it would replace cannot be kept");
  return error;
}

void Keeper::report(ReportKind kind, const Request& request, const std::string& path, int error,
                    std::string_view reason) {
  if (error != 0) ++refused_;
  Report text;
  text.kind = kind;
  text.error = error;
  text.operation = to_string(request.header.verb);
  text.path = path;
  text.reason = reason;
  reporter_.send(std::move(text));
}

bool Keeper::is_own(const Located& object) const {
  return !ledger_->subject(object).pre_existing;
}

bool Keeper::is_own_from_hidden(const Located& object) const {
  auto begin = tree_.find_hidden(object.path);
  if (begin == std::string_view::npos) return true;
  auto folder = tree_.at(object.path.substr(0, begin == 0 ? 0 : begin - 1));
  if (!folder || !is_own(*folder) || !is_own(object)) return false;
  for (auto end = object.path.find('/', begin); end != std::string::npos;
       end = object.path.find('/', end + 1)) {
    auto part = tree_.at(object.path.substr(0, end));
    if (!part || !is_own(*part)) return false;
  }
  return true;
}

int Keeper::check_hidden(const Located& folder, std::string_view name) const {
  if (!tree_.hides(name)) return 0;
  if (!is_own(folder)) return EACCES;
  auto existing = tree_.entry(folder, name);
  if (!existing) return existing.error() == ENOENT ? 0 : EACCES;
  return is_own(*existing) ? 0 : EACCES;
}

int Keeper::check_hidden_objects(const Request& request, const Located& object, const Located* other,
                                 bool hidden_name) {
  if (!hidden_name || (is_own(object) && (!other || is_own(*other)))) return 0;
  report(ReportKind::refused, request, object.path, EACCES, "what was there before cannot get a hidden name");
  return EACCES;
}

Keeper::Outcome Keeper::look_up_own(const Request& request, int folder_fd) {
  std::shared_lock lock(names_);
  auto folder = tree_.locate(folder_fd);
  if (!folder) return refuse_with(folder.error());
  if (!folder->is_folder()) return refuse_with(ENOTDIR);
  if (tree_.check_name(*folder, request.name) != 0 || !is_own_from_hidden(*folder) || !is_own(*folder))
    return refuse_with(ENOENT);
  auto object = tree_.entry(*folder, request.name);
  if (!object || !is_own(*object)) return refuse_with(ENOENT);
  return Done{};
}

int Keeper::check_placeholder(const Request& request, const Located& object, const Subject& subject) {
  if (!subject.pre_existing || object.removed) return 0;
  auto whose = placeholder_of(object);
  if (whose.empty()) return 0;
  report(ReportKind::refused, request, object.path, EACCES,
         fmt::format("its content is not on this computer: it is a placeholder of {}; open it there first",
                     whose));
  return EACCES;
}

int Keeper::check_bulk(const Request& request, Operation operation, const Located& object,
                       const Facts& facts) {
  const bool old = facts.object.exists && facts.object.pre_existing && !object.removed;
  const bool old_target = facts.target.exists && facts.target.pre_existing;
  auto now = std::chrono::steady_clock::now();
  auto judgement = BulkGuard::Judgement::go_on;
  switch (operation) {
    case Operation::write:
      if (old) judgement = guard_.judge_rewrite(object.identity(), now);
      break;
    case Operation::remove:
    case Operation::rename:
    case Operation::exchange:
      if (old || old_target) judgement = guard_.judge(now);
      break;
    case Operation::create:
    case Operation::link:
    case Operation::set_attributes:
      break;
  }
  if (judgement == BulkGuard::Judgement::go_on) return 0;
  if (judgement == BulkGuard::Judgement::ask) return ask_first;
  report(ReportKind::refused, request, object.path, EACCES,
         "too many removals or rewrites of what was there before; refused until there is a quiet minute");
  return EACCES;
}

void Keeper::report_malformed(const Error& error) {
  Report text;
  text.kind = ReportKind::violation;
  text.error = EPROTO;
  text.operation = "keeper protocol";
  text.reason = error.message;
  reporter_.send(std::move(text));
}

}  // namespace anchorhold::mounts
