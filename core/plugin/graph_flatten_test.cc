#include "core/plugin/graph_flatten.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string_view>

namespace rullama {
namespace {

std::string_view Text(rl_str text) { return {text.data, text.size}; }

// x [T, 8] -> rms_norm without a weight -> y, then matmul with w [16, 8] -> z, an output.
Graph TestGraph() {
  Graph graph;
  graph.name = "test";
  graph.max_t = 8;
  graph.max_r = 2;
  const auto add = [&graph](TensorType type, Lifetime lifetime, const char* name) {
    Value value;
    value.type = type;
    value.lifetime = lifetime;
    value.name = name;
    graph.values.push_back(value);
  };
  add(TensorType(DType::kF32, {Dim::T(), 8}), Lifetime::kInput, "x");
  add(TensorType(DType::kF32, {Dim::T(), 8}), Lifetime::kTransient, "y");
  add(TensorType(DType::kF16, {16, 8}), Lifetime::kConstant, "w");
  add(TensorType(DType::kF32, {Dim(1, 2, 3), 16}), Lifetime::kTransient, "z");
  add(TensorType(DType::kF32, {2, 4, 1, 8}), Lifetime::kState, "s");
  rl_rms_norm_attrs norm{};
  norm.eps = 0.5F;
  graph.ops.push_back({OpKind::kRmsNorm, {0, kNoValue}, {1}, OpAttrs(norm)});
  rl_matmul_attrs matmul{};
  matmul.transpose_weight = 1;
  graph.ops.push_back({OpKind::kMatMul, {1, 2}, {3}, OpAttrs(matmul)});
  graph.outputs.push_back({"logits", 3});
  return graph;
}

TEST(FlatGraph, ValuesWithoutStorage) {
  const Graph graph = TestGraph();
  const FlatGraph flat(graph);
  const rl_graph& view = *flat.view();
  EXPECT_EQ(view.struct_size, sizeof(rl_graph));
  EXPECT_EQ(view.value_size, sizeof(rl_value));
  EXPECT_EQ(view.op_size, sizeof(rl_op));
  EXPECT_EQ(Text(view.name), "test");
  EXPECT_EQ(view.max_t, 8);
  EXPECT_EQ(view.max_r, 2);
  ASSERT_EQ(view.value_count, 5U);
  const uint32_t lifetimes[] = {RL_LIFETIME_INPUT, RL_LIFETIME_TRANSIENT, RL_LIFETIME_CONSTANT,
                                RL_LIFETIME_OUTPUT, RL_LIFETIME_STATE};
  const char* names[] = {"x", "y", "w", "z", "s"};
  const uint64_t bytes[] = {8 * 8 * 4, 8 * 8 * 4, 16 * 8 * 2, (1 + 2 * 8 + 3 * 2) * 16 * 4,
                            2 * 4 * 8 * 4};
  for (uint32_t i = 0; i < view.value_count; ++i) {
    EXPECT_EQ(view.values[i].lifetime, lifetimes[i]);
    EXPECT_EQ(Text(view.values[i].name), names[i]);
    EXPECT_EQ(view.values[i].bytes, bytes[i]);
    EXPECT_EQ(view.values[i].observed, 0U);
    EXPECT_EQ(view.values[i].buffer, nullptr);
    EXPECT_EQ(view.values[i].weight, nullptr);
  }
  EXPECT_EQ(view.values[2].dtype, 1U);  // RL_DTYPE_F16
  EXPECT_EQ(view.values[4].rank, 4U);
  EXPECT_EQ(view.values[3].dims[0].constant, 1);
  EXPECT_EQ(view.values[3].dims[0].t, 2);
  EXPECT_EQ(view.values[3].dims[0].r, 3);
  EXPECT_EQ(view.values[3].dims[1].constant, 16);
}

TEST(FlatGraph, Ops) {
  const Graph graph = TestGraph();
  const FlatGraph flat(graph);
  const rl_graph& view = *flat.view();
  ASSERT_EQ(view.op_count, 2U);
  const rl_op& norm = view.ops[0];
  EXPECT_EQ(norm.kind, static_cast<uint32_t>(RL_OP_rms_norm));
  ASSERT_EQ(norm.input_count, 2U);
  EXPECT_EQ(norm.inputs[0], 0U);
  EXPECT_EQ(norm.inputs[1], RL_NO_VALUE);
  ASSERT_EQ(norm.result_count, 1U);
  EXPECT_EQ(norm.results[0], 1U);
  ASSERT_EQ(norm.attrs_size, sizeof(rl_rms_norm_attrs));
  rl_rms_norm_attrs attrs{};
  std::memcpy(&attrs, norm.attrs, sizeof(attrs));
  EXPECT_EQ(attrs.struct_size, sizeof(attrs));
  EXPECT_EQ(attrs.eps, 0.5F);
  EXPECT_EQ(view.ops[1].kind, static_cast<uint32_t>(RL_OP_matmul));
}

TEST(FlatGraph, Storage) {
  const Graph graph = TestGraph();
  std::vector<Storage> storage(graph.values.size());
  // The handles are opaque here; any two distinct addresses do.
  alignas(8) std::byte objects[16];
  auto* buffer = reinterpret_cast<rl_buffer*>(&objects[0]);
  auto* weight = reinterpret_cast<rl_weight*>(&objects[8]);
  storage[1] = {RL_LIFETIME_OUTPUT, true, nullptr, buffer, 128, 256};
  storage[2] = {RL_LIFETIME_CONSTANT, false, weight, nullptr, 0, 256};
  const FlatGraph flat(graph, storage, RecordTimes::kYes);
  EXPECT_EQ(flat.view()->record_times, 1U);
  EXPECT_EQ(FlatGraph(graph, storage, RecordTimes::kNo).view()->record_times, 0U);
  const rl_value& y = flat.view()->values[1];
  EXPECT_EQ(y.lifetime, RL_LIFETIME_OUTPUT);
  EXPECT_EQ(y.observed, 1U);
  EXPECT_EQ(y.buffer, buffer);
  EXPECT_EQ(y.offset, 128U);
  EXPECT_EQ(y.bytes, 256U);
  EXPECT_EQ(flat.view()->values[2].weight, weight);
}

}  // namespace
}  // namespace rullama
