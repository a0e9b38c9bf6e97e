#include "cli/reports/op_groups.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/ir/dot.h"

namespace rullama::cli {
namespace {

std::string KindOf(const Graph& graph, std::span<const uint32_t> ops) {
  std::string kind;
  for (const uint32_t op : ops) {
    if (!kind.empty()) kind += '+';
    kind += NameOf(graph.ops[op].kind);
  }
  return kind;
}

std::string ShapesOf(const Graph& graph, const Op& op) {
  std::vector<std::string> operands, results;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const bool is_index = InfoOf(op.kind).operands[i].role == OperandRole::kIndex;
    if (op.inputs[i] != kNoValue && !is_index) {
      operands.push_back(ToString(graph.type(op.inputs[i])));
    }
  }
  for (const ValueId result : op.results) results.push_back(ToString(graph.type(result)));
  return fmt::format("{} -> {}", fmt::join(operands, ", "), fmt::join(results, ", "));
}

}  // namespace

std::optional<int64_t> LayerOfName(std::string_view name) {
  const int64_t block = BlockOfName(name);
  if (block == kNoBlock || name == fmt::format("blk.{}", block)) return std::nullopt;
  return block;
}

OpGroups::Known& OpGroups::FindKnown(const Graph& graph, std::span<const uint32_t> ops) {
  if (last_graph_ != &graph) {
    last_graph_ = &graph;
    last_groups_ = &groups_[&graph];
    last_groups_->resize(graph.ops.size());
  }
  std::deque<Known>& alike = (*last_groups_)[ops.front()];
  for (Known& known : alike) {
    if (std::ranges::equal(known.ops, ops)) return known;
  }
  const Op& last = graph.ops[ops.back()];
  const std::string& value = graph.value(last.results.front()).name;
  OpGroup group{.kind = KindOf(graph, ops),
                .value = value,
                .shapes = ShapesOf(graph, last),
                .layer = LayerOfName(value),
                .cost = GroupCost(graph, ops)};
  alike.push_back({.ops = std::vector(ops.begin(), ops.end()), .group = std::move(group)});
  return alike.back();
}

const CostedGroup& OpGroups::Find(const Graph& graph, std::span<const uint32_t> ops,
                                  const StepForCost& step) {
  Known& known = FindKnown(graph, ops);
  const bool same = known.extents.t == step.extents.t && known.extents.r == step.extents.r;
  if (same && !known.group.cost.depends_on_rows()) return *known.at_step;
  const OpCost cost = known.group.cost.At(step);
  if (known.at_step == nullptr || known.at_step->cost != cost) {
    known.at_step = &costed_.emplace_back(CostedGroup{&known.group, cost});
  }
  known.extents = step.extents;
  return *known.at_step;
}

}  // namespace rullama::cli
