#include "core/passes/rotate_caches.h"

#include <rullama/sdk/cache_rows.h>

#include <algorithm>
#include <bit>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/passes/graph_rewriter.h"

namespace rullama {
namespace {

// Widths of heads that are rotated.
constexpr int64_t kNarrowest = 64, kWidest = 512;

// Whether a `cast` makes these rows of a cache, and of heads that are rotated.
bool IsRotated(const Graph& graph, ValueId rows) {
  if (rows == kNoValue) return false;
  const Value& value = graph.value(rows);
  const int64_t width = value.type.last().constant;
  return sdk::IsBlockCacheType(value.type.dtype) && value.producer != kNoOp &&
         graph.ops[value.producer].kind == OpKind::kCast && width >= kNarrowest &&
         width <= kWidest && std::has_single_bit(static_cast<uint64_t>(width));
}

class CacheRotation {
 public:
  explicit CacheRotation(const Graph& graph) : graph_(graph), rewriter_(graph) {}

  Result<Graph> Run() && {
    for (const Op& op : graph_.ops) {
      rewriter_.SetDevice(op.device, op.epoch);
      if (op.kind == OpKind::kCast && IsRotated(graph_, op.results[0])) {
        KeepWith(op, operands::Cast::x);
      } else if (op.kind == OpKind::kAttention) {
        KeepAttention(op);
      } else {
        rewriter_.Keep(op);
      }
    }
    rewriter_.KeepOutputs();
    return std::move(rewriter_).Finish();
  }

 private:
  // The rotated form of a value of the source.
  ValueId Rotated(ValueId id) {
    const auto [found, is_new] = rotated_.try_emplace(id);
    if (is_new) {
      found->second = rewriter_.builder().Add(ops::Rotate{rewriter_.Map(id)},
                                              graph_.value(id).name + ".rotated");
    }
    return found->second;
  }

  // Keeps an op, one operand of which is rotated.
  void KeepWith(const Op& op, size_t operand) {
    std::vector<ValueId> inputs = rewriter_.MapAll(op.inputs);
    inputs[operand] = Rotated(op.inputs[operand]);
    rewriter_.Bind(op.results[0], rewriter_.Emit(op, std::move(inputs))[0]);
  }

  void KeepAttention(const Op& op) {
    using In = operands::Attention;
    const bool keys = IsRotated(graph_, op.inputs[In::k_new]);
    if (!IsRotated(graph_, op.inputs[In::v_new])) {
      return keys ? KeepWith(op, In::q) : rewriter_.Keep(op);
    }
    std::vector<ValueId> inputs = rewriter_.MapAll(op.inputs);
    if (keys) inputs[In::q] = Rotated(op.inputs[In::q]);
    const std::string& name = graph_.value(op.results[0]).name;
    GraphBuilder& b = rewriter_.builder();
    const ValueId mix = b.Add(op.kind, std::move(inputs), op.attrs, name + ".rotated")[0];
    rewriter_.Bind(op.results[0], b.Add(ops::Rotate{mix}, name));
  }

  const Graph& graph_;
  GraphRewriter rewriter_;
  std::map<ValueId, ValueId> rotated_;  // by value of the source
};

}  // namespace

Result<Graph> RotateCaches(const Graph& graph) {
  const bool rotates = std::ranges::any_of(graph.ops, [&](const Op& op) {
    return op.kind == OpKind::kCast && IsRotated(graph, op.results[0]);
  });
  if (!rotates) return graph;
  return CacheRotation(graph).Run();
}

}  // namespace rullama
