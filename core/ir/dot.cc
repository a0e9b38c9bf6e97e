#include <fmt/format.h>

#include <iterator>

#include "core/ir/text.h"
#include "core/ir/text_names.h"

namespace rullama {
namespace {

// One colour for each kind of leaf; ops are boxes.
std::string_view ColourOf(Lifetime lifetime) {
  switch (lifetime) {
    case Lifetime::kInput:
      return "lightblue";
    case Lifetime::kConstant:
      return "lightgrey";
    case Lifetime::kState:
      return "khaki";
    case Lifetime::kTransient:
      break;
  }
  return "white";
}

// The node that makes a value: its op, or the value itself.
std::string NodeOf(const Graph& graph, ValueId id) {
  const OpIndex producer = graph.value(id).producer;
  return producer == kNoOp ? fmt::format("v{}", id) : fmt::format("op{}", producer);
}

}  // namespace

std::string PrintDot(const Graph& graph) {
  fmt::memory_buffer out;
  const auto to = std::back_inserter(out);
  fmt::format_to(to, "digraph {} {{\n  node [fontname=\"monospace\"];\n", QuoteText(graph.name));
  for (ValueId id = 0; id < graph.values.size(); ++id) {
    const Value& value = graph.value(id);
    if (value.producer != kNoOp) continue;
    fmt::format_to(to, "  v{} [label={}, style=filled, fillcolor={}];\n", id,
                   QuoteText(fmt::format("{} : {}", value.name, ToString(value.type))),
                   ColourOf(value.lifetime));
  }
  for (OpIndex i = 0; i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    const Value& result = graph.value(op.results[0]);
    fmt::format_to(to, "  op{} [shape=box, label={}];\n", i,
                   QuoteText(fmt::format("{} -> {} : {}", NameOf(op.kind), result.name,
                                         ToString(result.type))));
    for (const ValueId input : op.inputs) {
      if (input != kNoValue) fmt::format_to(to, "  {} -> op{};\n", NodeOf(graph, input), i);
    }
  }
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    fmt::format_to(to, "  out{} [label={}, shape=doubleoctagon];\n  {} -> out{};\n", i,
                   QuoteText(graph.outputs[i].name), NodeOf(graph, graph.outputs[i].value), i);
  }
  fmt::format_to(to, "}}\n");
  return fmt::to_string(out);
}

}  // namespace rullama
