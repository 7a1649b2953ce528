#include "question_desk.h"

#include <algorithm>
#include <fmt/format.h>

#include "base/log.h"

namespace anchorhold::session {
namespace {

constexpr std::size_t max_waiting = 256, max_remembered = 64;
// One that is taken back so shortly before its end was not answered in time.
constexpr std::chrono::seconds near_end(1);

using std::chrono::steady_clock;

}  // namespace

QuestionDesk::QuestionDesk(SessionId session, Asker* asker, events::EventSink& events,
                           std::function<std::string()> activity)
    : session_(std::move(session)), asker_(asker), events_(events), activity_(std::move(activity)) {
  if (asker_) shower_ = std::jthread([this](std::stop_token stop) { show_all(std::move(stop)); });
}

QuestionDesk::~QuestionDesk() {
  finish();
}

std::uint64_t QuestionDesk::ask(Question question, Answered answered) {
  auto entry = std::make_shared<Entry>();
  question.session = session_;
  if (activity_) question.activity = activity_();
  entry->deadline = steady_clock::now() + question.limit;
  entry->question = std::move(question);
  entry->answered = std::move(answered);
  std::uint64_t number;
  std::string refusal;
  {
    std::lock_guard lock(mutex_);
    number = entry->question.number = next_++;
    if (finished_) return number;
    if (closed_)
      refusal = "the session ended";
    else if (!asker_)
      refusal = "there is nobody to ask";
    else if (waiting_.size() >= max_waiting)
      refusal = "too many questions wait for an answer already";
    waiting_.emplace(number, entry);
    // Under the lock, so that finish() does not take the timer away.
    if (refusal.empty())
      timer_->post_after(entry->question.limit, [this, number] {
        settle(number, {Approval::deny, "nobody answered in time"});
      });
  }
  if (!refusal.empty()) {
    settle(number, {Approval::deny, std::move(refusal)});
    return number;
  }
  changed_.notify_all();
  tell_listeners();
  return number;
}

// On the desk's thread, one question after another.
void QuestionDesk::show_all(std::stop_token stop) {
  for (;;) {
    std::shared_ptr<Entry> entry;
    {
      std::unique_lock lock(mutex_);
      auto next = [&] {
        return std::find_if(waiting_.begin(), waiting_.end(),
                            [](const auto& each) { return !each.second->shown; });
      };
      if (!changed_.wait(lock, stop, [&] { return next() != waiting_.end(); })) return;
      entry = next()->second;
      entry->shown = true;
    }
    const Question& question = entry->question;
    auto given = asker_->ask(question, entry->stop.get_token());
    if (given) settle(question.number, std::move(*given));
    std::unique_lock lock(mutex_);
    changed_.wait(lock, stop, [&] {
      auto* known = ended(question.number);
      return !waiting_.contains(question.number) && (!known || known->counts);
    });
    auto* end = ended(question.number);
    if (!end || stop.stop_requested()) continue;
    Settled how = end->how;
    lock.unlock();
    asker_->settled(question, how);
  }
}

bool QuestionDesk::settle(std::uint64_t number, Settled how) {
  std::shared_ptr<Entry> entry;
  {
    std::lock_guard lock(mutex_);
    auto node = waiting_.extract(number);
    if (!node || finished_) return false;
    entry = std::move(node.mapped());
    ended_.emplace_back(number, Ended{how, false});
    if (ended_.size() > max_remembered) ended_.pop_front();
    answers_->post([this, number, question = entry->question, answered = std::move(entry->answered),
                    how = std::move(how)]() mutable {
      conclude(number, std::move(question), std::move(answered), std::move(how));
    });
  }
  entry->stop.request_stop();
  changed_.notify_all();
  tell_listeners();
  return true;
}

void QuestionDesk::conclude(std::uint64_t number, Question question, Answered answered, Settled how) {
  events::Event event(events::approval);
  event.set("approval.kind", to_string(question.kind))
      .set("approval.subject", question.subject)
      .set("approval.answer", how.withdrawn ? std::string_view("withdrawn") : to_string(how.answer))
      .set("approval.how", how.how)
      .set(events::key::cause, question.text)
      .set_content(events::ContentCategory::paths, "approval.about", question.about);
  if (!question.activity.empty())
    event.set_content(events::ContentCategory::arguments, "approval.activity", question.activity);
  if (!how.withdrawn && (how.answer == Approval::deny || how.answer == Approval::deny_always))
    event.set_severity(events::Severity::warn);
  if (auto status = events_.record(std::move(event)); !status) {
    log_error(status.error().message);
    how.answer = Approval::deny;
  }
  answered(how.answer);
  std::lock_guard lock(mutex_);
  if (auto* end = ended(number)) *end = {std::move(how), true};
  changed_.notify_all();
}

QuestionDesk::Ended* QuestionDesk::ended(std::uint64_t number) {
  for (auto& [each, end] : ended_)
    if (each == number) return &end;
  return nullptr;
}

void QuestionDesk::withdraw(std::uint64_t number) {
  Settled how{Approval::deny, "it is of no interest any more", true};
  {
    std::lock_guard lock(mutex_);
    auto found = waiting_.find(number);
    if (found == waiting_.end()) return;
    if (found->second->deadline - steady_clock::now() < near_end)
      how = {Approval::deny, "nobody answered in time"};
  }
  settle(number, std::move(how));
}

void QuestionDesk::close() {
  std::vector<std::uint64_t> numbers;
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    for (const auto& [number, entry] : waiting_) numbers.push_back(number);
  }
  for (auto number : numbers) settle(number, {Approval::deny, "the session ended"});
}

