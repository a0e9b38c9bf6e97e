// The page of `rullama profile --html`, with names that try to be markup.
#include "cli/reports/profile_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/drawing/markup_test_util.h"

namespace rullama::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kHostileValue = "blk.0.</code><img src=x onerror='alert(1)'>\"\x01\xFF";

ProfileReport ReportOf(const std::string& name) {
  ProfileReport report{.subject = name, .test = name, .profile = {}, .peaks = {}};
  report.profile = {.steps = 1, .seconds = 1e-3, .ops = {}};
  report.profile.ops.push_back({name, name, name, name, 0, {5e-4, 1e5, 1e7, 1}});
  report.profile.ops.push_back({name, "copy", name, name, 1, {2e-4, 1e5, 0, 1}});
  report.peaks = {{.device = name, .byte_rate = 1e10, .operation_rate = 1e11}};
  return report;
}

TEST(ProfilePageTest, HostileNamesStayText) {
  const std::string page = ProfilePage({{ReportOf(kHostileValue), ReportOf(kHostileValue)}}, 20);
  EXPECT_EQ(drawing::MarkupFault(page), "");
  EXPECT_EQ(drawing::ForeignPart(page), "");
  EXPECT_THAT(page, HasSubstr("&lt;img src=x"));
}

TEST(ProfilePageTest, RoofBendsAtTheRidgeAndCopiesAreInTheTableOnly) {
  const std::string page = ProfilePage({{ReportOf("fake"), {}}}, 1);
  EXPECT_THAT(page, HasSubstr("ridge at 10.0 operations for each byte"));
  EXPECT_THAT(page, HasSubstr("fake: 50.0 % of the time, 0.20 GB/s, 20.00 Gop/s"));
  EXPECT_THAT(page, Not(HasSubstr("copy: ")));
  EXPECT_THAT(page, HasSubstr("<td class=\"name\">copy</td>"));
  EXPECT_THAT(page, HasSubstr("The 1 slowest ops"));
  EXPECT_THAT(page, Not(HasSubstr("Compared with the earlier run")));
}

TEST(ProfilePageTest, EarlierRunIsBesideIt) {
  ProfileReport before = ReportOf("fake");
  before.profile.ops[0].total.seconds = 1e-3;
  const std::string page = ProfilePage({{ReportOf("fake"), before}}, 20);
  EXPECT_THAT(page, HasSubstr("Compared with the earlier run"));
  EXPECT_THAT(page, HasSubstr("<td class=\"number\">1.000</td><td class=\"number\">2.00</td>"));
}

TEST(ProfilePageTest, ADeviceThatComputesNothingHasNoRoofline) {
  ProfileReport report = ReportOf("fake");
  report.profile.ops.push_back({"host", "gather", "rows", "", 2, {1e-4, 1e5, 0, 1}});
  const std::string page = ProfilePage({{report, {}}}, 20);
  EXPECT_THAT(page, HasSubstr("Roofline of fake"));
  EXPECT_THAT(page, HasSubstr("host gather"));
  EXPECT_THAT(page, Not(HasSubstr("Roofline of host")));
}

TEST(ProfilePageTest, WithoutPeaksThereIsNoRoof) {
  ProfileReport report = ReportOf("fake");
  report.peaks.clear();
  const std::string page = ProfilePage({{report, {}}}, 20);
  EXPECT_EQ(drawing::MarkupFault(page), "");
  EXPECT_THAT(page, Not(HasSubstr("peaks of")));
}

}  // namespace
}  // namespace rullama::cli
