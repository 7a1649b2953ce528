#include "share_set.h"

#include <fmt/format.h>

#include "base/files.h"
#include "base/log.h"

namespace anchorhold::session {
namespace {

std::filesystem::path socket_in(const std::filesystem::path& folder, std::size_t index) {
  return folder / fmt::format("share-{}", index);
}

}  // namespace

Result<std::unique_ptr<ShareSet>> ShareSet::start(const std::vector<mounts::Grant>& grants,
                                                  const std::filesystem::path& ledgers,
                                                  events::EventSink& events) {
  std::unique_ptr<ShareSet> set(new ShareSet(ledgers, events));
  for (const auto& grant : grants) set->entries_.push_back({&grant, nullptr});
  for (std::size_t index = 0; index < grants.size(); ++index) ANCHORHOLD_CHECK(set->start_keeper(index));
  return set;
}

ShareSet::~ShareSet() {
  entries_.clear();  // no notice comes any more
  recorder_.reset();
  std::error_code ignored;
  // Only what holds nothing to undo.
  for (const auto& entry : std::filesystem::directory_iterator(ledgers_, ignored))
    std::filesystem::remove(entry.path(), ignored);
  std::filesystem::remove(ledgers_, ignored);
}

Status ShareSet::start_keeper(std::size_t index) {
  const mounts::Grant& grant = *entries_[index].grant;
  mounts::ShareSpec spec;
  spec.ledger_folder = ledgers_ / grant.name;
  spec.on_notice = [this, index](const mounts::ShareNotice& notice) { noticed(index, notice); };
  ANCHORHOLD_CHECK(make_directories(ledgers_));
  auto share = mounts::Share::start(grant, std::move(spec));
  if (!share)
    return fail(with_context(std::move(share).error(), fmt::format("granting {}", grant.host_path.string())));
  {
    std::lock_guard lock(mutex_);
    entries_[index].keeper_gone = false;
  }
  entries_[index].share = std::move(*share);
  files_.add(ANCHORHOLD_TRY(entries_[index].share->accessible()));
  return {};
}

Status ShareSet::serve_guest(const std::filesystem::path& folder, GuestLife& life) {
  for (std::size_t index = 0; index < entries_.size(); ++index) {
    bool gone;
    {
      std::lock_guard lock(mutex_);
      gone = entries_[index].keeper_gone;
    }
    if (gone) ANCHORHOLD_CHECK(start_keeper(index));
    if (auto status = entries_[index].share->serve_guest(socket_in(folder, index)); !status)
      return fail(with_context(std::move(status).error(),
                               fmt::format("serving {}", entries_[index].grant->host_path.string())));
  }
  std::lock_guard lock(mutex_);
  life_ = &life;
  return {};
}

void ShareSet::end_guest() {
  {
    std::lock_guard lock(mutex_);
    life_ = nullptr;
  }
  for (auto& entry : entries_) entry.share->end_guest();
}

std::vector<hypervisor::ShareSpec> ShareSet::specs(const std::filesystem::path& folder) const {
  std::vector<hypervisor::ShareSpec> specs;
  for (std::size_t index = 0; index < entries_.size(); ++index)
    specs.push_back({entries_[index].grant->tag, socket_in(folder, index)});
  return specs;
}

Status ShareSet::mount_in(GuestClient& client) const {
  for (const auto& entry : entries_) {
    // What the guest's kernel refuses early is a convenience: the reader and the keeper refuse it in any
    // case.
    auto mode = entry.grant->mode == mounts::Mode::ro ? GuestClient::MountMode::read_only
                                                      : GuestClient::MountMode::read_write;
    if (auto mounted = client.mount(entry.grant->tag, entry.grant->name, mode); !mounted)
      return fail(with_context(std::move(mounted).error(),
                               fmt::format("mounting {}", entry.grant->host_path.string())));
  }
  return {};
}

// On a thread of the share.
void ShareSet::noticed(std::size_t index, const mounts::ShareNotice& notice) {
  if (notice.kind == mounts::ShareNotice::Kind::ended) {
    std::lock_guard lock(mutex_);
    if (notice.process == mounts::ShareProcess::keeper) entries_[index].keeper_gone = true;
    // A reader also ends when the machine closes its device; the machine's own end then tells why.
    if (life_)
      life_->part_ended(fmt::format("the {} of {}", mounts::to_string(notice.process), notice.grant),
                        Error{ErrorCode::unavailable, notice.cause, {}});
    return;
  }
  recorder_->post([this, notice] { record(notice); });
}

void ShareSet::record(const mounts::ShareNotice& notice) {
  using mounts::ReportKind;
  const auto& report = notice.report;
  if (notice.kind == mounts::ShareNotice::Kind::report && report.kind != ReportKind::refused &&
      report.kind != ReportKind::violation) {
    if (report.kind != ReportKind::ready)
      log_warning(fmt::format("{} of {}: {}: {}", mounts::to_string(notice.process), notice.grant,
                              report.operation, report.reason));
    return;
  }
  events::Event event(events::mount_violation);
  event.set("mount.name", notice.grant).set("mount.process", mounts::to_string(notice.process));
  if (notice.kind == mounts::ShareNotice::Kind::suppressed) {
    event.set("mount.left_out", std::int64_t{report.lost})
        .set(events::key::cause, "more of the same than is recorded one by one");
  } else {
    event.set("mount.operation", report.operation)
        .set("mount.errno", report.error)
        .set(events::key::cause, report.reason)
        .set_content(events::ContentCategory::paths, "mount.path", report.path);
    if (report.kind == ReportKind::violation) event.set_severity(events::Severity::error);
  }
  if (auto status = events_.record(std::move(event)); !status) log_error(status.error().message);
}

}  // namespace anchorhold::session
