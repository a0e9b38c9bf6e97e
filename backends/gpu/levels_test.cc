// The levels of a decoded token (schedule.h), each of which costs microseconds whatever it computes
// (docs/lab/vulkan.md): numbers that do not grow unnoticed. The graph is the layer of
// testdata/layer.txt.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "backends/gpu/plan_builder.h"
#include "backends/gpu/schedule.h"
#include "core/ir/text.h"
#include "core/passes/adapt.h"
#include "core/passes/decompose.h"
#include "core/plugin/graph_flatten.h"

namespace rullama::gpu {
namespace {

// Addresses without memory.
class NoMemory final : public PlanDevice {
 public:
  DeviceAddress NewMemory(uint64_t bytes) override {
    const DeviceAddress address = next_;
    next_ += RoundUp(bytes, 256);
    return address;
  }
  void Fill(DeviceAddress /*address*/, std::span<const std::byte> /*bytes*/) override {}

 private:
  DeviceAddress next_ = 256;
};

class NoWeight final : public DeviceWeight {
 public:
  NoWeight(NoMemory& memory, const rl_weight_desc& desc) : DeviceWeight(desc) {
    AddPiece({{0, shape().rows}, memory.NewMemory(shape().bytes())});
  }
};

class NoBuffer final : public DeviceBuffer {
 public:
  NoBuffer(NoMemory& memory, uint64_t bytes) : DeviceBuffer(memory.NewMemory(bytes), bytes) {}
};

// Dispatches and levels of a step.
struct StepCost {
  size_t dispatches;
  uint32_t levels;
  friend bool operator==(const StepCost&, const StepCost&) = default;
};
void PrintTo(const StepCost& cost, std::ostream* out) {
  *out << cost.dispatches << " dispatches on " << cost.levels << " levels";
}

rl_weight_desc DescriptionOf(const rl_value& value, std::array<int64_t, RL_MAX_RANK>& dims) {
  for (uint32_t axis = 0; axis < value.rank; ++axis) dims.at(axis) = value.dims[axis].constant;
  rl_weight_desc desc{};
  desc.dtype = value.dtype;
  desc.rank = value.rank;
  std::ranges::copy(dims, desc.dims);
  return desc;
}

StepCost CostOf(const Graph& graph, const Target& target) {
  const FlatGraph flat(graph);
  rl_graph raw = *flat.view();
  std::vector<rl_value> values(raw.values, raw.values + raw.value_count);
  NoMemory memory;
  std::vector<std::unique_ptr<NoWeight>> weights;
  std::vector<std::unique_ptr<NoBuffer>> buffers;
  for (rl_value& value : values) {
    if (value.lifetime == RL_LIFETIME_CONSTANT) {
      std::array<int64_t, RL_MAX_RANK> dims{};
      weights.push_back(std::make_unique<NoWeight>(memory, DescriptionOf(value, dims)));
      value.weight = reinterpret_cast<rl_weight*>(static_cast<sdk::Weight*>(weights.back().get()));
    } else if (!IsPrivate(value)) {
      buffers.push_back(std::make_unique<NoBuffer>(memory, value.bytes));
      value.buffer = reinterpret_cast<rl_buffer*>(static_cast<sdk::Buffer*>(buffers.back().get()));
    }
  }
  raw.values = values.data();
  const LoweredGraph lowered =
      Lower(memory, sdk::GraphView(raw), target, memory.NewMemory(sizeof(StepWords)));
  return {lowered.dispatches.size(), std::ranges::max(LevelsOf(lowered.dispatches)) + 1};
}

Graph Layer() {
  std::ifstream file(RULLAMA_SOURCE_DIR "/backends/gpu/testdata/layer.txt");
  std::string text;
  for (std::string line; std::getline(file, line) && !line.starts_with("----");) {
    text += line + "\n";
  }
  auto graph = ParseText(text);
  EXPECT_TRUE(graph.has_value()) << graph.error().ToString();
  return *graph;
}

// With adapters of all seven projections, as GPUs get them.
Graph Adapted(const Graph& graph, int64_t rank) {
  std::vector<LowRankPair> pairs;
  for (const char* name : {"q", "k", "v", "out", "gate", "up", "down"}) {
    const std::string weight = std::string(name) + ".weight";
    const auto value = std::ranges::find(graph.values, weight, &Value::source);
    EXPECT_NE(value, graph.values.end()) << weight;
    pairs.push_back({.weight = weight,
                     .rank = rank,
                     .inputs = value->type.last().constant,
                     .outputs = value->type.dim(0).constant,
                     .a = weight + ".a",
                     .b = weight + ".b"});
  }
  auto adapted = AdaptProducts(graph, pairs);
  EXPECT_TRUE(adapted.has_value()) << adapted.error().ToString();
  auto parts = DecomposeWhere(*adapted, [](const Graph& /*graph*/, const Op& op) {
    return op.kind == OpKind::kAdaptedLinear || op.kind == OpKind::kAdaptedGeGluLinear;
  });
  EXPECT_TRUE(parts.has_value()) << parts.error().ToString();
  return *parts;
}

// As a device is that computes products of one row by bytes.
Target Device(bool norms_by_bytes) {
  Target target;
  target.can.follows_pointers = true;
  target.can.overlaps_dispatches = true;
  target.can.subgroups = true;
  target.can.subgroup_size = 32;
  target.can.integer_dot = true;
  target.can.starts_in_order = true;
  target.can.shared_bytes = 49152;
  target.can.norms_by_bytes = norms_by_bytes;
  target.prefers.max_prologue = 8192;
  target.prefers.few_groups = 132;
  return target;
}

// A step with adapters also fills the memory in which workgroups leave sums: here on a level of its
// own, because the layer begins with a product; in a model, while rows of embeddings are looked up.
constexpr uint32_t kFillLevels = 1, kFillDispatches = 1;

TEST(Levels, AnAdapterAddsOnlyTheFillToALayer) {
  const Graph layer = Layer();
  for (const bool norms_by_bytes : {false, true}) {
    const StepCost without = CostOf(layer, Device(norms_by_bytes));
    EXPECT_EQ(without, (StepCost{12, 8}));
    for (const int64_t rank : {1, 8, 32}) {
      EXPECT_EQ(CostOf(Adapted(layer, rank), Device(norms_by_bytes)),
                (StepCost{without.dispatches + kFillDispatches, without.levels + kFillLevels}))
          << rank;
    }
  }
}

// Ranks that would take too many workgroups are products of their own.
TEST(Levels, AnAdapterOfHighRankAddsSome) {
  const Graph layer = Layer();
  EXPECT_GT(CostOf(Adapted(layer, 33), Device(false)).levels,
            CostOf(layer, Device(false)).levels + kFillLevels);
}

}  // namespace
}  // namespace rullama::gpu
