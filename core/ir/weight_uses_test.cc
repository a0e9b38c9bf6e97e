#include "core/ir/weight_uses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "core/ir/builder.h"
#include "core/ir/op_cases_test_util.h"

namespace rullama {
namespace {

using test::F;
using test::I;
using test::kT;

TEST(WeightUses, NamesWhatProductsReadAndNothingElse) {
  GraphBuilder b("g");
  const ValueId tokens = b.Input("tokens", I({kT}));
  const ValueId tied = b.Constant("tied", F({10, 8}));
  const ValueId only_rows = b.Constant("only_rows", F({10, 8}));
  const ValueId x = b.Add(b.GatherRows(tied, tokens), b.GatherRows(only_rows, tokens));
  const ValueId gate = b.Constant("gate", F({6, 8}));
  const ValueId up = b.Constant("up", F({6, 8}));
  const ValueId as_stored = b.Constant("as_stored", F({6, 8}));
  const ValueId inner = b.GeGluLinear(x, gate, up);
  const ValueId y = b.MatMul(inner, as_stored, "y", /*transpose_weight=*/false);
  b.Output("logits", b.MatMul(y, tied), RowDemand::kAll);
  const auto graph = std::move(b).Finish();
  ASSERT_TRUE(graph) << graph.error().ToString();
  WeightNames names;
  AddWeightsInProducts(*graph, names);
  EXPECT_THAT(names, ::testing::ElementsAre("gate", "tied", "up"));
}

}  // namespace
}  // namespace rullama
