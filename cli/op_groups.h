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
  // The cost that was asked for last, if all steps of the same extents have it.
  Extents known_extents = {-1, -1};
  OpCost known_cost = {};

  // cost.At(), as long as the graph lives.
  OpCost CostAt(const StepForCost& step);
};

class OpGroups {
 public:
  // The group of ops of a graph that lives, at this address, as long as this object is asked about
  // it. The reference is valid as long as this object.
  OpGroup& Find(const Graph& graph, std::span<const uint32_t> ops);

 private:
  struct Known {
    std::vector<uint32_t> ops;
    OpGroup group;
  };
  // The groups of a graph by their first op.
  using GraphGroups = std::vector<std::deque<Known>>;
  std::map<const Graph*, GraphGroups> groups_;
};

// The number N of a name that begins with "blk.N.".
std::optional<int64_t> LayerOfName(std::string_view name);

}  // namespace rullama::cli
