#include "engine/scheduling/warm_up.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

namespace rullama {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Warnings final : Notices {
  void Note(std::string_view /*text*/) override {}
  void Warn(std::string_view text) override { texts.emplace_back(text); }
  std::vector<std::string> texts;
};

TEST(WarmUp, TextIsServedWithoutWhatFailsForOthers) {
  Warnings warnings;
  EXPECT_TRUE(WarnUnlessFatal(OkStatus(), "pictures", warnings));
  EXPECT_THAT(warnings.texts, IsEmpty());
  const Status failed = MakeError(ErrorKind::kBackend, "device.memory", "no room for the tower");
  EXPECT_TRUE(WarnUnlessFatal(failed, "pictures", warnings));
  EXPECT_THAT(warnings.texts, ElementsAre(AllOf(HasSubstr("pictures"), HasSubstr("device.memory"),
                                                HasSubstr("no room for the tower"))));
}

TEST(WarmUp, ALostDeviceAndAnInterruptEndTheStart) {
  Warnings warnings;
  for (const char* id : {"device.lost", "run.cancelled"}) {
    const Status ended =
        WarnUnlessFatal(MakeError(ErrorKind::kBackend, id, "why"), "pictures", warnings);
    ASSERT_FALSE(ended);
    EXPECT_EQ(ended.error().id, id);
  }
  EXPECT_THAT(warnings.texts, IsEmpty());
}

}  // namespace
}  // namespace rullama
