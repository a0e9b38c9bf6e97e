#include "core/ir/builder.h"

#include <fmt/format.h>

#include <utility>

#include "core/ir/infer.h"

namespace rullama {

GraphBuilder::GraphBuilder(std::string name) { graph_.name = std::move(name); }

GraphBuilder::GraphBuilder(Graph graph) : graph_(std::move(graph)) {}

void GraphBuilder::Fail(Error error) {
  if (!error_) error_ = std::move(error);
}

ValueId GraphBuilder::AddValue(Value value) {
  const auto id = static_cast<ValueId>(graph_.values.size());
  if (value.lifetime == Lifetime::kState && value.state == kNoValue) value.state = id;
  graph_.values.push_back(std::move(value));
  return id;
}

ValueId GraphBuilder::Input(std::string_view name, TensorType type) {
  return AddValue({.type = type, .lifetime = Lifetime::kInput, .name = std::string(name)});
}

ValueId GraphBuilder::Constant(std::string_view source, TensorType type, int64_t first_row) {
  std::string name(source);
  if (first_row != 0) name += fmt::format("@{}", first_row);
  return AddValue({.type = type,
                   .lifetime = Lifetime::kConstant,
                   .name = std::move(name),
                   .source = std::string(source),
                   .first_row = first_row});
}

ValueId GraphBuilder::State(std::string_view name, TensorType type) {
  return AddValue({.type = type, .lifetime = Lifetime::kState, .name = std::string(name)});
}

void GraphBuilder::Output(std::string_view name, ValueId value, RowDemand demand) {
  graph_.outputs.push_back({std::string(name), value, demand});
}

void GraphBuilder::WantedRows(ValueId rows) { graph_.rows_input = rows; }

std::vector<ValueId> GraphBuilder::Add(OpKind kind, std::vector<ValueId> inputs, OpAttrs attrs,
                                       std::string_view name) {
  const OpInfo& info = InfoOf(kind);
  std::vector<ValueId> results(info.results.size(), kNoValue);
  if (error_) return results;
  std::vector<const TensorType*> operands;
  for (const ValueId input : inputs) {
    if (input != kNoValue && input >= graph_.values.size()) {
      Fail({ErrorKind::kRuntime, "ir.structure",
            fmt::format("{}: operand refers to value {}, the graph has {}", info.name, input,
                        graph_.values.size())});
      return results;
    }
    operands.push_back(input == kNoValue ? nullptr : &graph_.values[input].type);
  }
  auto types = InferTypes(kind, attrs, operands);
  if (!types) {
    Fail(std::move(types).error().WithContext(name.empty() ? fmt::format("op {}", graph_.ops.size())
                                                           : std::string(name)));
    return results;
  }
  const auto producer = static_cast<OpIndex>(graph_.ops.size());
  for (size_t i = 0; i < results.size(); ++i) {
    Value value{.type = (*types)[i], .producer = producer};
    if (i < WrittenOperands(info)) {
      value.lifetime = Lifetime::kState;
      value.state = graph_.values[inputs[i]].state;
    }
    value.name = prefix_ + (name.empty() ? fmt::format("{}.{}", info.name, graph_.values.size())
                                         : std::string(name));
    if (results.size() > 1) value.name += fmt::format(".{}", info.results[i]);
    results[i] = AddValue(std::move(value));
  }
  graph_.ops.push_back({kind, std::move(inputs), results, attrs});
  return results;
}

Result<Graph> GraphBuilder::Finish() && {
  if (error_) return tl::unexpected<Error>(*std::move(error_));
  return std::move(graph_);
}

}  // namespace rullama
