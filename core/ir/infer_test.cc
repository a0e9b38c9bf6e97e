#include "core/ir/infer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "core/ir/op_cases_test_util.h"

namespace rullama {
namespace {

using test::OpCase;
using test::OpCases;
using test::OpUse;
using ::testing::HasSubstr;

Result<std::vector<TensorType>> Infer(const OpUse& use) {
  std::vector<const TensorType*> operands;
  for (const auto& operand : use.operands) operands.push_back(operand ? &*operand : nullptr);
  return InferTypes(use.kind, use.attrs, operands);
}

TEST(InferTest, EveryOpHasARowWithTwoWrongUses) {
  std::set<OpKind> kinds;
  for (const OpCase& row : OpCases()) {
    kinds.insert(row.use.kind);
    EXPECT_GE(row.wrong.size(), 2u) << NameOf(row.use.kind);
  }
  for (const OpInfo& info : AllOps()) {
    EXPECT_TRUE(kinds.contains(info.kind)) << "no row for " << info.name;
  }
}

TEST(InferTest, CorrectUsesGiveTheirTypes) {
  for (const OpCase& row : OpCases()) {
    SCOPED_TRACE(NameOf(row.use.kind));
    const auto types = Infer(row.use);
    ASSERT_TRUE(types) << types.error().ToString();
    EXPECT_EQ(*types, row.results);
  }
}

TEST(InferTest, WrongUsesAreRefusedWithTheReason) {
  for (const OpCase& row : OpCases()) {
    for (const test::WrongUse& wrong : row.wrong) {
      SCOPED_TRACE(std::string(NameOf(row.use.kind)) + ": " + wrong.fragment);
      OpUse use = row.use;
      wrong.change(use);
      const auto types = Infer(use);
      ASSERT_FALSE(types);
      EXPECT_EQ(types.error().id, "ir.type");
      EXPECT_THAT(types.error().message, HasSubstr(wrong.fragment));
      EXPECT_THAT(types.error().message, HasSubstr(NameOf(row.use.kind)));
    }
  }
}

TEST(InferTest, EveryRequiredOperandIsMissedAndEveryOptionalOneIsNot) {
  for (const OpCase& row : OpCases()) {
    const OpInfo& info = InfoOf(row.use.kind);
    for (size_t i = 0; i < info.operands.size(); ++i) {
      SCOPED_TRACE(std::string(info.name) + " without " + std::string(info.operands[i].name));
      OpUse use = row.use;
      use.operands[i] = std::nullopt;
      if (info.operands[i].optional && row.leave_out) row.leave_out(use);
      const auto types = Infer(use);
      EXPECT_EQ(types.has_value(), info.operands[i].optional);
      if (!types) {
        EXPECT_THAT(types.error().message, HasSubstr("is missing"));
      }
    }
  }
}

TEST(InferTest, AttributesOfAnotherOpAreRefused) {
  OpUse use{OpKind::kRope, OpAttrs(OpKind::kCopy), OpCases().front().use.operands};
  use.operands.resize(3);
  const auto types = Infer(use);
  ASSERT_FALSE(types);
  EXPECT_THAT(types.error().message, HasSubstr("attributes of 4 bytes, expected 20"));
}

TEST(InferTest, WeightsAsStoredGiveTheirColumns) {
  const TensorType x = test::F({Dim::T(), 2, 512});
  const TensorType weight(DType::kQ4_K, {8, 512, 256});
  const TensorType experts = test::I({Dim::T(), 2});
  const auto types = InferTypes(OpKind::kGroupedMatMul, OpAttrs(rl_grouped_matmul_attrs{0, 1}),
                                std::vector{&x, &weight, &experts});
  ASSERT_TRUE(types) << types.error().ToString();
  EXPECT_EQ((*types)[0], test::F({Dim::T(), 2, 256}));
}

TEST(InferTest, WeightOfPlainTypesGathersToF32) {
  const TensorType ids(DType::kI32, {Dim::T()});
  const OpAttrs all(rl_gather_rows_attrs{0, 0, 0});
  const auto gather = [&](const TensorType& table) {
    return (*InferTypes(OpKind::kGatherRows, all, std::vector{&table, &ids}))[0];
  };
  EXPECT_EQ(gather({DType::kF16, {10, 8}}), test::F({Dim::T(), 8}));
  EXPECT_EQ(gather({DType::kI32, {10, 8}}), test::I({Dim::T(), 8}));
  EXPECT_EQ(gather({DType::kF16, {10, 2, 8}}), TensorType(DType::kF16, {Dim::T(), 2, 8}));
}

}  // namespace
}  // namespace rullama
