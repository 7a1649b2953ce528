// People's programs on a granted folder, in a real guest, in each mode that lets them work.
#include "programs.h"

#include "granted_guest.h"

namespace anchorhold::mounts {
namespace {

template <Mode mode>
class Programs : public ::testing::TestWithParam<Program> {
 protected:
  static void SetUpTestSuite() {
    if (anchorhold::testing::RealGuest::why_not().empty()) guest_ = GrantedGuest::boot({{"work", mode}});
  }
  static void TearDownTestSuite() { guest_.reset(); }
  void SetUp() override {
    if (auto why = anchorhold::testing::RealGuest::why_not(); !why.empty()) GTEST_SKIP() << why;
    ASSERT_TRUE(guest_);
  }
  void run(const Program& program) {
    std::string folder = std::string("/mnt/work/") + program.name;
    auto said = guest_->run("set -e; mkdir " + folder + "; cd " + folder + "; " + program.script);
    EXPECT_EQ(said.status, 0) << said.output;
  }
  static std::unique_ptr<GrantedGuest> guest_;
};
template <Mode mode>
std::unique_ptr<GrantedGuest> Programs<mode>::guest_;

using ProgramsRw = Programs<Mode::rw>;
using ProgramsRwNoDelete = Programs<Mode::rw_no_delete>;

TEST_P(ProgramsRw, Work) {
  run(GetParam());
}
TEST_P(ProgramsRwNoDelete, Work) {
  run(GetParam());
}

std::string program_name(const ::testing::TestParamInfo<Program>& program) {
  return program.param.name;
}
INSTANTIATE_TEST_SUITE_P(Rw, ProgramsRw, ::testing::ValuesIn(programs()), program_name);
INSTANTIATE_TEST_SUITE_P(RwNoDelete, ProgramsRwNoDelete, ::testing::ValuesIn(programs()), program_name);

}  // namespace
}  // namespace anchorhold::mounts
