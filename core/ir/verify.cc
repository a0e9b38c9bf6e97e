#include "core/ir/verify.h"

#include <fmt/format.h>
#include <rullama/sdk/cache_rows.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/ir/infer.h"

namespace rullama {
namespace {

constexpr std::string_view kStructure = "ir.structure";
constexpr std::string_view kType = "ir.type";
constexpr std::string_view kState = "ir.state";
constexpr std::string_view kOutput = "ir.output";

template <typename... Args>
tl::unexpected<Error> Broken(std::string_view id, fmt::format_string<Args...> format,
                             Args&&... args) {
  return MakeError(ErrorKind::kRuntime, id, format, std::forward<Args>(args)...);
}

class Verifier {
 public:
  explicit Verifier(const Graph& graph) : graph_(graph) {}

  Status Run() {
    RL_RETURN_IF_ERROR(CheckBounds());
    RL_RETURN_IF_ERROR(CheckNames());
    for (const Value& value : graph_.values) RL_RETURN_IF_ERROR(CheckValue(value));
    for (OpIndex i = 0; i < graph_.ops.size(); ++i) RL_RETURN_IF_ERROR(CheckOp(i));
    RL_RETURN_IF_ERROR(CheckProducers());
    RL_RETURN_IF_ERROR(CheckStates());
    return CheckOutputs();
  }

 private:
  [[nodiscard]] bool Exists(ValueId id) const { return id < graph_.values.size(); }

  // "op 7 (matmul -> 'blk.0.q')", for messages.
  [[nodiscard]] std::string Describe(OpIndex index) const {
    const Op& op = graph_.ops[index];
    const OpInfo* info = FindOp(op.kind);
    const bool named = !op.results.empty() && Exists(op.results[0]);
    return fmt::format("op {} ({} -> '{}')", index, info == nullptr ? "unknown" : info->name,
                       named ? graph_.values[op.results[0]].name : "?");
  }

  [[nodiscard]] Status CheckBounds() const {
    if (graph_.max_t < 1 || graph_.max_t > kMaxRows || graph_.max_r < 0 ||
        graph_.max_r > graph_.max_t) {
      return Broken(kStructure, "max T = {} and max R = {}; expected 1 <= T <= {} and 0 <= R <= T",
                    graph_.max_t, graph_.max_r, kMaxRows);
    }
    if (graph_.values.size() >= kNoValue || graph_.ops.size() >= kNoOp) {
      return Broken(kStructure, "more values or ops than 32-bit ids");
    }
    return OkStatus();
  }

  [[nodiscard]] Status CheckNames() const {
    std::unordered_set<std::string_view> names;
    for (const Value& value : graph_.values) {
      if (value.name.empty()) return Broken(kStructure, "a value has no name");
      if (!names.insert(value.name).second) {
        return Broken(kStructure, "two values are named '{}'", value.name);
      }
    }
    return OkStatus();
  }

  [[nodiscard]] Status CheckValue(const Value& value) const {
    if (auto status = CheckType(value.type, graph_.MaxExtents()); !status) {
      return tl::unexpected<Error>(
          std::move(status).error().WithContext(fmt::format("value '{}'", value.name)));
    }
    const bool produced = value.producer != kNoOp;
    if (produced && value.producer >= graph_.ops.size()) {
      return Broken(kStructure, "value '{}' is produced by op {}, the graph has {}", value.name,
                    value.producer, graph_.ops.size());
    }
    if (value.lifetime != Lifetime::kState && value.state != kNoValue) {
      return Broken(kState, "value '{}' belongs to a state but is not one", value.name);
    }
    switch (value.lifetime) {
      case Lifetime::kTransient:
        if (produced) return OkStatus();
        return Broken(kStructure, "no op produces the transient '{}'", value.name);
      case Lifetime::kInput:
        if (!produced) return OkStatus();
        return Broken(kStructure, "input '{}' is the result of an op", value.name);
      case Lifetime::kConstant:
        return CheckConstant(value);
      case Lifetime::kState:
        return CheckStateValue(value);
    }
    return Broken(kStructure, "value '{}' has the unknown lifetime {}", value.name,
                  static_cast<int>(value.lifetime));
  }

  [[nodiscard]] static bool IsConstantType(const TensorType& type) {
    return std::all_of(type.dims.begin(), type.dims.begin() + type.rank,
                       [](const Dim& dim) { return dim.IsConstant(); });
  }

  [[nodiscard]] static Status CheckConstant(const Value& value) {
    if (value.producer != kNoOp) {
      return Broken(kStructure, "constant '{}' is the result of an op", value.name);
    }
    if (value.source.empty()) {
      return Broken(kStructure, "constant '{}' names no tensor", value.name);
    }
    if (value.first_row < 0 || value.first_row > kMaxElements) {
      return Broken(kStructure, "constant '{}' begins at row {}", value.name, value.first_row);
    }
    if (!IsConstantType(value.type)) {
      return Broken(kType, "constant '{}' is {}, expected constant dimensions", value.name,
                    ToString(value.type));
    }
    return OkStatus();
  }

