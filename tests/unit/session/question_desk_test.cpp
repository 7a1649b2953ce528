// Questions of sealed processes on their way to a person and back.
#include <condition_variable>
#include <future>
#include <gtest/gtest.h>
#include <mutex>
#include <thread>

#include "question_desk.h"

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
  Approval ask(const Question& question, std::stop_token) override {
    asked.push_back(question.about);
    return answer_;
  }
  std::vector<std::string> asked;

 private:
  Approval answer_;
};

class NobodyLooks : public Asker {
 public:
  Approval ask(const Question&, std::stop_token stop) override {
    std::mutex mutex;
    std::condition_variable_any changed;
    std::unique_lock lock(mutex);
    asked.set_value();
    changed.wait(lock, stop, [] { return false; });
    return Approval::deny;
  }
  std::promise<void> asked;
};

Question question(std::chrono::milliseconds limit = std::chrono::minutes(1)) {
  return {.session = SessionId("s"), .subject = "work", .about = "docs/a", .text = "many removals", .limit = limit};
}

Approval answer_to(QuestionDesk& desk, Question asked) {
  std::promise<Approval> answered;
  desk.ask(std::move(asked), [&](Approval answer) { answered.set_value(answer); });
  return answered.get_future().get();
}

TEST(QuestionDesk, AnAnswerIsAnEventBeforeItCounts) {
  Sink sink;
  Person person(Approval::allow_for_session);
  QuestionDesk desk(&person, sink);
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
  QuestionDesk desk(nullptr, sink);
  EXPECT_EQ(answer_to(desk, question()), Approval::deny);
  ASSERT_EQ(sink.recorded.size(), 1u);
  EXPECT_EQ(sink.recorded[0].severity(), events::Severity::warn);
}

TEST(QuestionDesk, WhenTheTimeIsOverItIsNo) {
  Sink sink;
  NobodyLooks nobody;
  QuestionDesk desk(&nobody, sink);
  EXPECT_EQ(answer_to(desk, question(std::chrono::milliseconds(1))), Approval::deny);
}

TEST(QuestionDesk, TheEndOfTheSessionEndsAQuestion) {
  Sink sink;
  NobodyLooks nobody;
  QuestionDesk desk(&nobody, sink);
  std::promise<Approval> answered;
  desk.ask(question(), [&](Approval answer) { answered.set_value(answer); });
  nobody.asked.get_future().wait();
  desk.close();
  EXPECT_EQ(answered.get_future().get(), Approval::deny);
}

}  // namespace
}  // namespace anchorhold::session
