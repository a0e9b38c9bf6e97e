// Tables and JSON of invented numbers, and the roofline that they rest on.
#include "cli/reports/profile_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace rullama::cli {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kHostileName = "blk.0.</td>\\n|\x01\"},{\xFF";

// Two steps of 100 us: a product that takes half of it, and a copy of layer 3 that takes a fifth.
// The device has 1 GB/s and 4 Gop/s.
ProfileReport MadeUp() {
  ProfileReport report{.subject = "m on fake", .test = "tg2", .profile = {}, .peaks = {}};
  report.profile = {.steps = 2, .seconds = 200e-6, .ops = {}};
  report.profile.ops.push_back({"fake",
                                "matmul",
                                "product",
                                "f32[T,8] -> f32[T,8]",
                                std::nullopt,
                                {100e-6, 20e3, 200e3, 2}});
  report.profile.ops.push_back(
      {"fake", "copy", "blk.3.y", "f32[T,8] -> f32[T,8]", 3, {40e-6, 30e3, 0, 2}});
  report.peaks = {{.device = "fake", .byte_rate = 1e9, .operation_rate = 4e9}};
  return report;
}

TEST(RooflineTest, TheNearerBoundIsTheBound) {
  const ProfileReport report = MadeUp();
  const DevicePeaks& peaks = report.peaks[0];
  EXPECT_DOUBLE_EQ(peaks.ridge(), 4);
  const UnderRoof product = PlaceUnderRoof(report.profile.ops[0].total, peaks);
  EXPECT_EQ(product.bound, Bound::kOperations) << "10 operations for each byte";
  EXPECT_NEAR(product.share, 0.5, 1e-9) << "2 of 4 Gop/s";
  const UnderRoof copy = PlaceUnderRoof(report.profile.ops[1].total, peaks);
  EXPECT_EQ(copy.bound, Bound::kBytes);
  EXPECT_NEAR(copy.share, 0.75, 1e-9) << "0.75 of 1 GB/s";
}

TEST(RooflineTest, WithoutPeaksOrTimeNothingIsSaid) {
  const ProfileReport report = MadeUp();
  EXPECT_EQ(PlaceUnderRoof(report.profile.ops[0].total, PeaksOf(report.peaks, "other")).bound,
            Bound::kUnknown);
  EXPECT_EQ(PlaceUnderRoof({}, report.peaks[0]).bound, Bound::kUnknown);
}

TEST(ProfileReportTest, TextTellsSharesBoundsAndWhatIsBetween) {
  const std::string text = ProfileText(MadeUp(), 1);
  EXPECT_THAT(text, HasSubstr("peaks of fake: 1.0 GB/s, 4.0 Gop/s, ridge at 4.0"));
  EXPECT_THAT(text, HasSubstr("| matmul | 50.0 | 0.050 | - | 0.20 | 2.00 | operations | 50 |"));
  EXPECT_THAT(text, HasSubstr("| copy | 20.0 | 0.020 | - | 0.75 | 0.00 | bytes | 75 |"));
  EXPECT_THAT(text, HasSubstr("| between ops | 30.0 | 0.030 | - | 0.00 | 0.00 | - | - |"));
  EXPECT_THAT(text, HasSubstr("| 3 | 20.0 |"));
  EXPECT_THAT(text, HasSubstr("| fake matmul product: f32[T,8] -> f32[T,8] | 50.0 |"));
  EXPECT_THAT(text, Not(HasSubstr("copy blk.*.y"))) << "only the slowest was asked for";
}

TEST(ProfileReportTest, TextTellsTheMachineTheRunsAndTheirSpread) {
  ProfileReport report = MadeUp();
  report.device = "Fake 9000 (kernels for fake)";
  report.threads = "2";
  report.profile.runs = {180e-6, 200e-6, 900e-6};
  report.profile.ops[0].total.runs = {90e-6, 100e-6, 110e-6};
  const std::string text = ProfileText(report, 1);
  EXPECT_THAT(text, HasSubstr("Fake 9000 (kernels for fake), 2 threads; medians of 3 runs\n"));
  EXPECT_THAT(text, HasSubstr("| matmul | 50.0 | 0.050 | 20 |"));
  EXPECT_THAT(ComparisonText(report, report), HasSubstr("before: m on fake; Fake 9000 "));
  const auto back = ParseProfiles(ProfileJson(report), "file");
  ASSERT_TRUE(back) << back.error().ToString();
  EXPECT_EQ(ProfileText(back->front(), 1), text);
}

TEST(ProfileReportTest, WorkersThatShareOpsAreCompared) {
  ProfileReport report = MadeUp();
  report.profile.workers = {{"fake", 0, 120e-6}};
  EXPECT_THAT(ProfileText(report, 1), Not(HasSubstr("worker"))) << "none waits for another";
  report.profile.workers.push_back({"fake", 1, 60e-6});
  const std::string text = ProfileText(report, 1);
  EXPECT_THAT(text, HasSubstr("| fake 0 | 60.0 | 0.060 | 0.040 |\n"
                              "| fake 1 | 30.0 | 0.030 | 0.070 |\n"));
  const auto back = ParseProfiles(ProfileJson(report), "file");
  ASSERT_TRUE(back) << back.error().ToString();
  EXPECT_EQ(ProfileText(back->front(), 1), text);
}