  [[nodiscard]] Status CheckStateValue(const Value& value) const {
    const DType dtype = value.type.dtype;
    if (!IsConstantType(value.type) || (IsBlockType(dtype) && !sdk::IsBlockCacheType(dtype))) {
      return Broken(kType,
                    "state '{}' is {}, expected constant dimensions and a plain element type, q8_0 "
                    "or q4_0",
                    value.name, ToString(value.type));
    }
    if (!Exists(value.state) || graph_.values[value.state].lifetime != Lifetime::kState) {
      return Broken(kState, "state '{}' does not name its first version", value.name);
    }
    const Value& first = graph_.values[value.state];
    if (first.state != value.state || first.producer != kNoOp) {
      return Broken(kState, "'{}' is named as the first version of state '{}' but is not one",
                    first.name, value.name);
    }
    const bool is_first = &first == &value;
    if (!is_first && value.producer == kNoOp) {
      return Broken(kState, "version '{}' of state '{}' comes from no op", value.name, first.name);
    }
    return OkStatus();
  }

  // Operands exist and are computed before, results point back, and types are as inferred.
  [[nodiscard]] Status CheckOp(OpIndex index) const {
    const Op& op = graph_.ops[index];
    const OpInfo* info = FindOp(op.kind);
    if (info == nullptr) {
      return Broken(kStructure, "op {} has the unknown kind {}", index,
                    static_cast<uint32_t>(op.kind));
    }
    if (op.results.size() != info->results.size()) {
      return Broken(kStructure, "{}: found {} results, expected {}", Describe(index),
                    op.results.size(), info->results.size());
    }
    if (op.device < 0) {
      return Broken(kStructure, "{}: is placed on device {}", Describe(index), op.device);
    }
    if (op.epoch < 0 || op.epoch > 1) {
      return Broken(kStructure, "{}: is of epoch {}, expected 0 or 1", Describe(index), op.epoch);
    }
    RL_RETURN_IF_ERROR(CheckOperands(index));
    RL_RETURN_IF_ERROR(CheckResults(index));
    if (info->trait == OpTrait::kEffect) RL_RETURN_IF_ERROR(CheckEffect(index));
    return CheckTypes(index);
  }

  [[nodiscard]] Status CheckOperands(OpIndex index) const {
    const Op& op = graph_.ops[index];
    for (const ValueId input : op.inputs) {
      if (input == kNoValue) continue;  // whether it may be absent is checked with the types
      if (!Exists(input)) {
        return Broken(kStructure, "{}: operand refers to value {}, the graph has {}",
                      Describe(index), input, graph_.values.size());
      }
      const Value& value = graph_.values[input];
      if (value.producer != kNoOp && value.producer >= index) {
        return Broken(kStructure, "{}: operand '{}' is computed by the later op {}",
                      Describe(index), value.name, value.producer);
      }
    }
    return OkStatus();
  }

  [[nodiscard]] Status CheckResults(OpIndex index) const {
    const Op& op = graph_.ops[index];
    for (size_t i = 0; i < op.results.size(); ++i) {
      const Lifetime expected =
          i < WrittenOperands(InfoOf(op.kind)) ? Lifetime::kState : Lifetime::kTransient;
      const ValueId result = op.results[i];
      if (!Exists(result) || graph_.values[result].producer != index) {
        return Broken(kStructure, "{}: result {} does not name this op as its producer",
                      Describe(index), i);
      }
      if (std::find(op.results.begin(), op.results.begin() + static_cast<ptrdiff_t>(i), result) !=
          op.results.begin() + static_cast<ptrdiff_t>(i)) {
        return Broken(kStructure, "{}: two results are the same value", Describe(index));
      }
      if (graph_.values[result].lifetime != expected) {
        return Broken(kStructure, "{}: result '{}' has the wrong lifetime", Describe(index),
                      graph_.values[result].name);
      }
    }
    return OkStatus();
  }

  // An op that writes states makes the next version of each, and has no other use of them.
  [[nodiscard]] Status CheckEffect(OpIndex index) const {
    const Op& op = graph_.ops[index];
    for (size_t i = 0; i < op.results.size(); ++i) {
      if (i >= op.inputs.size() || op.inputs[i] == kNoValue ||
          graph_.values[op.inputs[i]].lifetime != Lifetime::kState) {
        return Broken(kState, "{}: writes a value that is not a state", Describe(index));
      }
      const Value& old = graph_.values[op.inputs[i]];
      if (graph_.values[op.results[i]].state != old.state) {
        return Broken(kState, "{}: result '{}' is a version of another state than operand '{}'",
                      Describe(index), graph_.values[op.results[i]].name, old.name);
      }
      const auto uses = std::ranges::count_if(op.inputs, [&](ValueId input) {
        return input != kNoValue && graph_.values[input].state == old.state;
      });
      if (uses != 1) {
        return Broken(kState, "{}: writes state '{}', which is another operand as well",
                      Describe(index), old.name);
      }
    }
    return OkStatus();
  }

