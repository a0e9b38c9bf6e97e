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
  const ValueId x = b.Add(ops::Sum(b.Add(ops::GatherRows{.table = tied, .ids = tokens}),
                                   b.Add(ops::GatherRows{.table = only_rows, .ids = tokens})));
  const ValueId gate = b.Constant("gate", F({6, 8}));
  const ValueId up = b.Constant("up", F({6, 8}));
  const ValueId as_stored = b.Constant("as_stored", F({6, 8}));
  const ValueId inner = b.Add(ops::GeGluLinear{.x = x, .gate_weight = gate, .up_weight = up});
  const ValueId y = b.Add(ops::MatMul{.x = inner, .weight = as_stored}, "y");
  b.Output("logits", b.Add(ops::Linear(y, tied)), RowDemand::kAll);
  const auto graph = std::move(b).Finish();
  ASSERT_TRUE(graph) << graph.error().ToString();
  WeightNames names;
  AddWeightsInProducts(*graph, names);
  EXPECT_THAT(names, ::testing::ElementsAre("gate", "tied", "up"));
}

}  // namespace
}  // namespace rullama
