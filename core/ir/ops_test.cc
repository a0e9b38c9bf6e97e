#include "core/ir/ops.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>

namespace rullama {
namespace {

TEST(OpsTest, NamesAndIdsAreUniqueAndFound) {
  std::set<uint32_t> ids;
  std::set<std::string_view> names;
  for (const OpInfo& info : AllOps()) {
    EXPECT_TRUE(ids.insert(static_cast<uint32_t>(info.kind)).second) << info.name;
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_EQ(OpKindFromName(info.name), info.kind);
    EXPECT_EQ(&InfoOf(info.kind), &info);
    EXPECT_FALSE(info.doc.empty()) << info.name;
    EXPECT_FALSE(info.operands.empty()) << info.name;
    EXPECT_FALSE(info.results.empty()) << info.name;
  }
  EXPECT_EQ(OpKindFromName("no_such_op"), std::nullopt);
  // Ids between those of ops, one past the last, and far ones.
  for (uint32_t id = 0; id <= *ids.rbegin() + 1; ++id) {
    EXPECT_EQ(FindOp(static_cast<OpKind>(id)) != nullptr, ids.contains(id)) << id;
  }
  EXPECT_EQ(FindOp(static_cast<OpKind>(9999)), nullptr);
  EXPECT_EQ(FindOp(static_cast<OpKind>(0xFFFFFFFFu)), nullptr);
}

TEST(OpsTest, AttributesFitAndAreAligned) {
  for (const OpInfo& info : AllOps()) {
    EXPECT_LE(info.attrs_size, OpAttrs::kCapacity) << info.name;
    size_t end = sizeof(uint32_t);  // struct_size comes first
    for (const AttrInfo& attr : info.attrs) {
      const size_t size = attr.type == AttrType::kI64 ? 8 : 4;
      EXPECT_EQ(attr.offset % size, 0u) << info.name << "." << attr.name;
      EXPECT_GE(attr.offset, end) << info.name << "." << attr.name;
      EXPECT_EQ(attr.enum_name.empty(), attr.type != AttrType::kEnum);
      end = attr.offset + size;
    }
    EXPECT_LE(end, info.attrs_size) << info.name;
    const OpAttrs attrs(info.kind);
    uint32_t struct_size = 0;
    std::memcpy(&struct_size, attrs.data(), sizeof(struct_size));
    EXPECT_EQ(struct_size, info.attrs_size);
    EXPECT_EQ(attrs.size(), info.attrs_size);
  }
}

TEST(OpsTest, EnumeratorsGoBothWays) {
  std::set<std::string_view> enums;
  for (const OpInfo& info : AllOps()) {
    for (const AttrInfo& attr : info.attrs) {
      if (attr.type == AttrType::kEnum) enums.insert(attr.enum_name);
    }
  }
  EXPECT_EQ(enums, (std::set<std::string_view>{"rl_binary", "rl_dtype", "rl_mask", "rl_reduce",
                                               "rl_unary"}));
  for (const std::string_view name : enums) {
    int found = 0;
    for (int32_t value = 0; value < 64; ++value) {
      const std::string_view text = EnumeratorName(name, value);
      if (text.empty()) continue;
      ++found;
      EXPECT_EQ(EnumeratorFromName(name, text), value) << name << "." << text;
    }
    EXPECT_GE(found, 2) << name;
  }
  // The last enumerator of each type has a name, and the next number none.
  EXPECT_EQ(EnumeratorName("rl_unary", RL_UNARY_GELU_TANH_GRAD), "gelu_tanh_grad");
  EXPECT_EQ(EnumeratorName("rl_unary", RL_UNARY_GELU_TANH_GRAD + 1), "");
  EXPECT_EQ(EnumeratorName("rl_binary", RL_BINARY_EQ), "eq");
  EXPECT_EQ(EnumeratorName("rl_binary", RL_BINARY_EQ + 1), "");
  EXPECT_EQ(EnumeratorName("rl_reduce", RL_REDUCE_MEAN), "mean");
  EXPECT_EQ(EnumeratorName("rl_reduce", RL_REDUCE_MEAN + 1), "");
  EXPECT_EQ(EnumeratorName("rl_mask", RL_MASK_CANVAS), "canvas");
  EXPECT_EQ(EnumeratorName("rl_mask", RL_MASK_CANVAS + 1), "");
  EXPECT_EQ(EnumeratorFromName("rl_mask", "square"), std::nullopt);
}

// Attributes that a plugin of an older version would misread require the newer one.
TEST(OpsTest, LaterAdditionsRequireALaterAbi) {
  const auto required = [](const auto& attrs) {
    return RequiredAbiMinor(AttrsKind<std::decay_t<decltype(attrs)>>::kKind, OpAttrs(attrs));
  };
  EXPECT_EQ(required(rl_rope_attrs{0, 1e4F, 8, 0, 0}), 0);
  EXPECT_EQ(required(rl_rope_attrs{0, 1e4F, 8, 1, 0}), 3);
  EXPECT_EQ(required(rl_rope_attrs{0, 1e4F, 8, 1, 2}), 6);
  EXPECT_EQ(required(rl_unary_attrs{0, RL_UNARY_SQUARE}), 0);
  EXPECT_EQ(required(rl_unary_attrs{0, RL_UNARY_GELU_TANH_GRAD}), 3);
  EXPECT_EQ(required(rl_binary_attrs{0, RL_UNARY_GELU_TANH_GRAD}), 0);  // another enumeration
  EXPECT_EQ(InfoOf(OpKind::kRope).min_attrs_size, 12u);
  EXPECT_EQ(InfoOf(OpKind::kRope).attrs_size, 20u);
}

TEST(OpsTest, ExactlyTheWrittenOperandsOfEffectsAreStates) {
  for (const OpInfo& info : AllOps()) {
    if (info.trait != OpTrait::kEffect) continue;
    const size_t written = WrittenOperands(info);
    EXPECT_EQ(written, info.results.size()) << info.name;
    for (size_t i = 0; i < info.operands.size(); ++i) {
      EXPECT_EQ(info.operands[i].role == OperandRole::kState, i < written)
          << info.name << "." << info.operands[i].name;
    }
  }
}

}  // namespace
}  // namespace rullama
