// The ops of records (core/plugin/device.h, OpTime) in words, for traces and profiles: ops that a
// backend runs as one are a group.
//
// Thread safety: none; groups are immutable once found.
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

class OpGroups {
 public:
  // The group of ops of a graph that lives, at this address, as long as this object is asked about
  // it. The reference is valid as long as this object; cost.At() as long as the graph.
  const OpGroup& Find(const Graph& graph, std::span<const uint32_t> ops);

 private:
  struct Less {
    // NOLINTNEXTLINE(readability-identifier-naming): the name that std::map asks for
    using is_transparent = void;
    bool operator()(std::span<const uint32_t> a, std::span<const uint32_t> b) const;
  };
  using Groups = std::map<std::vector<uint32_t>, OpGroup, Less>;
  std::map<const Graph*, Groups> groups_;
};

// The number N of a name that begins with "blk.N.".
std::optional<int64_t> LayerOfName(std::string_view name);

}  // namespace rullama::cli
