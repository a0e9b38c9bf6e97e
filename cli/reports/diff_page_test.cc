// The page of `rullama diff --html`, with names that try to be markup.
#include "cli/reports/diff_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/drawing/markup_test_util.h"
#include "core/ir/builder.h"

namespace rullama::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kHostileName = "blk.0.</code><img src=x onerror='alert(1)'>\"";

struct Subject {
  Graph graph;
  DiffReport report;
};

// norm -> softcap, the first off.
Subject MakeSubject() {
  GraphBuilder builder("g");
  const ValueId x = builder.Input("x", TensorType(DType::kF32, {Dim::T(), 4}));
  const ValueId w = builder.Constant(kHostileName, TensorType(DType::kF32, {4}));
  const ValueId norm = builder.Add(ops::RmsNorm{.x = x, .weight = w, .eps = 1e-6F}, "norm");
  builder.Output("logits", builder.Add(ops::Softcap{.x = norm, .cap = 30}, "logits"),
                 RowDemand::kAll);
  Subject subject;
  auto graph = std::move(builder).Finish();
  EXPECT_TRUE(graph) << graph.error().ToString();
  subject.graph = *graph;
  DiffReport& report = subject.report;
  report.backend = kHostileName;
  report.values = {{"norm", {.nmse = 0.5}, true}, {"logits", {.nmse = 1e-9}, false}};
  report.positions = {{0.1, true}, {0.2, false}};
  report.logits = SummaryOf(report.positions);
  report.selections = {{kHostileName, {.rows = 1, .gap = 0.5}, true}};
  report.above = true;
  report.bisected = true;
  report.culprit = Culprit{kHostileName, "rms_norm", true};
  report.map = ErrorMap{kHostileName, 2, 2, {0, 1, 2, 3}};
  return subject;
}

TEST(DiffPageTest, HostileNamesStayText) {
  const Subject subject = MakeSubject();
  const std::string page = DiffPage({kHostileName, 2, "op", kHostileName}, subject.graph,
                                    {subject.report, subject.report});
  EXPECT_EQ(drawing::MarkupFault(page), "");
  EXPECT_EQ(drawing::ForeignPart(page), "");
  EXPECT_THAT(page, HasSubstr("&lt;img src=x"));
}

TEST(DiffPageTest, PositionsHaveTheTextOfTheirTokens) {
  Subject subject = MakeSubject();
  subject.report.texts = {"Anna", "\n<b>\xff"};
  const std::string page = DiffPage({"m", 2, "op", "reference"}, subject.graph, {subject.report});
  EXPECT_EQ(drawing::MarkupFault(page), "");
  EXPECT_THAT(page, HasSubstr("position 0, after &#39;Anna&#39;: 0.1 nats"));
  EXPECT_THAT(page, HasSubstr("position 1, after &#39; &lt;b&gt;\\xff&#39;: 0.2 nats, another "));
  EXPECT_THAT(DiffText(subject.report, "reference"),
              HasSubstr("(largest 0.2 at position 1, after ' <b>\\xff')"));
}

TEST(DiffPageTest, ShowsTheFirstValueThatIsOffWithItsNeighbours) {
  const Subject subject = MakeSubject();
  const std::string page = DiffPage({"m", 2, "op", "reference"}, subject.graph, {subject.report});
  EXPECT_THAT(page, HasSubstr("First above its threshold: norm"));
  EXPECT_THAT(page, HasSubstr("<span class=\"dim\">weight:</span>"));
  EXPECT_THAT(page, HasSubstr("reads it as x:</span> <code>logits</code>"));
  EXPECT_THAT(page, HasSubstr("NMSE 0.5, above the threshold"));
  EXPECT_THAT(page, HasSubstr("position 1: 0.2 nats, another best token"));
}

TEST(DiffPageTest, WithinTheThresholdsNothingIsSingledOut) {
  Subject subject = MakeSubject();
  subject.report.values[0].above = false;
  subject.report.above = false;
  const std::string page = DiffPage({"m", 2, "op", "reference"}, subject.graph, {subject.report});
  EXPECT_THAT(page, HasSubstr("the same, within the thresholds"));
  EXPECT_THAT(page, Not(HasSubstr("First above")));
}

}  // namespace
}  // namespace rullama::cli
