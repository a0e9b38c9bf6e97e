#include <rullama/sdk/half.h>

#include <cstring>

#include "core/reference/eval_test_util.h"

namespace rullama::reference {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(StructureTest, ReshapeAndCopyKeepTheElements) {
  const Tensor x = F32({2, 4}, {0, 1, 2, 3, 4, 5, 6, 7});
  const Tensor y = Eval(OpKind::kReshape, OpAttrs(rl_reshape_attrs{0, 3, 2, 2, 0}), {x});
  EXPECT_THAT(y.dims, ElementsAre(2, 2, 2));
  EXPECT_EQ(y.f, x.f);
  const Tensor z = Eval(OpKind::kCopy, OpAttrs(OpKind::kCopy), {I32({3}, {7, -8, 9})});
  EXPECT_THAT(z.i, ElementsAre(7, -8, 9));
}

TEST(StructureTest, SliceTakesARangeOfAnInnerAxis) {
  const Tensor x = F32({1, 3, 2}, {0, 1, 2, 3, 4, 5});
  EXPECT_THAT(Eval(OpKind::kSlice, OpAttrs(rl_slice_attrs{0, 1, 1, 2}), {x}).f,
              ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(Eval(OpKind::kSlice, OpAttrs(rl_slice_attrs{0, 2, 1, 1}), {x}).f,
              ElementsAre(1, 3, 5));
}

TEST(StructureTest, ConcatJoinsAlongAnInnerAxis) {
  const Tensor a = I32({2, 1}, {1, 2});
  const Tensor b = I32({2, 2}, {3, 4, 5, 6});
  const Tensor y = Eval(OpKind::kConcat, OpAttrs(rl_concat_attrs{0, 1}), {a, b});
  EXPECT_THAT(y.dims, ElementsAre(2, 3));
  EXPECT_THAT(y.i, ElementsAre(1, 3, 4, 2, 5, 6));
}

TEST(StructureTest, CastRoundsToTheGrid) {
  const auto cast = [](rl_dtype dtype, const Tensor& x) {
    return Eval(OpKind::kCast, OpAttrs(rl_cast_attrs{0, dtype}), {x});
  };
  // 1 + 2^-11 lies halfway between two f16 numbers and rounds to the even one; 70000 exceeds the
  // largest.
  ExpectValues(cast(RL_DTYPE_F16, F32({3}, {1 + 0x1p-11, 1 + 3 * 0x1p-11, 70000})),
               {1, 1 + 0x1p-9, kInf});
  ExpectValues(cast(RL_DTYPE_BF16, F32({2}, {1 + 0x1p-8, 1 + 3 * 0x1p-8})), {1, 1 + 0x1p-6});
  ExpectValues(cast(RL_DTYPE_F32, F32({1}, {0.1})), {0.1});  // f32 keeps float64 here
  EXPECT_THAT(cast(RL_DTYPE_I32, F32({6}, {1.9, -1.9, 3e9, -kInf, kNaN, 0.5})).i,
              ElementsAre(1, -1, INT32_MAX, INT32_MIN, 0, 0));
  ExpectValues(cast(RL_DTYPE_F32, I32({2}, {-3, (1 << 24) + 1})), {-3, 1 << 24});
  EXPECT_THAT(cast(RL_DTYPE_I32, I32({1}, {5})).i, ElementsAre(5));
}

TEST(StructureTest, GatherRowsOfPlainTables) {
  const Tensor table = F32({3, 2}, {0, 1, 10, 11, 20, 21});
  const OpAttrs all(rl_gather_rows_attrs{0, 0, 0});
  EXPECT_THAT(Eval(OpKind::kGatherRows, all, {table, I32({2}, {2, 0})}).f,
              ElementsAre(20, 21, 0, 1));
  EXPECT_THAT(
      Eval(OpKind::kGatherRows, OpAttrs(rl_gather_rows_attrs{0, 1, 1}), {table, I32({2}, {2, 0})})
          .f,
      ElementsAre(21, 1));
  EXPECT_THAT(Eval(OpKind::kGatherRows, all, {I32({2, 2}, {1, 2, 3, 4}), I32({3}, {1, 0, 1})}).i,
              ElementsAre(3, 4, 1, 2, 3, 4));
  EXPECT_THAT(Eval(OpKind::kGatherRows, all, {I32({3}, {7, 8, 9}), I32({1}, {2})}).i,
              ElementsAre(9));
  EXPECT_THAT(EvalError(OpKind::kGatherRows, all, {table, I32({2}, {0, 3})}),
              HasSubstr("id 3 of row 1 is outside the 3 rows of the table [ref.index]"));
  EXPECT_THAT(EvalError(OpKind::kGatherRows, all, {table, I32({1}, {-1})}), HasSubstr("id -1"));
}

// Two q8_0 blocks a row: scale (f16), then 32 signed bytes.
std::vector<std::byte> Q8Table(int64_t rows) {
  std::vector<std::byte> bytes(static_cast<size_t>(rows) * 2 * 34);
  for (int64_t block = 0; block < rows * 2; ++block) {
    auto* at = bytes.data() + block * 34;
    const uint16_t scale = FloatToHalf(static_cast<float>(block + 1));
    std::memcpy(at, &scale, sizeof(scale));
    for (int j = 0; j < 32; ++j) at[2 + j] = static_cast<std::byte>(static_cast<int8_t>(j - 16));
  }
  return bytes;
}

TEST(StructureTest, GatherRowsDecodesOnlyWhatItTakes) {
  const auto bytes = Q8Table(3);
  Tensor table{.dtype = DType::kQ8_0, .dims = {3, 64}, .f = {}, .i = {}, .packed = bytes};
  const Tensor y = Eval(OpKind::kGatherRows, OpAttrs(rl_gather_rows_attrs{0, 32, 32}),
                        {table, I32({2}, {2, 0})});
  ASSERT_THAT(y.dims, ElementsAre(2, 32));
  for (int j = 0; j < 32; ++j) {
    EXPECT_EQ(y.f[static_cast<size_t>(j)], 6.0 * (j - 16));
    EXPECT_EQ(y.f[static_cast<size_t>(32 + j)], 2.0 * (j - 16));
  }
}

TEST(StructureTest, GatherLastPicksOneColumnARow) {
  const Tensor x = F32({3, 2}, {1, 2, 3, 4, 5, 6});
  const OpAttrs none(OpKind::kGatherLast);
  ExpectValues(Eval(OpKind::kGatherLast, none, {x, I32({3}, {1, -1, 0})}), {2, kNaN, 5});
  EXPECT_THAT(Eval(OpKind::kGatherLast, none, {I32({2, 2}, {1, 2, 3, 4}), I32({2}, {-5, 1})}).i,
              ElementsAre(-1, 4));
  EXPECT_THAT(EvalError(OpKind::kGatherLast, none, {x, I32({3}, {0, 0, 2})}),
              HasSubstr("index 2 of row 2 is outside the 2 columns"));
}

}  // namespace
}  // namespace rullama::reference
