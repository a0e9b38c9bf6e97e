// Today's host with a plugin that was built with the headers of ABI 1.0 (old_plugin.c).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <vector>

#include "core/ir/builder.h"
#include "core/plugin/device.h"

namespace rullama {
namespace {

using ::testing::ElementsAre;

// y = 2 x + 1, then z = y: one op that the plugin knows and one that it does not.
Graph TwoOps() {
  Graph graph;
  graph.name = "two";
  graph.max_t = 2;
  for (const char* name : {"x", "y", "z"}) {
    Value value;
    value.name = name;
    value.lifetime = graph.values.empty() ? Lifetime::kInput : Lifetime::kTransient;
    value.type = TensorType(DType::kF32, {Dim::T(), 2});
    graph.values.push_back(value);
  }
  rl_affine_attrs affine{};
  affine.scale = 2;
  affine.bias = 1;
  graph.ops.push_back({OpKind::kAffine, {0}, {1}, OpAttrs(affine)});
  graph.ops.push_back({OpKind::kCopy, {1}, {2}, OpAttrs(OpKind::kCopy)});
  graph.outputs.push_back({"z", 2});
  return graph;
}

class OldPlugin : public ::testing::Test {
 protected:
  void SetUp() override {
    host_ = std::make_shared<PluginHost>(HostOptions{});
    auto plugin = Plugin::Load(OLD_PLUGIN, host_);
    ASSERT_TRUE(plugin) << plugin.error().ToString();
    plugin_ = *plugin;
    auto device = plugin_->Open(0, {});
    ASSERT_TRUE(device) << device.error().ToString();
    device_ = *std::move(device);
  }

  std::shared_ptr<PluginHost> host_;
  std::shared_ptr<Plugin> plugin_;
  std::unique_ptr<Device> device_;
};

TEST_F(OldPlugin, IsLoadedWithItsVersion) {
  EXPECT_EQ(plugin_->name(), "old");
  EXPECT_EQ(plugin_->abi_version(), std::pair(1, 0));
  EXPECT_EQ(device_->description().name, "host memory");
}

TEST_F(OldPlugin, AnswersForEachOp) {
  const auto support = device_->QueryOps(TwoOps());
  ASSERT_TRUE(support) << support.error().ToString();
  ASSERT_EQ(support->size(), 2U);
  EXPECT_TRUE((*support)[0].supported);
  EXPECT_FALSE((*support)[1].supported);
  EXPECT_EQ((*support)[1].reason, "only affine on f32");
}

// It would compute the square, the forward rotation and that of the first dims.
TEST_F(OldPlugin, IsNotBelievedAboutWhatWasAddedLater) {
  const auto answer = [&](const auto& op) {
    GraphBuilder b("later");
    const ValueId x = b.Input("x", {DType::kF32, {Dim::T(), 1, 4}});
    const ValueId pos = b.Input("pos", {DType::kI32, {Dim::T()}});
    b.Output("y", b.Add(op(x, pos), "y"), RowDemand::kAll);
    const auto support = device_->QueryOps(*std::move(b).Finish());
    EXPECT_TRUE(support);
    return support->at(0);
  };
  const auto rope = [&](int32_t inverse, int32_t first = 0) {
    return answer([&](ValueId x, ValueId pos) {
      return ops::Rope{
          .x = x, .pos = pos, .theta = 1, .n_rot = 2, .inverse = inverse, .first = first};
    });
  };
  const auto unary = [&](rl_unary fn) {
    return answer([&](ValueId x, ValueId) { return ops::Unary{.x = x, .fn = fn}; });
  };
  EXPECT_TRUE(rope(0).supported);
  EXPECT_FALSE(rope(1).supported);
  EXPECT_EQ(rope(1).reason, "needs a plugin of ABI 1.3, 'old' has 1.0");
  EXPECT_EQ(rope(0, 2).reason, "needs a plugin of ABI 1.6, 'old' has 1.0");
  EXPECT_TRUE(unary(RL_UNARY_SQUARE).supported);
  EXPECT_FALSE(unary(RL_UNARY_GELU_TANH_GRAD).supported);
}

// An attention op that plugins of ABI 1.0 know but for what the test changes. Its inputs have one
// head of eight numbers.
struct AttentionGraph {
  GraphBuilder b{"later"};
  ValueId rows = b.Input("rows", {DType::kI32, {Dim::T()}});
  ops::Attention op = {};

