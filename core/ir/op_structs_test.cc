#include "core/ir/op_structs.h"

#include <gtest/gtest.h>

#include <cstring>

#include "core/ir/op_cases_test_util.h"

namespace rullama {
namespace {

// Operands and attributes survive the way into the op's struct and back.
template <typename OpType>
void ExpectRoundTrip(const Op& op) {
  const auto named = ops::Read<OpType>(op);
  EXPECT_EQ(OperandsOf(named), op.inputs) << NameOf(op.kind);
  const OpAttrs attrs = AttributesOf(named);
  ASSERT_EQ(attrs.size(), op.attrs.size()) << NameOf(op.kind);
  for (const AttrInfo& attr : InfoOf(op.kind).attrs) {
    const size_t bytes = attr.type == AttrType::kI64 ? 8 : 4;
    EXPECT_EQ(std::memcmp(static_cast<const std::byte*>(attrs.data()) + attr.offset,
                          static_cast<const std::byte*>(op.attrs.data()) + attr.offset, bytes),
              0)
        << NameOf(op.kind) << "." << attr.name;
  }
}

TEST(OpStructsTest, ReadAndAddAreInverse) {
  for (const test::OpCase& row : test::OpCases()) {
    const Graph graph = test::GraphOf(row.use);
    for (const Op& op : graph.ops) {
      switch (op.kind) {
#define RL_OP(id, Name, name, inputs, results, attributes, traits, doc) \
  case OpKind::k##Name:                                                 \
    ExpectRoundTrip<ops::Name>(op);                                     \
    break;
#include <rullama/abi/ops.def>
      }
    }
  }
}

TEST(OpStructsTest, OperandConstantsAreThePositionsInTheTable) {
  EXPECT_EQ(InfoOf(OpKind::kMatMul).operands[operands::MatMul::weight].name, "weight");
  EXPECT_EQ(InfoOf(OpKind::kAttention).operands[operands::Attention::kv_slot].name, "kv_slot");
#define RL_OP(id, Name, name, inputs, results, attributes, traits, doc)               \
  EXPECT_EQ(InfoOf(OpKind::k##Name).operands.size(), size_t{operands::Name::kCount}); \
  for (size_t i = 0; i < operands::Name::kCount; ++i) {                               \
    EXPECT_EQ(RoleOf(id, i), InfoOf(OpKind::k##Name).operands[i].role) << #name;      \
  }
#include <rullama/abi/ops.def>
  EXPECT_EQ(RoleOf(RL_OP_matmul, operands::MatMul::kCount), OperandRole::kData);
  EXPECT_EQ(RoleOf(0, 0), OperandRole::kData);
}

// Roles against the table of correct uses: ids are i32, weights may have a block type.
TEST(OpStructsTest, RolesFitTheTypesOfCorrectUses) {
  for (const test::OpCase& row : test::OpCases()) {
    const OpInfo& info = InfoOf(row.use.kind);
    for (size_t i = 0; i < info.operands.size(); ++i) {
      if (!row.use.operands[i]) continue;
      const TensorType& type = *row.use.operands[i];
      const OperandRole role = info.operands[i].role;
      EXPECT_TRUE(role != OperandRole::kIndex || type.dtype == DType::kI32) << info.name;
      EXPECT_TRUE(role != OperandRole::kWeight || type.rank >= 2) << info.name;
      EXPECT_TRUE(!IsBlockType(type.dtype) || role == OperandRole::kWeight ||
                  role == OperandRole::kTable)
          << info.name;
    }
  }
}

}  // namespace
}  // namespace rullama
