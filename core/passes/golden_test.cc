// Passes on graphs in text form. Each file of testdata/ holds a graph, a line "----" and the
// expected result of the pass.
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "core/ir/text.h"
#include "core/passes/adapt.h"
#include "core/passes/canonicalise.h"
#include "core/passes/decompose.h"
#include "core/passes/differentiate.h"
#include "core/passes/rotate_caches.h"
#include "core/passes/row_demand.h"
#include "core/passes/wanted_rows.h"

namespace rullama {
namespace {

struct Golden {
  const char* file;
  Result<Graph> (*pass)(const Graph&);
};

void PrintTo(const Golden& golden, std::ostream* out) { *out << golden.file; }

// Two adapters of "down", one of each other product.
Result<Graph> AdaptEachProduct(const Graph& graph) {
  const auto pair = [](std::string_view weight, int64_t outputs, int64_t inputs,
                       std::string_view adapter) {
    return LowRankPair{.weight = std::string(weight),
                       .rank = 2,
                       .inputs = inputs,
                       .outputs = outputs,
                       .a = std::string(weight).append(adapter).append(".a"),
                       .b = std::string(weight).append(adapter).append(".b")};
  };
  const std::vector<LowRankPair> pairs = {pair("q", 8, 8, ""), pair("gate", 16, 8, ""),
                                          pair("up", 16, 8, ""), pair("down", 8, 16, ".0"),
                                          pair("down", 8, 16, ".1")};
  return AdaptProducts(graph, pairs);
}

class GoldenTest : public testing::TestWithParam<Golden> {};

TEST_P(GoldenTest, GivesTheExpectedGraph) {
  const std::string path =
      std::string(RULLAMA_SOURCE_DIR "/core/passes/testdata/") + GetParam().file + ".txt";
  std::ifstream file(path);
  ASSERT_TRUE(file) << path << " cannot be read";
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  constexpr std::string_view kSeparator = "----\n";
  const size_t cut = text.find(kSeparator);
  ASSERT_NE(cut, std::string::npos) << path << " has no line '----'";
  const auto before = ParseText(text.substr(0, cut));
  ASSERT_TRUE(before.has_value()) << before.error().ToString();
  const auto after = GetParam().pass(*before);
  ASSERT_TRUE(after.has_value()) << after.error().ToString();
  EXPECT_EQ(PrintText(*after), text.substr(cut + kSeparator.size()));
}

INSTANTIATE_TEST_SUITE_P(
    Passes, GoldenTest,
    testing::Values(
        Golden{"canonicalise", Canonicalise}, Golden{"decompose", DecomposeAll},
        Golden{"adapt", AdaptEachProduct},
        Golden{"row_demand",
               [](const Graph& graph) { return ApplyRowDemand(graph, DemandMode::kPerOutput); }},
        Golden{"row_demand_all",
               [](const Graph& graph) { return ApplyRowDemand(graph, DemandMode::kAllRows); }},
        Golden{"row_demand_state_only",
               [](const Graph& graph) { return ApplyRowDemand(graph, DemandMode::kStateOnly); }},
        Golden{"wanted_rows", DecodeWantedRows}, Golden{"rotate_caches", RotateCaches},
        Golden{"differentiate",
               [](const Graph& graph) {
                 return Differentiate(graph, {.seeds = {{"y", "dy"}},
                                              .parameters = {"a", "b"},
                                              .observed = {},
                                              .checkpoints = {}});
               }},
        Golden{"differentiate_again",
               [](const Graph& graph) {
                 return Differentiate(graph, {.seeds = {{"y", "dy"}},
                                              .parameters = {"a", "b"},
                                              .observed = {"h0"},
                                              .checkpoints = {"h0", "h1"}});
               }}),
    [](const testing::TestParamInfo<Golden>& test) { return std::string(test.param.file); });

}  // namespace
}  // namespace rullama