void QuestionDesk::finish() {
  close();
  std::unique_ptr<SerialExecutor> timer, answers;
  {
    std::lock_guard lock(mutex_);
    if (finished_) return;
    finished_ = true;
    timer = std::move(timer_);
    answers = std::move(answers_);
  }
  shower_ = {};
  timer.reset();
  answers.reset();
  changed_.notify_all();
  tell_listeners();
}

std::vector<Questions::Pending> QuestionDesk::pending() const {
  std::vector<Pending> all;
  std::lock_guard lock(mutex_);
  for (const auto& [number, entry] : waiting_) {
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(entry->deadline - steady_clock::now());
    all.push_back({entry->question, std::max(left, std::chrono::milliseconds(0))});
  }
  return all;
}

Result<Approval> QuestionDesk::answer(std::uint64_t number, Approval answer, std::string_view how) {
  const auto name =
      Question{.session = session_, .subject = {}, .about = {}, .text = {}, .number = number}.id();
  auto explain = [&]() -> tl::unexpected<Error> {  // with the mutex held
    if (auto* end = ended(number))
      return fail(ErrorCode::failed_precondition,
                  fmt::format("question {} has its answer: {}, {}", name,
                              end->how.withdrawn ? std::string_view("none") : to_string(end->how.answer),
                              end->how.how),
                  "see which wait: anchorhold egress pending");
    return fail(ErrorCode::not_found, fmt::format("there is no question {}", name),
                "see which wait: anchorhold egress pending");
  };
  {
    std::lock_guard lock(mutex_);
    auto found = waiting_.find(number);
    if (found == waiting_.end()) return explain();
    auto possible = answers_to(found->second->question.kind);
    if (std::find(possible.begin(), possible.end(), answer) == possible.end())
      return fail(ErrorCode::invalid_argument,
                  fmt::format("{} cannot be answered to question {}", to_string(answer), name));
  }
  const bool first = settle(number, {answer, std::string(how)});
  std::unique_lock lock(mutex_);
  if (!first) return explain();
  changed_.wait(lock, [&] {
    auto* end = ended(number);
    return finished_ || !end || end->counts;
  });
  auto* end = ended(number);
  if (!end || !end->counts) return fail(ErrorCode::cancelled, "the session ended");
  return end->how.answer;
}

std::uint64_t QuestionDesk::add_listener(std::function<void()> changed) {
  std::lock_guard lock(listeners_mutex_);
  listeners_.emplace(next_listener_, std::move(changed));
  return next_listener_++;
}

void QuestionDesk::remove_listener(std::uint64_t listener) {
  std::lock_guard lock(listeners_mutex_);
  listeners_.erase(listener);
}

void QuestionDesk::tell_listeners() {
  std::lock_guard lock(listeners_mutex_);
  for (const auto& [id, changed] : listeners_) changed();
}

}  // namespace anchorhold::session
