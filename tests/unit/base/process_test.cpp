#include "base/process.h"

#include <gtest/gtest.h>
#include <signal.h>

namespace anchorhold {
namespace {

using namespace std::chrono_literals;

Result<std::string> output_of(std::vector<std::string> argv, std::vector<PassedDescriptor> extra = {}) {
  Pipe pipe = ANCHORHOLD_TRY(make_pipe());
  extra.push_back({pipe.write_end.get(), 1});
  SpawnSpec spec;
  spec.argv = std::move(argv);
  spec.descriptors = std::move(extra);
  Child child = ANCHORHOLD_TRY(Child::spawn(spec));
  pipe.write_end.reset();
  std::string text(4096, '\0');
  std::size_t size = ANCHORHOLD_TRY(read_full(pipe.read_end.get(), std::as_writable_bytes(std::span(text))));
  text.resize(size);
  if (!child.wait().ok()) return fail(ErrorCode::internal, "child failed");
  return text;
}

TEST(Child, GetsExactlyTheNamedDescriptors) {
  Pipe a = *make_pipe();
  Pipe b = *make_pipe();
  // Crossing numbers on purpose: each target is the other's source.
  auto text =
      output_of({"/bin/sh", "-c", "ls /proc/self/fd | sort -n | tr '\\n' ' '; readlink /proc/$$/fd/5"},
                {{a.read_end.get(), 5}, {b.read_end.get(), 6}});
  ASSERT_TRUE(text) << text.error().message;
  // 3 is ls's own descriptor of the folder.
  EXPECT_EQ(text->substr(0, 12), "0 1 2 3 5 6 ");
  EXPECT_NE(text->find("pipe:"), std::string::npos);
}

TEST(Child, ReportsExitStatusAndSignals) {
  SpawnSpec spec;
  spec.argv = {"/bin/sh", "-c", "exit 7"};
  EXPECT_EQ(Child::spawn(spec)->wait().code, 7);
  spec.argv = {"/bin/sh", "-c", "kill -9 $$"};
  EXPECT_EQ(Child::spawn(spec)->wait().signal, SIGKILL);
}

TEST(Child, MissingProgramIsAnErrorAtOnce) {
  SpawnSpec spec;
  spec.argv = {"/nonexistent/program"};
  auto child = Child::spawn(spec);
  ASSERT_FALSE(child);
  EXPECT_EQ(child.error().code, ErrorCode::not_found);
  EXPECT_NE(child.error().message.find("/nonexistent/program"), std::string::npos);
}

TEST(Child, DestructorEndsTheWholeGroup) {
  Pipe alive = *make_pipe();
  {
    SpawnSpec spec;
    spec.argv = {"/bin/sh", "-c", "sleep 1000 & sleep 1000"};
    spec.descriptors = {{alive.write_end.get(), 1}};
    auto child = Child::spawn(spec);
    ASSERT_TRUE(child);
    EXPECT_FALSE(child->wait(1ms).has_value());
  }
  alive.write_end.reset();
  std::byte byte;
  // The end of the file comes only when no process holds the pipe any more.
  EXPECT_EQ(*read_full(alive.read_end.get(), {&byte, 1}), 0u);
}

}  // namespace
}  // namespace anchorhold