  [[nodiscard]] Status CheckTypes(OpIndex index) const {
    const Op& op = graph_.ops[index];
    uint32_t struct_size = 0;
    std::memcpy(&struct_size, op.attrs.data(), sizeof(struct_size));
    if (struct_size != op.attrs.size()) {
      return Broken(kStructure, "{}: attributes say {} bytes, found {}", Describe(index),
                    struct_size, op.attrs.size());
    }
    std::vector<const TensorType*> operands;
    operands.reserve(op.inputs.size());
    for (const ValueId input : op.inputs) {
      operands.push_back(input == kNoValue ? nullptr : &graph_.type(input));
    }
    auto types = InferTypes(op.kind, op.attrs, operands);
    if (!types) {
      return tl::unexpected<Error>(std::move(types).error().WithContext(Describe(index)));
    }
    for (size_t i = 0; i < types->size(); ++i) {
      const TensorType& found = graph_.type(op.results[i]);
      if (found == (*types)[i]) continue;
      return Broken(kType, "{}: result '{}' is {}, expected {}", Describe(index),
                    graph_.values[op.results[i]].name, ToString(found), ToString((*types)[i]));
    }
    return OkStatus();
  }

  // Every value that names a producer is among the results of that op.
  [[nodiscard]] Status CheckProducers() const {
    for (ValueId id = 0; id < graph_.values.size(); ++id) {
      const Value& value = graph_.values[id];
      if (value.producer == kNoOp) continue;
      if (std::ranges::count(graph_.ops[value.producer].results, id) != 1) {
        return Broken(kStructure, "value '{}' is not a result of its producer, {}", value.name,
                      Describe(value.producer));
      }
    }
    return OkStatus();
  }

  // All versions of a state share one storage, so a version may be read until it is replaced.
  [[nodiscard]] Status CheckStates() const {
    std::vector<OpIndex> replaced(graph_.values.size(), kNoOp);
    for (OpIndex i = 0; i < graph_.ops.size(); ++i) {
      const Op& op = graph_.ops[i];
      const size_t written = WrittenOperands(InfoOf(op.kind));
      for (size_t j = 0; j < op.inputs.size(); ++j) {
        const ValueId input = op.inputs[j];
        if (input == kNoValue || replaced[input] == kNoOp) continue;
        return Broken(
            kState, "{}: {} state '{}' after {} has replaced it; {}", Describe(i),
            j < written ? "writes" : "reads", graph_.values[input].name, Describe(replaced[input]),
            j < written ? "a version is replaced once" : "readers come before what replaces it");
      }
      for (size_t j = 0; j < written; ++j) replaced[op.inputs[j]] = i;
    }
    return OkStatus();
  }

  [[nodiscard]] Status CheckOutputs() const {
    std::unordered_set<std::string_view> names;
    if (graph_.rows_input != kNoValue) {
      const TensorType expected(DType::kI32, {Dim::R()});
      if (!Exists(graph_.rows_input) ||
          graph_.values[graph_.rows_input].lifetime != Lifetime::kInput ||
          graph_.type(graph_.rows_input) != expected) {
        return Broken(kOutput, "the wanted rows are not an input of type {}", ToString(expected));
      }
    }
    for (const Output& output : graph_.outputs) {
      if (output.name.empty() || !names.insert(output.name).second) {
        return Broken(kOutput, "output name '{}' is empty or used twice", output.name);
      }
      if (!Exists(output.value)) {
        return Broken(kOutput, "output '{}' refers to value {}, the graph has {}", output.name,
                      output.value, graph_.values.size());
      }
      if (graph_.values[output.value].lifetime != Lifetime::kTransient) {
        return Broken(kOutput, "output '{}' is '{}', which no op computes; copy it first",
                      output.name, graph_.values[output.value].name);
      }
      if (output.demand == RowDemand::kWanted && graph_.rows_input == kNoValue) {
        return Broken(kOutput,
                      "output '{}' wants chosen rows, but no input names them; declare the rows "
                      "input or ask for all rows",
                      output.name);
      }
      if (output.demand != RowDemand::kWanted && output.demand != RowDemand::kAll) {
        return Broken(kOutput, "output '{}' has the unknown row demand {}", output.name,
                      static_cast<int>(output.demand));
      }
    }
    return OkStatus();
  }

  const Graph& graph_;
};

}  // namespace

Status Verify(const Graph& graph) { return Verifier(graph).Run(); }

}  // namespace rullama
