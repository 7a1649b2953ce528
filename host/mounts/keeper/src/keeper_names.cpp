// Verbs that change names: create, mkdir, symlink, link, unlink, rmdir, rename.
#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <mutex>
#include <sys/stat.h>
#include <unistd.h>

#include "keeper.h"

namespace anchorhold::mounts {
namespace {

std::string path_in(const Located& folder, std::string_view name) {
  return folder.path.empty() ? std::string(name) : folder.path + "/" + std::string(name);
}

std::string symlink_target(const Located& symlink) {
  std::string target(max_symlink_bytes + 1, '\0');
  ssize_t size = readlinkat(symlink.fd.get(), "", target.data(), target.size());
  target.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  return target;
}

}  // namespace

int Keeper::record_folder(const Request& request, const Located& folder) {
  if (!ledger_->subject(folder).pre_existing) return 0;
  int error = ledger_->record(folder);
  return error == 0 ? 0 : report_unkept(request, folder.path, error);
}

int Keeper::prepare_making(const Request& request, const Located& folder, const std::string& name) {
  if (int error = record_folder(request, folder); error != 0) return error;
  int error = ledger_->announce(folder, name);
  return error == 0 ? 0 : report_unkept(request, path_in(folder, name), error);
}

int Keeper::not_made(int error) {
  ledger_->forget_announced();
  return error;
}

Keeper::Outcome Keeper::finish_made(const Located& folder, const std::string& name, const UniqueFd& file) {
  auto object = file ? tree_.made(folder, name, file.get()) : tree_.entry(folder, name);
  if (!object) return refuse_with(not_made(object.error()));
  if (int error = ledger_->add_created(*object); error != 0) {
    unlinkat(folder.fd.get(), name.c_str(), object->is_folder() ? AT_REMOVEDIR : 0);
    return refuse_with(not_made(error));
  }
  ++created_;
  ++files_;
  return Done{};
}

int Keeper::check_escape(const Request& request, const std::string& path, std::string_view target) {
  if (!symlink_escapes(path, target)) return 0;
  int error = limits_.refuse_escaping_symlinks ? EACCES : 0;
  report(error ? ReportKind::refused : ReportKind::warning, request, path, error,
         "the symlink leads out of the granted folder");
  return error;
}

Keeper::Outcome Keeper::create(const Request& request, int folder_fd) {
  const std::uint32_t flags = request.header.flags;
  std::string name(request.name);
  std::unique_lock lock(names_);
  auto folder = folder_for(request, folder_fd, name);
  if (!folder) return refuse_with(folder.error());
  int open_flags = O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY;
  open_flags |= flags & open_flag::read_too ? O_RDWR : O_WRONLY;
  if (flags & open_flag::append) open_flags |= O_APPEND;
  auto existing = attributes_at(folder->fd.get(), name);
  if (!existing && existing.error() == ENOENT && !tree_.is_single_file()) {
    if (int error = check_file_quota(request, path_in(*folder, name)); error != 0) return refuse_with(error);
    if (int error = prepare_making(request, *folder, name); error != 0) return refuse_with(error);
    UniqueFd file(openat(folder->fd.get(), name.c_str(), open_flags, request.header.mode & 0777));
    if (file) {
      auto done = finish_made(*folder, name, file);
      if (done) done->descriptor = std::move(file);
      return done;
    }
    if (int error = not_made(errno); error != EEXIST) return refuse_with(error);
  } else if (!existing) {
    return refuse_with(existing.error() == ENOENT ? EACCES : existing.error());
  }
  if (flags & open_flag::exclusive) return refuse_with(EEXIST);
  auto file = tree_.entry(*folder, name);
  if (!file) return refuse_with(file.error());
  lock.unlock();
  return open_for_write(request, file->fd.get());
}

Keeper::Outcome Keeper::make_directory(const Request& request, int folder_fd) {
  std::unique_lock lock(names_);
  std::string name(request.name);
  auto folder = folder_for(request, folder_fd, name);
  if (!folder) return refuse_with(folder.error());
  if (int error = check_file_quota(request, path_in(*folder, name)); error != 0) return refuse_with(error);
  if (attributes_at(folder->fd.get(), name)) return refuse_with(EEXIST);
  if (int error = prepare_making(request, *folder, name); error != 0) return refuse_with(error);
  if (mkdirat(folder->fd.get(), name.c_str(), request.header.mode & 01777) != 0)
    return refuse_with(not_made(errno));
  return finish_made(*folder, name, {});
}

Keeper::Outcome Keeper::make_symlink(const Request& request, int folder_fd) {
  std::unique_lock lock(names_);
  std::string name(request.name);
  auto folder = folder_for(request, folder_fd, name);
  if (!folder) return refuse_with(folder.error());
  if (int error = check_file_quota(request, path_in(*folder, name)); error != 0) return refuse_with(error);
  if (int error = check_escape(request, path_in(*folder, name), request.payload); error != 0)
    return refuse_with(error);
  if (attributes_at(folder->fd.get(), name)) return refuse_with(EEXIST);
  if (int error = prepare_making(request, *folder, name); error != 0) return refuse_with(error);
  if (symlinkat(std::string(request.payload).c_str(), folder->fd.get(), name.c_str()) != 0)
    return refuse_with(not_made(errno));
  return finish_made(*folder, name, {});
}

Keeper::Outcome Keeper::link(const Request& request, int file, int folder_fd) {
  std::unique_lock lock(names_);
  std::string name(request.name);
  auto object = locate(request, file);
  if (!object) return refuse_with(object.error());
  if (object->removed) return refuse_with(ENOENT);
  if (!object->is_file() && !object->is_symlink()) return refuse_with(EPERM);
  auto folder = folder_for(request, folder_fd, name);
  if (!folder) return refuse_with(folder.error());
  if (int error = check_hidden_objects(request, *object, nullptr, tree_.hides(name)); error != 0)
    return refuse_with(error);
  if (int error = check_file_quota(request, path_in(*folder, name)); error != 0) return refuse_with(error);
  if (object->is_symlink())
    if (int error = check_escape(request, path_in(*folder, name), symlink_target(*object)); error != 0)
      return refuse_with(error);
  auto facts = Facts{.object = ledger_->subject(*object), .target = {}};
  auto decision = decide_for(request, Operation::link, *object, facts);
  if (!decision) return refuse_with(decision.error());
  if (int error = record_folder(request, *folder); error != 0) return refuse_with(error);
  if (attributes_at(folder->fd.get(), name)) return refuse_with(EEXIST);
  if (facts.object.pre_existing)
    if (int error = ledger_->add_link(*folder, name, *object); error != 0)
      return refuse_with(report_unkept(request, object->path, error));
  if (linkat(AT_FDCWD, descriptor_path(object->fd.get()).c_str(), folder->fd.get(), name.c_str(),
             AT_SYMLINK_FOLLOW) != 0) {
    int error = errno;
    if (facts.object.pre_existing) ledger_->forget_link(*folder, name);
    return refuse_with(error);
  }
  ++files_;
  return Done{};
}

Keeper::Outcome Keeper::remove(const Request& request, int folder_fd, bool directory) {
  std::unique_lock lock(names_);
  std::string name(request.name);
  auto folder = folder_for(request, folder_fd, name);
  if (!folder) return refuse_with(folder.error());
  if (tree_.is_single_file()) return refuse_with(EACCES);
  auto object = tree_.entry(*folder, name);
  if (!object) return refuse_with(object.error());
  if (object->is_folder() != directory) return refuse_with(directory ? ENOTDIR : EISDIR);
  auto facts = Facts{.object = ledger_->subject_at(*folder, name, *object), .target = {}};
  if (int error = check_placeholder(request, *object, facts.object); error != 0) return refuse_with(error);
  auto decision = decide_for(request, Operation::remove, *object, facts);
  if (!decision) return refuse_with(decision.error());
  if (int error = record_folder(request, *folder); error != 0) return refuse_with(error);
  bool gone = false;
  if (decision->keep_object) {
    auto kept = ledger_->keep_all(*folder, name, *object, Ledger::Loss::removed);
    if (kept.error != 0) return refuse_with(report_unkept(request, object->path, kept.error));
    gone = kept.moved_away;
  }
  if (!gone)
    if (int error = ledger_->remove_name(*folder, name, *object); error != 0) return refuse_with(error);
  ledger_->removed(*folder, name, *object);
  ++removed_;
  if (!facts.object.pre_existing) release_file();
  return Done{};
}

// A rename as it will be done: folders and objects found, nothing decided yet.
struct Keeper::Rename {
  Located old_folder, new_folder;
  std::string old_name, new_name;
  Located source;
  std::optional<Located> target;
  bool exchange = false;
};

Checked<Keeper::Rename> Keeper::plan_rename(const Request& request, int old_folder, int new_folder) {
  const std::uint32_t flags = request.header.flags;
  if (flags == rename_flag::all) return refuse_with(EINVAL);
  auto from = folder_for(request, old_folder, request.name);
  if (!from) return refuse_with(from.error());
  // Mostly both are one folder, and what is open is looked for once.
  auto passed = attributes_of(new_folder);
  bool one_folder = passed && is_same(*passed, from->attributes);
  auto to = one_folder ? with_name(request, *from, request.new_name)
                       : folder_for(request, new_folder, request.new_name);
  if (!to) return refuse_with(to.error());
  if (tree_.is_single_file()) return refuse_with(EACCES);
  auto source = tree_.entry(*from, request.name);
  if (!source) return refuse_with(source.error());
  Rename rename{
      std::move(*from),   std::move(*to), std::string(request.name),           std::string(request.new_name),
      std::move(*source), std::nullopt,   (flags & rename_flag::exchange) != 0};
  auto target = tree_.entry(rename.new_folder, request.new_name);
  if (target)
    rename.target = std::move(*target);
  else if (target.error() != ENOENT || rename.exchange)
    return refuse_with(target.error());
  if (!rename.target) return rename;
  if (flags & rename_flag::no_replace) return refuse_with(EEXIST);
  if (!rename.exchange && rename.source.is_folder() != rename.target->is_folder())
    return refuse_with(rename.target->is_folder() ? EISDIR : ENOTDIR);
  return rename;
}

// What is not of the mode table: hidden names, placeholders, symlinks that lead elsewhere from their new
// place.
int Keeper::check_rename(const Request& request, const Rename& rename, const Facts& facts) {
  const Located* target = rename.target ? &*rename.target : nullptr;
  bool hidden = tree_.hides(rename.new_name) || (rename.exchange && tree_.hides(rename.old_name));
  if (int error = check_hidden_objects(request, rename.source, rename.exchange ? target : nullptr, hidden);
      error != 0)
    return error;
  if (target && !rename.exchange)
    if (int error = check_placeholder(request, *target, facts.target); error != 0) return error;
  if (!rename.source.is_symlink()) return 0;
  return check_escape(request, path_in(rename.new_folder, rename.new_name), symlink_target(rename.source));
}

int Keeper::keep_for_rename(const Request& request, const Rename& rename, const Decision& decision) {
  if (int error = record_folder(request, rename.old_folder); error != 0) return error;
  if (int error = record_folder(request, rename.new_folder); error != 0) return error;
  int error = decision.record_object ? ledger_->record(rename.source) : 0;
  if (error == 0 && decision.record_target) error = ledger_->record(*rename.target);
  if (error != 0) return report_unkept(request, rename.source.path, error);
  if (!decision.keep_target) return 0;
  auto kept = ledger_->keep_all(rename.new_folder, rename.new_name, *rename.target, Ledger::Loss::replaced);
  return kept.error == 0 ? 0 : report_unkept(request, rename.target->path, kept.error);
}

Keeper::Outcome Keeper::rename(const Request& request, int old_folder, int new_folder) {
  std::unique_lock lock(names_);
  auto rename = plan_rename(request, old_folder, new_folder);
  if (!rename) return refuse_with(rename.error());
  auto& [from, to, name, new_name, source, target, exchange] = *rename;
  // Two names of one object: rename(2) does nothing.
  if (target && target->identity() == source.identity()) return Done{};
  Facts facts{.object = ledger_->subject_at(from, name, source), .target = {}};
  if (target) facts.target = ledger_->subject_at(to, new_name, *target);
  if (int error = check_rename(request, *rename, facts); error != 0) return refuse_with(error);
  auto decision = decide_for(request, exchange ? Operation::exchange : Operation::rename, source, facts);
  if (!decision) return refuse_with(decision.error());
  if (int error = keep_for_rename(request, *rename, *decision); error != 0) return refuse_with(error);
  auto noted = ledger_->note_rename(source, path_in(to, new_name), exchange);
  if (!noted) return refuse_with(report_unkept(request, source.path, noted.error()));
  // Where nothing was seen, nothing may be replaced that the host put there in the last moment.
  std::uint32_t flags = request.header.flags | (target ? 0u : rename_flag::no_replace);
  int renamed = renameat2(from.fd.get(), name.c_str(), to.fd.get(), new_name.c_str(), flags);
  if (renamed != 0 && errno == EINVAL &&
      flags != request.header.flags)  // a file system without RENAME_NOREPLACE
    renamed = renameat2(from.fd.get(), name.c_str(), to.fd.get(), new_name.c_str(), request.header.flags);
  if (renamed != 0) {
    int error = errno;
    ledger_->forget_rename(*noted);
    if (decision->keep_target) ledger_->take_back(*target);
    return refuse_with(error);
  }
  if (target && !exchange) ledger_->removed(to, new_name, *target);
  if (target && !exchange && !facts.target.pre_existing) release_file();
  ledger_->renamed(from, name, source, to, new_name, path_in(to, new_name));
  if (exchange) ledger_->renamed(to, new_name, *target, from, name, source.path);
  if (decision->target_passes_on) ledger_->stand_in(source);
  return Done{};
}

}  // namespace anchorhold::mounts
