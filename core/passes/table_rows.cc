#include "core/passes/table_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "core/passes/graph_rewriter.h"

namespace rullama {
namespace {

using Lookup = operands::GatherRows;

// Whether the op decodes rows of a constant that the tokens of the step name.
bool LooksUpTokens(const Graph& graph, const Op& op) {
  if (op.kind != OpKind::kGatherRows) return false;
  const Value& table = graph.value(op.inputs[Lookup::table]);
  const Value& ids = graph.value(op.inputs[Lookup::ids]);
  return table.lifetime == Lifetime::kConstant && table.type.rank == 2 &&
         table.type.dtype != DType::kI32 && ids.lifetime == Lifetime::kInput &&
         ids.name == input_names::kTokens;
}

TableLookup LookupOf(const Graph& graph, const Op& op) {
  const Value& table = graph.value(op.inputs[Lookup::table]);
  const int64_t column = op.As<rl_gather_rows_attrs>().column;
  const int64_t columns = graph.type(op.results[0]).last().constant;
  return {.input = fmt::format("{}[{}:{}]", table.name, column, column + columns),
          .table = table,
          .column = column,
          .columns = columns};
}

}  // namespace

Result<Graph> ReplaceLookups(const Graph& graph, const std::function<bool(const Value&)>& is_chosen,
                             std::vector<TableLookup>& lookups) {
  const auto replaces = [&](const Op& op) {
    return LooksUpTokens(graph, op) && is_chosen(graph.value(op.inputs[Lookup::table]));
  };
  if (std::ranges::none_of(graph.ops, replaces)) return graph;
  GraphRewriter rewriter(graph);
  std::map<std::string, ValueId> inputs;  // of the new graph
  for (const Op& op : graph.ops) {
    rewriter.SetDevice(op.device, op.epoch);
    if (!replaces(op)) {
      rewriter.Keep(op);
      continue;
    }
    TableLookup lookup = LookupOf(graph, op);
    const auto [input, is_new] = inputs.try_emplace(lookup.input, kNoValue);
    if (is_new) input->second = rewriter.builder().Input(lookup.input, graph.type(op.results[0]));
    rewriter.Bind(op.results[0], input->second);
    const bool known =
        std::ranges::find(lookups, lookup.input, &TableLookup::input) != lookups.end();
    if (!known) lookups.push_back(std::move(lookup));
  }
  rewriter.KeepOutputs();
  return std::move(rewriter).Finish();
}

}  // namespace rullama
