#include "share_set.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <fmt/format.h>

#include "base/files.h"
#include "base/log.h"

namespace anchorhold::session {
namespace {

// How long a command waits for its guest to learn of changes: for the readers' answers, for a guest that gets
// no further (a busy one takes a second for thirty changes), and in all. One of them that was taken over may
// answer never.
constexpr std::chrono::seconds longest_asking{2}, longest_standstill{5}, longest_settling{10};

std::filesystem::path socket_in(const std::filesystem::path& folder, std::size_t index) {
  return folder / fmt::format("share-{}", index);
}

// What the guest's kernel refuses early is a convenience: the reader and the keeper refuse it in any case.
GuestClient::MountMode mount_mode(const mounts::Grant& grant) {
  return grant.mode == mounts::Mode::ro ? GuestClient::MountMode::read_only
                                        : GuestClient::MountMode::read_write;
}

}  // namespace

Result<std::unique_ptr<ShareSet>> ShareSet::start(const std::vector<GrantPointer>& grants,
                                                  const std::filesystem::path& ledgers,
                                                  const mounts::ShareLimits& limits,
                                                  std::shared_ptr<QuestionDesk> questions,
                                                  events::EventSink& events) {
  std::unique_ptr<ShareSet> set(new ShareSet(ledgers, limits, std::move(questions), events));
  for (const auto& grant : grants) set->entries_.push_back({grant, nullptr});
  for (std::size_t index = 0; index < grants.size(); ++index) {
    ANCHORHOLD_CHECK(set->start_share(index));
    set->files_.add(ANCHORHOLD_TRY(set->entries_[index].share->accessible()));
  }
  return set;
}

ShareSet::~ShareSet() {
  questions_->finish();
  {
    std::lock_guard lock(mutex_);
    reachable_.clear();
  }
  spares_.reset();
  entries_.clear();  // no notice comes any more
  recorder_.reset();
  std::error_code ignored;
  // Only what holds nothing to undo.
  for (const auto& entry : std::filesystem::directory_iterator(ledgers_, ignored))
    std::filesystem::remove(entry.path(), ignored);
  std::filesystem::remove(ledgers_, ignored);
}

Status ShareSet::start_share(std::size_t index) {
  const mounts::Grant& grant = *entries_[index].grant;
  mounts::ShareSpec spec;
  spec.ledger_folder = ledgers_ / grant.name;
  spec.limits = limits_;
  spec.on_notice = [this, index](const mounts::ShareNotice& notice) { noticed(index, notice); };
  spec.on_host_change = [this, name = grant.name](mounts::HostChange change) {
    return announcer_->add(name, std::move(change));
  };
  ANCHORHOLD_CHECK(make_directories(ledgers_));
  auto share = mounts::Share::start(grant, std::move(spec));
  if (!share)
    return fail(with_context(std::move(share).error(), fmt::format("granting {}", grant.host_path.string())));
  {
    std::lock_guard lock(mutex_);
    entries_[index].keeper_gone = false;
    reachable_[index] = share->get();
  }
  entries_[index].share = std::move(*share);
  return {};
}

Status ShareSet::serve_guest(const std::filesystem::path& folder, GuestLife& life,
                             std::size_t spare_devices) {
  for (std::size_t index = 0; index < entries_.size(); ++index) {
    bool gone;
    {
      std::lock_guard lock(mutex_);
      gone = entries_[index].keeper_gone;
    }
    if (gone) {
      ANCHORHOLD_CHECK(start_share(index));
      files_.add(ANCHORHOLD_TRY(entries_[index].share->accessible()));
    }
    if (auto status = entries_[index].share->serve_guest(socket_in(folder, index)); !status)
      return fail(with_context(std::move(status).error(),
                               fmt::format("serving {}", entries_[index].grant->host_path.string())));
  }
  spare_devices =
      std::min(spare_devices, hypervisor::max_shares - std::min(hypervisor::max_shares, entries_.size()));
  if (spare_devices > 0) {
    mounts::SparesSpec spec;
    spec.folder = folder;
    spec.count = spare_devices;
    spec.on_notice = [this](const mounts::ShareNotice& notice) { noticed(std::nullopt, notice); };
    spares_ = ANCHORHOLD_TRY(mounts::Spares::start(std::move(spec)));
  }
  guest_folder_ = folder;
  std::lock_guard lock(mutex_);
  life_ = &life;
  return {};
}

void ShareSet::end_guest() {
  announcer_->serve(nullptr);
  {
    std::lock_guard lock(mutex_);
    life_ = nullptr;
  }
  for (auto& entry : entries_) entry.share->end_guest();
  spares_.reset();
}

Status ShareSet::add(GrantPointer grant, GuestClient* client, const std::function<Status()>& allowed) {
  if (entries_.size() >= hypervisor::max_shares)
    return fail(ErrorCode::resource_exhausted,
                fmt::format("the session has {} folders, more are not possible", entries_.size()),
                "start another session for the rest");
  if (client && (!spares_ || !spares_->free()))
    return fail(
        ErrorCode::resource_exhausted, "the running guest has no device left for one more folder",
        "stop the session and start it again with this folder; a task goes on with: anchorhold sessions "
        "resume");
  const std::size_t index = entries_.size();
  entries_.push_back({std::move(grant), nullptr});
  auto given = start_share(index);
  if (given) given = give_to_guest(index, client, allowed);
  if (given) return {};
  files_.remove(entries_[index].grant->name);
  const auto ledger = ledgers_ / entries_[index].grant->name;
  {
    std::lock_guard lock(mutex_);
    reachable_.erase(index);
  }
  entries_[index].share.reset();
  entries_.pop_back();
  std::error_code ignored;
  std::filesystem::remove(ledger, ignored);
  return given;
}

Status ShareSet::give_to_guest(std::size_t index, GuestClient* client,
                               const std::function<Status()>& allowed) {
  auto& [grant, share, keeper_gone] = entries_[index];
  const auto socket = socket_in(guest_folder_, index);
  if (client) ANCHORHOLD_CHECK(share->serve_guest(socket));
  auto accessible = ANCHORHOLD_TRY(share->accessible());
  ANCHORHOLD_CHECK(allowed());
  if (client) {
    const std::size_t spare = *spares_->free();
    ANCHORHOLD_CHECK(spares_->take(spare, socket));
    if (auto mounted = client->mount(mounts::Spares::tag(spare), grant->name, mount_mode(*grant)); !mounted)
      return fail(
          with_context(std::move(mounted).error(), fmt::format("mounting {}", grant->host_path.string())));
  }
  files_.add(std::move(accessible));
  return {};
}

std::vector<hypervisor::ShareSpec> ShareSet::specs(const std::filesystem::path& folder) const {
  std::vector<hypervisor::ShareSpec> specs;
  for (std::size_t index = 0; index < entries_.size(); ++index)
    specs.push_back({entries_[index].grant->tag, socket_in(folder, index)});
  for (std::size_t index = 0; spares_ && index < spares_->count(); ++index)
    specs.push_back({mounts::Spares::tag(index), spares_->socket_path(index)});
  return specs;
}

Status ShareSet::mount_in(GuestClient& client) const {
  announcer_->serve(&client);
  for (const auto& entry : entries_) {
    if (auto mounted = client.mount(entry.grant->tag, entry.grant->name, mount_mode(*entry.grant)); !mounted)
      return fail(with_context(std::move(mounted).error(),
                               fmt::format("mounting {}", entry.grant->host_path.string())));
  }
  return {};
}

void ShareSet::settle() {
  struct Readers {
    std::mutex mutex;
    std::condition_variable changed;
    std::size_t asked;
  };
  const auto begin = std::chrono::steady_clock::now();
  auto readers = std::make_shared<Readers>();
  {
    std::lock_guard lock(mutex_);
    readers->asked = reachable_.size();
    for (const auto& [index, share] : reachable_)
      share->settle([readers] {
        std::lock_guard one_less(readers->mutex);
        --readers->asked;
        readers->changed.notify_all();
      });
  }
  bool found;
  {
    std::unique_lock lock(readers->mutex);
    found = readers->changed.wait_until(lock, begin + longest_asking, [&] { return readers->asked == 0; });
  }
  if (!announcer_->wait_until_told(longest_standstill, begin + longest_settling) || !found)
    log_warning(
        "a command starts before the guest is known to have learnt of the latest changes on the host");
}

// On a thread of the share.
void ShareSet::noticed(std::optional<std::size_t> index, const mounts::ShareNotice& notice) {
  if (notice.kind == mounts::ShareNotice::Kind::ended) {
    std::lock_guard lock(mutex_);
    if (index && notice.process == mounts::ShareProcess::keeper) entries_[*index].keeper_gone = true;
    // A reader also ends when the machine closes its device; the machine's own end then tells why.
    if (life_)
      life_->part_ended(fmt::format("the {} of {}", mounts::to_string(notice.process), notice.grant),
                        Error{ErrorCode::unavailable, notice.cause, {}});
    return;
  }
  if (notice.kind == mounts::ShareNotice::Kind::question) {
    if (index) ask(*index, notice);
    return;
  }
  recorder_->post([this, notice] { record(notice); });
}

// The keeper gives up a little later than the person is asked for, so that a late answer is not lost.
void ShareSet::ask(std::size_t index, const mounts::ShareNotice& notice) {
  constexpr std::chrono::seconds usual{60}, allowance{2};
  auto limit = limits_.answer.count() > 0 ? limits_.answer : usual;
  Question question{.kind = Question::Kind::bulk_change,
                    .session = {},
                    .subject = notice.grant,
                    .about = notice.report.path,
                    .text = fmt::format("{} in {}", notice.report.reason, notice.grant),
                    .limit = limit > 2 * allowance ? limit - allowance : limit};
  questions_->ask(std::move(question), [this, index, number = notice.report.question](Approval answer) {
    auto verdict = answer == Approval::allow_for_session ? mounts::Verdict::allow_for_session
                   : answer == Approval::allow_once      ? mounts::Verdict::allow_once
                                                         : mounts::Verdict::deny;
    std::lock_guard lock(mutex_);
    if (auto found = reachable_.find(index); found != reachable_.end())
      found->second->answer(number, verdict);
  });
}

void ShareSet::record(const mounts::ShareNotice& notice) {
  using mounts::ReportKind;
  const auto& report = notice.report;
  if (notice.kind == mounts::ShareNotice::Kind::report && report.kind != ReportKind::refused &&
      report.kind != ReportKind::violation) {
    if (report.kind == ReportKind::warning) {
      events::Event event(events::mount_notice);
      event.set("mount.name", notice.grant)
          .set("mount.operation", report.operation)
          .set(events::key::cause, report.reason)
          .set_content(events::ContentCategory::paths, "mount.path", report.path);
      if (auto status = events_.record(std::move(event)); !status) log_error(status.error().message);
    }
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
