// Tests what plans assume of their steps, by their bounds, their slots and the device.
#include "backends/gpu/plan_steps.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/ir/text.h"
#include "core/plugin/graph_flatten.h"

namespace rullama::gpu {
namespace {

struct StepsCase {
  int64_t max_t, max_r, slots;
  bool row_kernels;
  StepKind kind;
  int64_t decisive, largest;  // T
};

PlanSteps StepsOfAttention(const StepsCase& of) {
  const std::string slots = std::to_string(of.slots);
  const auto graph = ParseText("graph \"attention\" T<=" + std::to_string(of.max_t) +
                               " R<=" + std::to_string(of.max_r) +
                               "\n%0 = input \"x\" : f32[T,4,64]\n"
                               "%1 = input \"pos\" : i32[T]\n"
                               "%2 = input \"slot\" : i32[T]\n"
                               "%3 = input \"past\" : i32[" +
                               slots +
                               "]\n"
                               "%4 = input \"kv\" : f32[T,1,64]\n"
                               "%5 = state \"k_cache\" : f32[" +
                               slots +
                               ",64,1,64]\n"
                               "%6 = state \"v_cache\" : f32[" +
                               slots +
                               ",64,1,64]\n"
                               "%7 \"y\" = attention(%0, %4, %4, %5, %6, %1, %2, %1, %2, %3, _) "
                               "{mask=causal, window=0, scale=1} : f32[T,4,64]\n"
                               "output \"y\" = %7 all\n");
  EXPECT_TRUE(graph.has_value()) << graph.error().ToString();
  const FlatGraph flat(*graph);
  Target target;
  target.prefers.row_kernels = of.row_kernels;
  return StepsOf(sdk::GraphView(*flat.view()), target);
}

TEST(StepsOf, FollowBoundsAndSlotsAndTheKernelsOfTheDevice) {
  const std::vector<StepsCase> cases = {
      // One sequence: one row, and prompts.
      {1, 1, 1, true, StepKind::kOneRow, 1, 1},
      {8, 1, 1, true, StepKind::kFewRows, 8, 8},
      {9, 1, 1, true, StepKind::kManyRows, 9, 9},
      // Each plan of a batch is chosen for one row of each slot, or for one row.
      {1, 1, 4, false, StepKind::kFewRows, 4, 4},
      {4, 4, 4, false, StepKind::kFewRows, 4, 4},
      {2, 2, 12, false, StepKind::kManyRows, 12, 12},
      {1, 1, 4, true, StepKind::kRowByRow, 1, 1},
      {4, 4, 4, true, StepKind::kRowByRow, 1, 4},
      {2, 2, 17, true, StepKind::kManyRows, 17, 17},
      // Drafts of a single slot.
      {4, 4, 1, false, StepKind::kFewRows, 1, 4},
      {4, 4, 1, true, StepKind::kRowByRow, 1, 4},
      // A prompt of a session with slots.
      {32, 1, 4, true, StepKind::kManyRows, 32, 32},
  };
  for (const StepsCase& of : cases) {
    const PlanSteps steps = StepsOfAttention(of);
    const std::string label = "T<=" + std::to_string(of.max_t) + ", " + std::to_string(of.slots) +
                              " slots, row kernels: " + std::to_string(int{of.row_kernels});
    EXPECT_EQ(steps.kind, of.kind) << label;
    EXPECT_EQ(steps.decisive.t, of.decisive) << label;
    EXPECT_EQ(steps.largest.t, of.largest) << label;
  }
}

// Attention over caches of 4 slots, and experts.
TEST(StepsOf, GoRowByRowWithExperts) {
  const auto graph = ParseText(R"(graph "experts" T<=1 R<=1
%0 = input "x" : f32[T,4,64]
%1 = input "pos" : i32[T]
%2 = input "slot" : i32[T]
%3 = input "past" : i32[4]
%4 = input "kv" : f32[T,1,64]
%5 = state "k_cache" : f32[4,64,1,64]
%6 = state "v_cache" : f32[4,64,1,64]
%7 = input "row" : f32[T,256]
%8 = constant "gate_up" : q4_k[8,256,256]
%9 = constant "down" : q8_0[8,256,128]
%10 = input "weights" : f32[T,2]
%11 = input "chosen" : i32[T,2]
%12 "y" = attention(%0, %4, %4, %5, %6, %1, %2, %1, %2, %3, _) {mask=causal, window=0, scale=1} : f32[T,4,64]
%13 "z" = moe_ffn(%7, %10, %11, %8, _, %9, _) : f32[T,256]
output "y" = %12 all
output "z" = %13 all
)");
  ASSERT_TRUE(graph.has_value()) << graph.error().ToString();
  const FlatGraph flat(*graph);
  Target target;
  target.prefers.row_kernels = true;
  EXPECT_EQ(StepsOf(sdk::GraphView(*flat.view()), target).kind, StepKind::kRowByRow);
}

}  // namespace
}  // namespace rullama::gpu
