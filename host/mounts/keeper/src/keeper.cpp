#include "keeper.h"

#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>

namespace anchorhold::mounts {

Answer Keeper::handle(const Request& request, const std::vector<UniqueFd>& descriptors) {
  ++requests_;
  Answer answer;
  answer.reply.magic = keeper_magic;
  answer.reply.id = request.header.id;
  auto outcome = dispatch(request, descriptors);
  if (!outcome) {
    answer.reply.error = outcome.error();
    return answer;
  }
  answer.reply.attributes = outcome->attributes;
  answer.reply.numbers = outcome->numbers;
  answer.descriptor = std::move(outcome->descriptor);
  answer.reply.descriptors = answer.descriptor ? 1 : 0;
  return answer;
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
                  0};
  return done;
}

Checked<Located> Keeper::locate(const Request& request, int passed) {
  auto located = tree_.locate(passed);
  if (located) return located;
  int error = located.error();
  if (error == EACCES)
    report(ReportKind::refused, request, "", error, "a name in the path is hidden in this grant");
  if (error != ESTALE) return located;
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
  if (!folder) return folder;
  int error = tree_.check_name(*folder, name);
  if (error == 0) return folder;
  std::string path = folder->path.empty() ? std::string(name) : folder->path + "/" + std::string(name);
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
  if (decision.error == 0) return decision;
  report(ReportKind::refused, request, object.path, decision.error, decision.reason);
  return refuse_with(decision.error);
}

int Keeper::keep(const Request& request, const Decision& decision, const Located& object) {
  if (object.removed) return 0;
  int error = decision.keep_object     ? ledger_->keep_content(object)
              : decision.record_object ? ledger_->record(object)
                                       : 0;
  return error == 0 ? 0 : report_unkept(request, object.path, error);
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

void Keeper::report_malformed(const Error& error) {
  Report text;
  text.kind = ReportKind::violation;
  text.error = EPROTO;
  text.operation = "keeper protocol";
  text.reason = error.message;
  reporter_.send(std::move(text));
}

}  // namespace anchorhold::mounts
