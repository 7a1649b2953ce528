// Questions of sealed processes on their way to a person and back.
#include "question_desk.h"

#include <atomic>
#include <condition_variable>
#include <future>
#include <gtest/gtest.h>
#include <mutex>
#include <optional>
#include <thread>

namespace anchorhold::session {
namespace {

class Sink : public events::EventSink {
 public:
  Status record(events::Event event) override {
    if (full) return fail(ErrorCode::resource_exhausted, "the disk is full");
    std::lock_guard lock(mutex);
    recorded.push_back(std::move(event));
    return {};
  }
  std::mutex mutex;
  std::vector<events::Event> recorded;
  bool full = false;
};

class Person : public Asker {
 public:
  explicit Person(Approval answer) : answer_(answer) {}
  std::optional<Settled> ask(const Question& question, std::stop_token) override {
    asked.push_back(question.about);
    return Settled{answer_, "on the terminal"};
  }
  std::vector<std::string> asked;

 private:
  Approval answer_;
};

// Shows a question until it is over, and remembers how it ended.
class NobodyLooks : public Asker {
 public:
  std::optional<Settled> ask(const Question& question, std::stop_token stop) override {
    std::unique_lock lock(mutex_);
    shown_.push_back(question);
    changed_.notify_all();
    changed_.wait(lock, stop, [] { return false; });
    return std::nullopt;
  }
  void settled(const Question& question, const Settled& end) override {
    std::lock_guard lock(mutex_);
    ends_.push_back(question.about + ": " + std::string(to_string(end.answer)) + ", " + end.how);
    changed_.notify_all();
  }
  Question shown(std::size_t index) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return shown_.size() > index; });
    return shown_[index];
  }
  std::string end(std::size_t index) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ends_.size() > index; });
    return ends_[index];
  }

 private:
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<Question> shown_;
  std::vector<std::string> ends_;
};

Question question(std::chrono::milliseconds limit = std::chrono::minutes(1)) {
  return {.session = {}, .subject = "work", .about = "docs/a", .text = "many removals", .limit = limit};
}

Approval answer_to(QuestionDesk& desk, Question asked) {
  std::promise<Approval> answered;
  desk.ask(std::move(asked), [&](Approval answer) { answered.set_value(answer); });
  return answered.get_future().get();
}

TEST(QuestionDesk, AnAnswerIsAnEventBeforeItCounts) {
  Sink sink;
  Person person(Approval::allow_for_session);
  QuestionDesk desk(SessionId("s"), &person, sink);
  EXPECT_EQ(answer_to(desk, question()), Approval::allow_for_session);
  EXPECT_EQ(person.asked, std::vector<std::string>{"docs/a"});
  ASSERT_EQ(sink.recorded.size(), 1u);
  EXPECT_EQ(sink.recorded[0].name().text, "anchorhold.approval");
  EXPECT_EQ(std::get<std::string>(sink.recorded[0].attributes().at("approval.answer")), "allow_for_session");
  sink.full = true;
  EXPECT_EQ(answer_to(desk, question()), Approval::deny);
}

TEST(QuestionDesk, WithoutAnybodyToAskItIsNo) {
  Sink sink;
  QuestionDesk desk(SessionId("s"), nullptr, sink);
  EXPECT_EQ(answer_to(desk, question()), Approval::deny);
  ASSERT_EQ(sink.recorded.size(), 1u);
  EXPECT_EQ(sink.recorded[0].severity(), events::Severity::warn);
}

TEST(QuestionDesk, WhenTheTimeIsOverItIsNo) {
  Sink sink;
  NobodyLooks nobody;
  QuestionDesk desk(SessionId("s"), &nobody, sink);
  EXPECT_EQ(answer_to(desk, question(std::chrono::milliseconds(1))), Approval::deny);
}

TEST(QuestionDesk, TheEndOfTheSessionEndsAQuestion) {
  Sink sink;
  NobodyLooks nobody;
  QuestionDesk desk(SessionId("s"), &nobody, sink);
  std::promise<Approval> answered;
  desk.ask(question(), [&](Approval answer) { answered.set_value(answer); });
  nobody.shown(0);
  desk.close();
  EXPECT_EQ(answered.get_future().get(), Approval::deny);
  EXPECT_EQ(answer_to(desk, question()), Approval::deny) << "and so does a later one";
  desk.finish();
  desk.ask(question(), [](Approval) { ADD_FAILURE() << "after the end nobody is called"; });
}

