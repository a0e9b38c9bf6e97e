// The ops that a backend runs: one row per kind, which says when an op is refused and how it is
// compiled. Device::QueryOps and Device::Compile both read this table, so they cannot disagree.
// Rows and tables are constants; safe from any thread.
#pragma once

#include <rullama/abi/rullama_abi.h>
#include <rullama/sdk/backend.h>
#include <rullama/sdk/dtype.h>
#include <rullama/sdk/op_scope.h>
#include <rullama/sdk/operands.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace rullama::sdk {

// Refuse and Build are function types. Refuse is std::string(const GraphView&, const rl_op&,
// const Context&...) with the Context of OpTable::Query; Build is the backend's own.
template <typename Refuse, typename Build>
struct OpRow {
  uint32_t kind;  // rl_op_kind
  // The reason why this op cannot run here; empty if it can, which is a promise for every T and R
  // of the graph. Null: the backend runs every op of this kind.
  Refuse* refuse;
  // Compiles one op. Null only if `refuse` always gives a reason.
  Build* build;
};

template <typename Row>
class OpTable {
 public:
  // Borrows the rows. Of a kind the first one counts; without a row it is refused, and a composite
  // runs as its parts.
  explicit constexpr OpTable(std::span<const Row* const> rows) : rows_(rows) {}

  // The row of a kind, or null.
  [[nodiscard]] constexpr const Row* Find(uint32_t kind) const {
    for (const Row* row : rows_) {
      if (row->kind == kind) return row;
    }
    return nullptr;
  }

  // The answer of Device::QueryOps.
  template <typename... Context>
  [[nodiscard]] std::vector<OpSupport> Query(const GraphView& graph,
                                             const Context&... context) const {
    std::vector<OpSupport> support;
    support.reserve(graph.op_count());
    for (const rl_op& op : graph.ops()) {
      std::string reason = Refusal(Find(op.kind), graph, op, context...);
      const bool supported = reason.empty();
      support.push_back({supported, std::move(reason)});
    }
    return support;
  }

  // Calls compile(row, op, index) for each op of a placed graph, in its order. What `compile`
  // throws names the op. Throws RL_UNSUPPORTED for an op that Query() refuses.
  template <typename Compile, typename... Context>
  void ForEachOp(const GraphView& graph, Compile&& compile, const Context&... context) const {
    for (uint32_t i = 0; i < graph.op_count(); ++i) {
      const OpScope scope(i);
      const rl_op& op = graph.op(i);
      const Row* row = Find(op.kind);
      const std::string reason = Refusal(row, graph, op, context...);
      if (!reason.empty()) throw Error(RL_UNSUPPORTED, reason);
      compile(*row, op, i);
    }
  }

 private:
  template <typename... Context>
  static std::string Refusal(const Row* row, const GraphView& graph, const rl_op& op,
                             const Context&... context) {
    if (row == nullptr) {
      return IsComposite(op.kind) ? "runs as its parts" : "unknown to this backend";
    }
    return row->refuse == nullptr ? std::string() : row->refuse(graph, op, context...);
  }

  std::span<const Row* const> rows_;
};

// The `refuse` of a composite that the backend wants decomposed.
template <typename... Context>
[[deprecated("leave the row out: a composite without one runs as its parts")]] std::string
RefuseComposite(const GraphView& /*graph*/, const rl_op& /*op*/, const Context&... /*context*/) {
  return "runs as its parts";
}

// Refuses weights (OperandRole::kWeight) that are computed, and weights of a type for which
// is_supported(DType) is false.
template <typename IsSupported>
std::string RefuseWeights(const GraphView& graph, const rl_op& op, IsSupported&& is_supported) {
  for (uint32_t i = 0; i < op.input_count; ++i) {
    const rl_value* weight = graph.input(op, i);
    if (weight == nullptr || RoleOf(op.kind, i) != OperandRole::kWeight) continue;
    const auto dtype = static_cast<DType>(weight->dtype);
    if (!is_supported(dtype)) return "weight type " + std::string(NameOf(dtype));
    if (weight->lifetime != RL_LIFETIME_CONSTANT) return "weight is not a constant";
  }
  return {};
}

}  // namespace rullama::sdk
