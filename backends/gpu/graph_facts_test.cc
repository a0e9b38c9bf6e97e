#include "backends/gpu/graph_facts.h"

#include <gtest/gtest.h>

#include <string>

#include "core/ir/text.h"
#include "core/plugin/graph_flatten.h"

namespace rullama::gpu {
namespace {

bool LossDependsOnExpertsOf(const std::string& ops, const std::string& output) {
  const auto graph = ParseText(
      "graph \"step\" T<=4 R<=4\n"
      "%0 = input \"x\" : f32[T,256]\n"
      "%1 = input \"chosen\" : i32[T,2]\n"
      "%2 = input \"targets\" : i32[T]\n"
      "%3 = constant \"experts.weight\" : q4_k[8,64,256]\n" +
      ops + "output \"y\" = " + output + " all\n");
  EXPECT_TRUE(graph.has_value()) << graph.error().ToString();
  const FlatGraph flat(*graph);
  return LossDependsOnExperts(sdk::GraphView(*flat.view()));
}

const std::string kExperts =
    "%4 \"pairs\" = grouped_matmul(%0, %3, %1) {as_stored=0} : f32[T,2,64]\n";

TEST(LossDependsOnExperts, WhereAGraphHasBoth) {
  EXPECT_FALSE(LossDependsOnExpertsOf(kExperts, "%4"));
  EXPECT_FALSE(LossDependsOnExpertsOf("%4 \"loss\" = cross_entropy(%0, %2) : f32[T]\n", "%4"));
  EXPECT_TRUE(
      LossDependsOnExpertsOf(kExperts + "%5 \"loss\" = cross_entropy(%0, %2) : f32[T]\n", "%5"));
}

}  // namespace
}  // namespace rullama::gpu
