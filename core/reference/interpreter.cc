#include "core/reference/interpreter.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "core/ir/verify.h"
#include "core/reference/evaluate.h"

namespace rullama::reference {
namespace {

// True if a tensor has this type at these extents and the right number of elements.
Status CheckFits(const Tensor& tensor, const TensorType& type, const Extents& extents,
                 std::string_view id, std::string_view name) {
  if (tensor.dtype != type.dtype || tensor.dims != DimsAt(type, extents)) {
    return MakeError(ErrorKind::kRuntime, id, "'{}' is {}[{}], expected {} at T = {}, R = {}", name,
                     NameOf(tensor.dtype), fmt::join(tensor.dims, ","), ToString(type), extents.t,
                     extents.r);
  }
  const auto count = static_cast<uint64_t>(tensor.elements());
  const uint64_t held = !tensor.packed.empty()    ? tensor.packed.size()
                        : IsInteger(tensor.dtype) ? tensor.i.size()
                                                  : tensor.f.size();
  const uint64_t expected = tensor.packed.empty() ? count : RowBytes(tensor.dtype, count);
  if (held == expected) return OkStatus();
  return MakeError(ErrorKind::kRuntime, id, "'{}' holds {} elements or bytes, expected {}", name,
                   held, expected);
}

}  // namespace

Interpreter::Interpreter(Graph graph, InterpreterOptions options)
    : graph_(std::move(graph)),
      options_(std::move(options)),
      tensors_(graph_.values.size()),
      present_(graph_.values.size(), false),
      state_memory_(graph_.values.size()),
      last_use_(graph_.values.size(), kNoOp) {
  if (options_.keep_all) return;
  for (ValueId id = 0; id < graph_.values.size(); ++id) {
    if (graph_.values[id].lifetime == Lifetime::kTransient)
      last_use_[id] = graph_.values[id].producer;
  }
  for (OpIndex i = 0; i < graph_.ops.size(); ++i) {
    for (const ValueId input : graph_.ops[i].inputs) {
      if (input != kNoValue && last_use_[input] != kNoOp) last_use_[input] = i;
    }
  }
  for (const Output& output : graph_.outputs) last_use_[output.value] = kNoOp;
}

Result<Interpreter> Interpreter::Create(Graph graph, const ConstantProvider& provider,
                                        InterpreterOptions options) {
  RL_RETURN_IF_ERROR(Verify(graph));
  Interpreter interpreter(std::move(graph), std::move(options));
  const Graph& g = interpreter.graph_;
  for (ValueId id = 0; id < g.values.size(); ++id) {
    const Value& value = g.values[id];
    if (value.lifetime == Lifetime::kConstant) {
      RL_ASSIGN_OR_RETURN(Tensor tensor, provider(value.source, value.first_row, value.type));
      RL_RETURN_IF_ERROR(CheckFits(tensor, value.type, {}, "ref.constant", value.name));
      interpreter.tensors_[id] = std::move(tensor);
      interpreter.present_[id] = true;
    } else if (value.lifetime == Lifetime::kState && value.state == id) {
      interpreter.tensors_[id] = MakeZeros(value.type.dtype, DimsAt(value.type, {}));
      interpreter.present_[id] = true;
    }
  }
  return interpreter;
}

ValueId Interpreter::Home(ValueId id) const {
  const Value& value = graph_.values[id];
  return value.lifetime == Lifetime::kState ? value.state : id;
}

Status Interpreter::Bind(std::string_view input, Tensor tensor) {
  const ValueId id = graph_.Find(input);
  if (id == kNoValue || graph_.values[id].lifetime != Lifetime::kInput) {
    return MakeError(ErrorKind::kRuntime, "ref.input", "graph '{}' has no input '{}'", graph_.name,
                     input);
  }
  if (tensor.dtype != graph_.type(id).dtype) {
    return MakeError(ErrorKind::kRuntime, "ref.input", "input '{}' is {}, expected {}", input,
                     NameOf(tensor.dtype), NameOf(graph_.type(id).dtype));
  }
  tensors_[id] = std::move(tensor);
  present_[id] = true;
  return OkStatus();
}

Status Interpreter::BindStateMemory(ValueId state, std::span<std::byte> bytes) {
  if (state >= graph_.values.size() || graph_.values[state].lifetime != Lifetime::kState ||
      graph_.values[state].state != state) {
    return MakeError(ErrorKind::kRuntime, "ref.state", "value {} is not a state", state);
  }
  const TensorType& type = graph_.type(state);
  if (bytes.size() != type.BytesAt({})) {
    return MakeError(ErrorKind::kRuntime, "ref.state",
                     "state '{}' is bound to {} bytes, expected {}", graph_.values[state].name,
                     bytes.size(), type.BytesAt({}));
  }
  Tensor tensor;
  tensor.dtype = type.dtype;
  tensor.dims = DimsAt(type, {});
  tensor.packed = bytes;
  tensors_[state] = std::move(tensor);
  state_memory_[state] = bytes;
  return OkStatus();
}

Status Interpreter::CheckInputs(const Extents& extents) const {
  if (extents.t < 1 || extents.t > graph_.max_t || extents.r < 0 || extents.r > graph_.max_r) {
    return MakeError(ErrorKind::kRuntime, "ref.extents",
                     "T = {} and R = {} are outside 1 to {} and 0 to {} of graph '{}'", extents.t,
                     extents.r, graph_.max_t, graph_.max_r, graph_.name);
  }
  for (ValueId id = 0; id < graph_.values.size(); ++id) {
    const Value& value = graph_.values[id];
    if (value.lifetime != Lifetime::kInput) continue;
    if (!present_[id]) {
      return MakeError(ErrorKind::kRuntime, "ref.input", "input '{}' is not bound", value.name);
    }
    RL_RETURN_IF_ERROR(CheckFits(tensors_[id], value.type, extents, "ref.input", value.name));
  }
  return OkStatus();
}

Status Interpreter::Append(const Op& op) {
  const ValueId home = Home(op.inputs[operands::StateAppend::state]);
  // Rows and positions may be packed constants, which the append cannot read.
  std::vector<Tensor> operands;
  for (size_t i = 1; i < op.inputs.size(); ++i) {
    RL_ASSIGN_OR_RETURN(Tensor tensor, Unpack(tensors_[Home(op.inputs[i])]));
    operands.push_back(std::move(tensor));
  }
  Tensor& state = tensors_[home];
  if (state_memory_[home].empty()) {
    return AppendInPlace(state, operands[0], operands[1], operands[2]);
  }
  return AppendToMemory(state.dtype, state.dims, state_memory_[home], operands[0], operands[1],
                        operands[2]);
}

Status Interpreter::RunOp(OpIndex index, int64_t t) {
  const Op& op = graph_.ops[index];
  // Appending in place is safe: the verifier has checked that nothing reads the old version after
  // its append.
  if (op.kind == OpKind::kStateAppend) return Append(op);
  std::vector<const Tensor*> operands;
  operands.reserve(op.inputs.size());
  for (const ValueId input : op.inputs) {
    operands.push_back(input == kNoValue ? nullptr : &tensors_[Home(input)]);
  }
  RL_ASSIGN_OR_RETURN(std::vector<Tensor> results, EvaluateOp(op.kind, op.attrs, operands, t));
  for (size_t i = 0; i < results.size(); ++i) {
    if (i < WrittenOperands(InfoOf(op.kind))) {
      StoreState(Home(op.results[i]), std::move(results[i]));
      continue;
    }
    tensors_[op.results[i]] = std::move(results[i]);
    present_[op.results[i]] = true;
  }
  return OkStatus();
}

void Interpreter::DropDeadValues(OpIndex index) {
  const auto drop = [&](ValueId id) {
    if (id == kNoValue || last_use_[id] != index) return;
    tensors_[id] = Tensor();
    present_[id] = false;
  };
  std::ranges::for_each(graph_.ops[index].inputs, drop);
  std::ranges::for_each(graph_.ops[index].results, drop);
}

Status Interpreter::Run(const Extents& extents, OpIndex* failed_op) {
  if (failed_op != nullptr) *failed_op = kNoOp;
  RL_RETURN_IF_ERROR(CheckInputs(extents));
  for (ValueId id = 0; id < graph_.values.size(); ++id) {
    if (graph_.values[id].lifetime == Lifetime::kTransient) present_[id] = false;
  }
  for (OpIndex i = 0; i < graph_.ops.size(); ++i) {
    if (options_.cancelled && options_.cancelled()) {
      return MakeError(ErrorKind::kRuntime, "run.cancelled", "the run was cancelled at op {}", i);
    }
    if (auto status = RunOp(i, extents.t); !status) {
      if (failed_op != nullptr) *failed_op = i;
      return tl::unexpected<Error>(std::move(status).error().WithContext(
          fmt::format("op {} -> '{}'", i, graph_.value(graph_.ops[i].results[0]).name)));
    }
    DropDeadValues(i);
    if (options_.after_op) options_.after_op(i);
  }
  return OkStatus();
}

const Tensor* Interpreter::Get(ValueId id) const {
  if (id >= graph_.values.size() || !present_[Home(id)]) return nullptr;
  return &tensors_[Home(id)];
}

const Tensor* Interpreter::Get(std::string_view value_name) const {
  return Get(graph_.Find(value_name));
}

const Tensor* Interpreter::GetOutput(std::string_view output_name) const {
  const auto output = std::ranges::find(graph_.outputs, output_name, &Output::name);
  return output == graph_.outputs.end() ? nullptr : Get(output->value);
}

Result<Tensor> Interpreter::ReadState(std::string_view name) const {
  const ValueId id = graph_.Find(name);
  if (id == kNoValue || graph_.values[id].lifetime != Lifetime::kState) {
    return MakeError(ErrorKind::kRuntime, "ref.state", "graph '{}' has no state '{}'", graph_.name,
                     name);
  }
  return Unpack(tensors_[Home(id)]);
}

Status Interpreter::WriteState(std::string_view name, const Tensor& tensor) {
  RL_RETURN_IF_ERROR(ReadState(name));
  const ValueId home = Home(graph_.Find(name));
  RL_RETURN_IF_ERROR(CheckFits(tensor, graph_.type(home), {}, "ref.state", name));
  RL_ASSIGN_OR_RETURN(Tensor unpacked, Unpack(tensor));
  StoreState(home, std::move(unpacked));
  return OkStatus();
}

void Interpreter::StoreState(ValueId home, Tensor unpacked) {
  if (!state_memory_[home].empty()) {
    PackElements(unpacked, 0, unpacked.elements(), unpacked.dtype, 0, state_memory_[home]);
    return;
  }
  RoundAll(unpacked.dtype, unpacked.f);
  tensors_[home] = std::move(unpacked);
}

}  // namespace rullama::reference
