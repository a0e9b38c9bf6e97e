// Properties of every op: results have the inferred types, a step may have no wanted rows, and
// packed operands give the same results as unpacked ones.
#include "core/reference/evaluate.h"

#include <cstring>

#include "core/ir/op_cases_test_util.h"
#include "core/reference/eval_test_util.h"

namespace rullama::reference {
namespace {

using ::testing::HasSubstr;

// Bytes of a tensor whose elements are small finite numbers in every dtype; 0 or 1 as integers.
std::vector<std::byte> BytesFor(const TensorType& type, const Extents& extents) {
  std::vector<std::byte> bytes(type.BytesAt(extents));
  if (type.dtype == DType::kI32) {
    for (size_t j = 0; j < bytes.size(); j += 4) bytes[j] = static_cast<std::byte>(j / 4 % 2);
    return bytes;
  }
  for (size_t j = 0; j < bytes.size(); ++j) bytes[j] = static_cast<std::byte>(0x30 + j % 7);
  return bytes;
}

struct PackedOperands {
  std::vector<std::vector<std::byte>> bytes;
  Operands operands;
};

PackedOperands Pack(const test::OpUse& use, const Extents& extents) {
  PackedOperands packed;
  packed.bytes.reserve(use.operands.size());
  for (const auto& type : use.operands) {
    if (!type) {
      packed.operands.emplace_back(std::nullopt);
      continue;
    }
    packed.bytes.push_back(BytesFor(*type, extents));
    packed.operands.emplace_back(Tensor{.dtype = type->dtype,
                                        .dims = DimsAt(*type, extents),
                                        .f = {},
                                        .i = {},
                                        .packed = packed.bytes.back()});
  }
  return packed;
}

TEST(EvaluateTest, EveryOpRunsPackedAndUnpacked) {
  for (const test::OpCase& row : test::OpCases()) {
    for (const Extents extents : {Extents{3, 2}, Extents{3, 0}, Extents{1, 1}}) {
      SCOPED_TRACE(fmt::format("{} at T = {}, R = {}", NameOf(row.use.kind), extents.t, extents.r));
      const PackedOperands packed = Pack(row.use, extents);
      Operands unpacked = packed.operands;
      for (auto& operand : unpacked) {
        if (operand) operand = *Unpack(*operand);
      }
      const auto from_packed = TryEval(row.use.kind, row.use.attrs, packed.operands, extents.t);
      const auto from_unpacked = TryEval(row.use.kind, row.use.attrs, unpacked, extents.t);
      ASSERT_TRUE(from_packed) << from_packed.error().ToString();
      ASSERT_TRUE(from_unpacked) << from_unpacked.error().ToString();
      ASSERT_EQ(from_packed->size(), row.results.size());
      for (size_t i = 0; i < row.results.size(); ++i) {
        const Tensor& result = (*from_packed)[i];
        EXPECT_EQ(result.dtype, row.results[i].dtype);
        EXPECT_EQ(result.dims, DimsAt(row.results[i], extents));
        EXPECT_TRUE(result.packed.empty());
        EXPECT_EQ(result.f.size() + result.i.size(), static_cast<size_t>(result.elements()));
        EXPECT_EQ(result.f, (*from_unpacked)[i].f);
        EXPECT_EQ(result.i, (*from_unpacked)[i].i);
      }
    }
  }
}

TEST(EvaluateTest, OperandsHaveToHoldTheirElements) {
  const OpAttrs none(OpKind::kCopy);
  EXPECT_THAT(EvalError(OpKind::kCopy, none, {F32({3}, {1, 2})}),
              HasSubstr("copy: operand x does not hold the 3 elements of its dims [ref.size]"));
  Tensor mixed = I32({2}, {1, 2});
  mixed.dtype = DType::kF32;
  EXPECT_THAT(EvalError(OpKind::kCopy, none, {mixed}), HasSubstr("does not hold"));
  const std::vector<std::byte> bytes(7);
  const Tensor packed{.dtype = DType::kF32, .dims = {2}, .f = {}, .i = {}, .packed = bytes};
  EXPECT_THAT(EvalError(OpKind::kCopy, none, {packed}), HasSubstr("does not hold"));
}

TEST(EvaluateTest, WrongOperandsAreRefusedByTheirTypes) {
  EXPECT_THAT(EvalError(OpKind::kSoftcap, OpAttrs(rl_softcap_attrs{0, -1}), {F32({1}, {1})}),
              HasSubstr("cap is -1"));
  EXPECT_THAT(EvalError(OpKind::kCopy, OpAttrs(OpKind::kCopy), {}), HasSubstr("found 0 operands"));
  EXPECT_THAT(EvalError(OpKind::kCopy, OpAttrs(OpKind::kCopy), {F32({1, 1, 1, 1, 1}, {1})}),
              HasSubstr("rank 5"));
  EXPECT_THAT(EvalError(static_cast<OpKind>(9999), OpAttrs(OpKind::kCopy), {}),
              HasSubstr("unknown op 9999"));
}

}  // namespace
}  // namespace rullama::reference