  AttentionGraph() {
    op.q = op.k_new = op.v_new = b.Input("x", {DType::kF32, {Dim::T(), 1, 8}});
    op.q_pos = op.q_slot = op.kv_pos = op.kv_slot = rows;
    op.scale = 1;
  }
  Result<Graph> Finish() && {
    b.Output("y", b.Add(op, "y"), RowDemand::kAll);
    return std::move(b).Finish();
  }
};

// It would take the absent cache for a value and read outside of the graph's.
TEST_F(OldPlugin, IsNotAskedAboutAttentionWithoutOldRows) {
  const auto support = device_->QueryOps(*AttentionGraph().Finish());
  ASSERT_TRUE(support) << support.error().ToString();
  EXPECT_FALSE(support->at(0).supported);
  EXPECT_EQ(support->at(0).reason, "needs a plugin of ABI 1.3, 'old' has 1.0");
}

// It would not read the operand, and hide the rows of a picture from each other.
TEST_F(OldPlugin, IsNotAskedAboutAttentionWithLastVisiblePositions) {
  AttentionGraph graph;
  graph.op.k_state = graph.op.v_state = graph.b.State("state", {DType::kF32, {1, 4, 1, 8}});
  graph.op.past = graph.b.Input("past", {DType::kI32, {1}});
  graph.op.q_end = graph.rows;
  const auto support = device_->QueryOps(*std::move(graph).Finish());
  ASSERT_TRUE(support) << support.error().ToString();
  EXPECT_FALSE(support->at(0).supported);
  EXPECT_EQ(support->at(0).reason, "needs a plugin of ABI 1.4, 'old' has 1.0");
}

// It would copy rows of blocks by the size of their elements.
TEST_F(OldPlugin, IsNotAskedAboutKeysAndValuesInBlocks) {
  GraphBuilder b("graph");
  const ValueId rows = b.Input("rows", {DType::kI32, {Dim::T()}});
  const ValueId x = b.Input("x", {DType::kF32, {Dim::T(), 1, 32}});
  const ValueId keys = b.Add(ops::Cast{.x = x, .dtype = DType::kQ8_0}, "keys");
  const ValueId state = b.State("state", {DType::kQ8_0, {1, 4, 1, 32}});
  b.Add(ops::StateAppend{.state = state, .rows = keys, .pos = rows, .slot = rows}, "next");
  const auto graph = std::move(b).Finish();
  ASSERT_TRUE(graph) << graph.error().ToString();
  const auto support = device_->QueryOps(*graph);
  ASSERT_TRUE(support) << support.error().ToString();
  for (const OpSupport& op : *support) {
    EXPECT_EQ(op.reason, "needs a plugin of ABI 1.8, 'old' has 1.0");
  }
}

TEST_F(OldPlugin, IsNotAskedAboutValuesOfAnotherTypeThanKeys) {
  AttentionGraph graph;
  graph.op.v_new = graph.b.Input("v", {DType::kF16, {Dim::T(), 1, 8}});
  graph.op.k_state = graph.b.State("k", {DType::kF32, {1, 4, 1, 8}});
  graph.op.v_state = graph.b.State("v_state", {DType::kF16, {1, 4, 1, 8}});
  graph.op.past = graph.b.Input("past", {DType::kI32, {1}});
  const auto support = device_->QueryOps(*std::move(graph).Finish());
  ASSERT_TRUE(support) << support.error().ToString();
  EXPECT_EQ(support->at(0).reason, "needs a plugin of ABI 1.8, 'old' has 1.0");
}

TEST_F(OldPlugin, Computes) {
  Graph graph = TwoOps();
  graph.ops.pop_back();
  graph.values.pop_back();
  graph.outputs = {{"y", 1}};
  constexpr uint64_t kBytes = 4 * sizeof(float);
  const auto buffer = device_->CreateBuffer(2 * kBytes, RL_BUFFER_ARENA);
  ASSERT_TRUE(buffer);
  std::vector<Storage> storage(2);
  for (size_t i = 0; i < storage.size(); ++i) {
    storage[i].buffer = buffer->get();
    storage[i].offset = i * kBytes;
    storage[i].bytes = kBytes;
  }
  // It does not know the wish, and has no times to tell.
  const auto plan = device_->Compile(graph, storage, RecordTimes::kYes);
  ASSERT_TRUE(plan) << plan.error().ToString();
  const std::array<float, 4> x = {1, -2, 0.5F, 100};
  std::array<float, 4> y{};
  ASSERT_TRUE(device_->Write(*buffer, 0, std::as_bytes(std::span(x))));
  ASSERT_TRUE(device_->Execute(*plan, {2, 1}));
  ASSERT_TRUE(device_->Wait());
  ASSERT_TRUE(device_->Read(*buffer, kBytes, std::as_writable_bytes(std::span(y))));
  EXPECT_THAT(y, ElementsAre(3, -3, 2, 201));
  const auto stats = device_->Stats(*plan);
  ASSERT_TRUE(stats);
  EXPECT_EQ(stats->executions, 1U);
  EXPECT_FALSE(device_->RecordsTimes());
  EXPECT_TRUE(device_->ReadTimes(*plan, graph, [](const OpTime&) { ADD_FAILURE(); }));
}

}  // namespace
}  // namespace rullama