// Caches, or peaks that were measured while something else ran.
TEST(ProfileReportTest, NothingReachesMoreThanAllOfABound) {
  EXPECT_EQ(ShareText({Bound::kBytes, 51.1}), "100+");
  EXPECT_EQ(ShareText({Bound::kBytes, 1.004}), "100");
  ProfileReport report = MadeUp();
  EXPECT_THAT(PeaksText(report.peaks[0]), Not(HasSubstr("lower")));
  report.peaks = HigherPeaks({{.device = "fake", .byte_rate = 1e9, .operation_rate = 2e9}},
                             {{.device = "fake", .byte_rate = 9e8, .operation_rate = 4e9}});
  EXPECT_THAT(PeaksText(report.peaks[0]),
              HasSubstr("1.0 GB/s, 4.0 Gop/s, ridge at 4.0 operations for each byte; another "
                        "measurement was 50 % lower"));
}

TEST(ProfileReportTest, OpsOfAllLayersAreOneRow) {
  ProfileReport report = MadeUp();
  ProfiledOp other = report.profile.ops[1];
  other.value = "blk.12.y";
  other.layer = 12;
  other.total.seconds = 10e-6;
  report.profile.ops.push_back(other);
  const std::string text = ProfileText(report, 20);
  EXPECT_THAT(text, HasSubstr("| fake copy blk.*.y: f32[T,8] -> f32[T,8] (2 ops: 0.005, 0.013, "
                              "0.020 ms) | 25.0 | 0.025 |"));
  EXPECT_THAT(text, Not(HasSubstr("blk.12.y")));
}

TEST(ProfileReportTest, NothingMeasuredIsNoDivisionByZero) {
  EXPECT_THAT(ProfileText({}, 20), HasSubstr("| between ops | 0.0 |"));
}

TEST(ProfileReportTest, SeveralDevicesAreNamed) {
  ProfileReport report = MadeUp();
  report.profile.ops[1].device = "other";
  EXPECT_THAT(ProfileText(report, 0), HasSubstr("| other copy | 20.0 |"));
}

TEST(ProfileReportTest, JsonIsReadBack) {
  ProfileReport report = MadeUp();
  report.profile.ops[0].value = kHostileName;
  const std::string line = ProfileJson(report);
  const json parsed = json::parse(line);
  EXPECT_EQ(parsed["kinds"][0]["kind"], "matmul");
  EXPECT_TRUE(parsed["layers"][0]["layer"].is_null());
  EXPECT_EQ(parsed["layers"][1]["layer"], 3);
  const auto back = ParseProfiles(line + line, "file");
  ASSERT_TRUE(back) << back.error().ToString();
  ASSERT_EQ(back->size(), 2U);
  EXPECT_EQ(ProfileJson((*back)[1]), line);
}

TEST(ProfileReportTest, AnotherFileIsAnError) {
  const std::string line = ProfileJson(MadeUp());
  for (const std::string& text : {std::string("{"), std::string("[]"), std::string("{\"test\":1}"),
                                  line + "{\"subject\":\"m\"}\n"}) {
    const auto reports = ParseProfiles(text, "old.json");
    ASSERT_FALSE(reports) << text;
    EXPECT_EQ(reports.error().id, "profile.file");
    EXPECT_THAT(reports.error().message, HasSubstr("old.json"));
  }
  EXPECT_THAT(ParseProfiles(line + "{}", "f").error().message, HasSubstr("line 2"));
  const auto other = FindTest({MadeUp()}, "pp512", "old.json");
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().id, "profile.test");
  EXPECT_THAT(other.error().message, HasSubstr("but: tg2"));
}

TEST(ProfileReportTest, TwoRunsStandSideBySide) {
  const ProfileReport before = MadeUp();
  ProfileReport report = MadeUp();
  report.profile.ops[0].total.seconds = 50e-6;
  report.profile.ops[1].kind = "cast";
  const std::string text = ComparisonText(report, before);
  EXPECT_THAT(text, HasSubstr("before: m on fake"));
  EXPECT_THAT(text, HasSubstr("| matmul | 0.025 | 0.050 | 2.00 |"));
  EXPECT_THAT(text, HasSubstr("| cast | 0.020 | - | - |"));
  EXPECT_THAT(text, HasSubstr("| copy | - | 0.020 | - |"));
  EXPECT_THAT(text, HasSubstr("| all | 0.100 | 0.100 | 1.00 |"));
  EXPECT_THAT(text, HasSubstr("| 3 | 0.020 | 0.020 | 1.00 |"));
}

}  // namespace
}  // namespace rullama::cli