// Two at once: the second is not shown yet, and has its time and its answer all the same.
TEST(QuestionDesk, AnybodyMayAnswerAnyQuestionAndTheFrontEndIsTold) {
  Sink sink;
  NobodyLooks nobody;
  QuestionDesk desk(SessionId("s"), &nobody, sink, [] { return "curl"; });
  std::promise<Approval> first, second;
  Question about_b = question();
  about_b.kind = Question::Kind::egress;
  about_b.about = "b";
  EXPECT_EQ(desk.ask(question(), [&](Approval answer) { first.set_value(answer); }), 1u);
  EXPECT_EQ(desk.ask(about_b, [&](Approval answer) { second.set_value(answer); }), 2u);
  auto shown = nobody.shown(0);
  EXPECT_EQ(shown.id(), "s.1");
  EXPECT_EQ(shown.activity, "curl");
  auto pending = desk.pending();
  ASSERT_EQ(pending.size(), 2u);
  EXPECT_EQ(pending[1].question.about, "b");
  EXPECT_GT(pending[1].left, std::chrono::seconds(30));
  EXPECT_LE(pending[1].left, std::chrono::minutes(1));

  EXPECT_EQ(desk.answer(1, Approval::allow_always, "by another program").error().code,
            ErrorCode::invalid_argument);
  EXPECT_EQ(desk.answer(3, Approval::deny, "by another program").error().code, ErrorCode::not_found);
  auto answered = desk.answer(2, Approval::allow_always, "by another program");
  ASSERT_TRUE(answered) << answered.error().message;
  EXPECT_EQ(second.get_future().get(), Approval::allow_always) << "it counts before answer() returns";
  EXPECT_EQ(desk.pending().size(), 1u);
  ASSERT_TRUE(desk.answer(1, Approval::allow_once, "by another program"));
  EXPECT_EQ(first.get_future().get(), Approval::allow_once);
  EXPECT_EQ(nobody.end(0), "docs/a: allow_once, by another program");

  auto late = desk.answer(1, Approval::deny, "by a third program");
  EXPECT_EQ(late.error().code, ErrorCode::failed_precondition);
  EXPECT_NE(late.error().message.find("question s.1 has its answer: allow_once, by another program"),
            std::string::npos)
      << late.error().message;
  ASSERT_EQ(sink.recorded.size(), 2u);
  EXPECT_EQ(std::get<std::string>(sink.recorded[0].attributes().at("approval.how")), "by another program");
}

TEST(QuestionDesk, OneOfManyAnswersWins) {
  Sink sink;
  NobodyLooks nobody;
  QuestionDesk desk(SessionId("s"), &nobody, sink);
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> called = 0, won = 0;
    std::promise<Approval> counted;
    auto number = desk.ask(question(), [&](Approval answer) {
      ++called;
      counted.set_value(answer);
    });
    std::vector<std::thread> others;
    std::atomic<int> winner = -1;
    const std::vector<Approval> words{Approval::deny, Approval::allow_once, Approval::allow_for_session};
    for (int i = 0; i < 3; ++i)
      others.emplace_back([&, i] {
        if (!desk.answer(number, words[static_cast<std::size_t>(i)], "by one")) return;
        ++won;
        winner = i;
      });
    for (auto& other : others) other.join();
    EXPECT_EQ(won, 1);
    EXPECT_EQ(called, 1);
    EXPECT_EQ(counted.get_future().get(), words[static_cast<std::size_t>(winner.load())]);
  }
}

TEST(QuestionDesk, WhatIsWithdrawnIsOverAndListenersHearOfEveryChange) {
  Sink sink;
  NobodyLooks nobody;
  QuestionDesk desk(SessionId("s"), &nobody, sink);
  std::atomic<int> heard = 0;
  auto listener = desk.add_listener([&] { ++heard; });
  std::promise<Approval> answered;
  auto number = desk.ask(question(), [&](Approval answer) { answered.set_value(answer); });
  EXPECT_EQ(heard, 1);
  nobody.shown(0);
  desk.withdraw(number);
  EXPECT_EQ(answered.get_future().get(), Approval::deny);
  EXPECT_EQ(nobody.end(0), "docs/a: deny, it is of no interest any more");
  EXPECT_EQ(heard, 2);
  desk.remove_listener(listener);
  desk.withdraw(desk.ask(question(), [](Approval) {}));
  EXPECT_EQ(heard, 2);
}

}  // namespace
}  // namespace anchorhold::session
