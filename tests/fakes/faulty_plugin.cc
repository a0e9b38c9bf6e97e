// A backend named faulty: the float64 reference, with one op off by a factor. RULLAMA_FAULT says
// which:
// "<name of the op's result>:<factor>" multiplies its first float attribute (the scale of an
// attention, the cap of a softcap, the eps of a norm). Without it, it is the reference.
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/ir/ops.h"
#include "core/reference/reference_backend.h"

namespace {

using rullama::AttrInfo;
using rullama::AttrType;

constexpr std::string_view kName = "faulty";

rl_plugin_v1 table;  // the reference's, with our name and plan_compile
const rl_plugin_v1* reference = nullptr;

struct Fault {
  std::string op;
  float factor;
};
std::optional<Fault> ReadFault() {
  const char* variable = std::getenv("RULLAMA_FAULT");
  if (variable == nullptr) return std::nullopt;
  const std::string_view text(variable);
  const size_t colon = text.rfind(':');
  return Fault{std::string(text.substr(0, colon)), std::stof(std::string(text.substr(colon + 1)))};
}

// The attributes of `op` with the first float among them changed.
std::vector<char> Spoiled(const rl_op& op, float factor) {
  const auto* begin = static_cast<const char*>(op.attrs);
  std::vector<char> attrs(begin, begin + op.attrs_size);
  const auto* info = rullama::FindOp(static_cast<rullama::OpKind>(op.kind));
  for (const AttrInfo& attr : info->attrs) {
    if (attr.type != AttrType::kF32) continue;
    float value = 0;
    std::memcpy(&value, attrs.data() + attr.offset, sizeof(value));
    value *= factor;
    std::memcpy(attrs.data() + attr.offset, &value, sizeof(value));
    break;
  }
  return attrs;
}

int32_t CompileWithFault(rl_device* device, const rl_graph* graph, rl_plan** plan,
                         rl_error* error) noexcept {
  const auto fault = ReadFault();
  if (!fault) return reference->plan_compile(device, graph, plan, error);
  std::vector<rl_op> ops;
  std::vector<char> attrs;
  for (uint32_t i = 0; i < graph->op_count; ++i) {
    rl_op op;
    std::memcpy(&op, reinterpret_cast<const char*>(graph->ops) + size_t{graph->op_size} * i,
                sizeof(op));
    const auto* value = reinterpret_cast<const rl_value*>(
        reinterpret_cast<const char*>(graph->values) + size_t{graph->value_size} * op.results[0]);
    if (std::string_view(value->name.data, value->name.size) == fault->op) {
      attrs = Spoiled(op, fault->factor);
      op.attrs = attrs.data();
    }
    ops.push_back(op);
  }
  rl_graph spoiled = *graph;
  spoiled.ops = ops.data();
  spoiled.op_size = sizeof(rl_op);
  return reference->plan_compile(device, &spoiled, plan, error);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int32_t rullama_plugin_query_v1(
    const rl_host_v1* host, const rl_plugin_v1** plugin, rl_error* error) {
  const int32_t code = rullama::ReferencePluginQuery(host, &reference, error);
  if (code != RL_OK) return code;
  table = *reference;
  table.name = {kName.data(), kName.size()};
  table.plan_compile = CompileWithFault;
  *plugin = &table;
  return RL_OK;
}
