// The ops of records (core/plugin/device.h, OpTime) in words, for traces and profiles: ops that a
// backend runs as one are a group.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/ir/graph.h"
#include "core/ir/op_cost.h"

namespace rullama::cli {

struct OpGroup {
  std::string kind;              // "matmul", "rms_norm+matmul"
  std::string value;             // the name of the last op's first result: "blk.3.attn.q"
  std::string shapes;            // of the last op: "f32[T,1536], q4_k[2048,1536] -> f32[T,2048]"
  std::optional<int64_t> layer;  // 3 of "blk.3.attn.q"
  GroupCost cost;
};

// A group with what it costs in some steps.
struct CostedGroup {
  const OpGroup* group;
  OpCost cost;
};

class OpGroups {
 public:
  // The group of ops of a graph that lives, at this address, as long as this object is asked about
  // it, with its cost in a step. The reference is valid as long as this object, and the same for
  // steps with the same costs one after another.
  const CostedGroup& Find(const Graph& graph, std::span<const uint32_t> ops,
                          const StepForCost& step);

 private:
  struct Known {
    std::vector<uint32_t> ops;
    OpGroup group;
    Extents extents = {-1, -1};            // of the step that was asked about last
    const CostedGroup* at_step = nullptr;  // the group in this step
  };
  // The groups of a graph by their first op.
  using GraphGroups = std::vector<std::deque<Known>>;
  Known& FindKnown(const Graph& graph, std::span<const uint32_t> ops);

  std::map<const Graph*, GraphGroups> groups_;
  std::deque<CostedGroup> costed_;
  const Graph* last_graph_ = nullptr;
  GraphGroups* last_groups_ = nullptr;  // of last_graph_
};

// The number N of a name that begins with "blk.N.".
std::optional<int64_t> LayerOfName(std::string_view name);

}  // namespace rullama::cli
