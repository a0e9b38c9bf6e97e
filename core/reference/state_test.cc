#include <rullama/sdk/half.h>

#include <cstring>

#include "core/reference/eval_test_util.h"
#include "core/reference/kernels.h"

namespace rullama::reference {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const OpAttrs kNone(OpKind::kStateAppend);

TEST(StateTest, AppendWritesRingRowsOfSlots) {
  const Tensor state = I32({2, 3}, {0, 0, 0, 0, 0, 0});
  const Tensor next = Eval(OpKind::kStateAppend, kNone,
                           {state, I32({3}, {7, 8, 9}), I32({3}, {4, 5, 0}), I32({3}, {0, 0, 1})});
  EXPECT_THAT(next.i, ElementsAre(0, 7, 8, 9, 0, 0));
}

TEST(StateTest, TheLastRowOfAPlaceStays) {
  const Tensor state = F32({1, 2, 2}, {1, 1, 2, 2});
  const Tensor next =
      Eval(OpKind::kStateAppend, kNone,
           {state, F32({3, 2}, {3, 3, 4, 4, 5, 5}), I32({3}, {0, 1, 2}), I32({3}, {0, 0, 0})});
  ExpectValues(next, {5, 5, 4, 4});
  ExpectValues(state, {1, 1, 2, 2});
}

TEST(StateTest, AStateKeepsItsGrid) {
  Tensor state = MakeZeros(DType::kF16, {1, 2, 1});
  Tensor rows = MakeZeros(DType::kF16, {1, 1});
  rows.f = {1 + 0x1p-12};
  ExpectValues(Eval(OpKind::kStateAppend, kNone, {state, rows, I32({1}, {1}), I32({1}, {0})}),
               {0, 1});
}

TEST(StateTest, AppendToMemoryWritesTheSame) {
  std::vector<uint16_t> memory(4, 0);
  const std::vector<int64_t> dims = {1, 2, 2};
  Tensor rows = MakeZeros(DType::kF16, {1, 2});
  rows.f = {1.5, -2};
  ASSERT_TRUE(AppendToMemory(DType::kF16, dims, std::as_writable_bytes(std::span(memory)), rows,
                             I32({1}, {3}), I32({1}, {0})));
  EXPECT_THAT(memory, ElementsAre(0, 0, FloatToHalf(1.5F), FloatToHalf(-2.0F)));
}

TEST(StateTest, PlacesOutOfRangeAreErrors) {
  const Tensor state = I32({2, 3}, {0, 0, 0, 0, 0, 0});
  const auto error = [&](int32_t pos, int32_t slot) {
    return EvalError(OpKind::kStateAppend, kNone,
                     {state, I32({1}, {7}), I32({1}, {pos}), I32({1}, {slot})});
  };
  EXPECT_THAT(error(0, 2), HasSubstr("row 0 has slot 2 and position 0, the state 2 slots"));
  EXPECT_THAT(error(0, -1), HasSubstr("slot -1"));
  EXPECT_THAT(error(-1, 0), HasSubstr("position -1"));
}

TEST(StateTest, RingPositions) {
  // After 0, 2, 3, 5 and 7 appended rows, a ring of three holds:
  const std::vector<std::pair<int64_t, std::vector<int64_t>>> cases = {
      {0, {-1, -1, -1}}, {2, {0, 1, -1}}, {3, {0, 1, 2}}, {5, {3, 4, 2}}, {7, {6, 4, 5}}};
  for (const auto& [past, positions] : cases) {
    for (int64_t row = 0; row < 3; ++row) {
      EXPECT_EQ(RingPosition(row, past, 3), positions[static_cast<size_t>(row)])
          << "row " << row << " after " << past;
    }
  }
}

}  // namespace
}  // namespace rullama::reference
