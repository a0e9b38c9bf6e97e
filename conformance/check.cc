#include "conformance/check.h"

#include <fmt/format.h>

#include <utility>

namespace rullama::conformance {
namespace {

using reference::Interpreter;
using reference::Tensor;

// Read as f32 both are not-a-numbers or huge, as i32 both are far outside any index.
constexpr uint8_t kPoisons[] = {0xFF, 0x7E};

Error Wrong(std::string_view value, const std::string& what) {
  return {ErrorKind::kThreshold, "conformance.result", fmt::format("'{}': {}", value, what)};
}

Result<Tensor> TensorOf(const TensorType& type, const Extents& extents,
                        std::span<const std::byte> bytes) {
  Tensor packed;
  packed.dtype = type.dtype;
  packed.dims = reference::DimsAt(type, extents);
  packed.packed = bytes;
  return reference::Unpack(packed);
}

// Names the activations with whose bounds a result would pass: maybe the plugin rounds what it
// multiplies, as matrix units of GPUs do, and the run was not told. Empty if there are none.
template <typename Compare>
std::string Advice(Activations given, const Compare& compare) {
  for (const auto& [activations, name] : kActivationNames) {
    if (activations == given || !compare(activations).empty()) continue;
    return fmt::format("; it passes with `--activations {}`, for plugins that say so", name);
  }
  return {};
}

std::vector<std::string> StatesOf(const Graph& graph) {
  std::vector<std::string> names;
  for (ValueId id = 0; id < graph.values.size(); ++id) {
    const Value& value = graph.value(id);
    if (value.lifetime == Lifetime::kState && value.state == id) names.push_back(value.name);
  }
  return names;
}

}  // namespace

Result<std::string> WhyUnsupported(Device& device, const Graph& graph) {
  RL_ASSIGN_OR_RETURN(const auto support, device.QueryOps(graph));
  for (size_t i = 0; i < support.size(); ++i) {
    if (support[i].supported) continue;
    return support[i].reason.empty()
               ? fmt::format("{} is refused without a reason", NameOf(graph.ops[i].kind))
               : support[i].reason;
  }
  return std::string();
}

Result<Interpreter> RunReference(const Case& test) {
  const auto provide = [&](std::string_view source, int64_t /*first_row*/,
                           const TensorType& type) -> Result<Tensor> {
    Tensor packed;
    packed.dtype = type.dtype;
    packed.dims = reference::DimsAt(type, test.extents);
    packed.packed = test.data.find(source)->second;
    return packed;
  };
  RL_ASSIGN_OR_RETURN(Interpreter interpreter, Interpreter::Create(test.graph, provide));
  for (const auto& [name, bytes] : test.data) {
    const ValueId id = test.graph.Find(name);
    if (id == kNoValue || test.graph.value(id).lifetime == Lifetime::kConstant) continue;
    RL_ASSIGN_OR_RETURN(Tensor tensor, TensorOf(test.graph.type(id), test.extents, bytes));
    if (test.graph.value(id).lifetime == Lifetime::kState) {
      RL_RETURN_IF_ERROR(interpreter.WriteState(name, tensor));
    } else {
      RL_RETURN_IF_ERROR(interpreter.Bind(name, std::move(tensor)));
    }
  }
  RL_RETURN_IF_ERROR(interpreter.Run(test.extents));
  return interpreter;
}

Result<std::map<std::string, Bytes>> ReadResults(Program& program, const Case& test) {
  std::map<std::string, Bytes> results;
  for (const Output& output : test.graph.outputs) {
    const std::string& name = test.graph.value(output.value).name;
    RL_ASSIGN_OR_RETURN(results[name], program.Read(name, test.extents));
  }
  for (const std::string& name : StatesOf(test.graph)) {
    RL_ASSIGN_OR_RETURN(results[name], program.Read(name, test.extents));
  }
  return results;
}

Status CompareWithReference(const Case& test, const Interpreter& ran,
                            const std::map<std::string, Bytes>& results, Activations activations) {
  for (const auto& [name, bytes] : results) {
    const ValueId id = test.graph.Find(name);
    RL_ASSIGN_OR_RETURN(const Tensor actual, TensorOf(test.graph.type(id), test.extents, bytes));
    Tensor expected;
    if (test.graph.value(id).lifetime == Lifetime::kState) {
      RL_ASSIGN_OR_RETURN(expected, ran.ReadState(name));
    } else {
      expected = *ran.Get(id);
    }
    const std::vector<double> magnitudes = Magnitudes(test, ran, expected);
    const std::vector<double> energies = Energies(test, ran, expected);
    // The reference keeps float64 from op to op; what leaves a device is of the value's own grid.
    for (double& value : expected.f) value = reference::RoundTo(expected.dtype, value);
    const auto compare = [&](Activations of) {
      return Compare(expected, actual, magnitudes, energies, BoundsOf(test.tolerance, of));
    };
    const std::string wrong = compare(activations);
    if (wrong.empty()) continue;
    return tl::unexpected(Wrong(name, wrong + Advice(activations, compare)));
  }
  return OkStatus();
}

Result<std::string> Difference(const Case& test, const std::map<std::string, Bytes>& expected,
                               const std::map<std::string, Bytes>& results) {
  for (const auto& [name, bytes] : results) {
    if (bytes == expected.at(name)) continue;
    const TensorType& type = test.graph.type(test.graph.Find(name));
    RL_ASSIGN_OR_RETURN(const Tensor before, TensorOf(type, test.extents, expected.at(name)));
    RL_ASSIGN_OR_RETURN(const Tensor after, TensorOf(type, test.extents, bytes));
    const std::vector<double> zeros(before.f.size());
    const std::string text = Compare(before, after, zeros, zeros, {});
    return fmt::format("'{}': {}", name, text.empty() ? "another NaN or the other zero" : text);
  }
  return std::string();
}

Status CheckCase(Device& device, const Case& test, Activations activations) {
  RL_ASSIGN_OR_RETURN(const Interpreter ran, RunReference(test));
  RL_ASSIGN_OR_RETURN(const auto program, Program::Create(device, test));
  std::map<std::string, Bytes> first;
  for (const uint8_t poison : kPoisons) {
    RL_RETURN_IF_ERROR(program->Poison(poison));
    RL_RETURN_IF_ERROR(program->BindAll(test));
    RL_RETURN_IF_ERROR(program->Run(test.extents));
    RL_ASSIGN_OR_RETURN(auto results, ReadResults(*program, test));
    if (results != first) {  // the same bytes are as close as they were
      RL_RETURN_IF_ERROR(CompareWithReference(test, ran, results, activations));
    }
    RL_RETURN_IF_ERROR(program->CheckGuards());
    RL_RETURN_IF_ERROR(program->CheckInputs(test));
    if (first.empty()) {
      first = std::move(results);
    } else if (device.description().deterministic && results != first) {
      return MakeError(ErrorKind::kThreshold, "conformance.result",
                       "two runs on the same data give different bytes, and the device says that "
                       "it is deterministic");
    }
  }
  return OkStatus();
}

}  // namespace rullama::conformance
