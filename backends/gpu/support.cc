// What the backend runs: everything of the op table, with these limits.
#include <algorithm>

#include "backends/gpu/plan_builder.h"

namespace rullama::gpu {
namespace {

constexpr int64_t kMostExperts = 1024;          // moe_sort.comp
constexpr uint64_t kMostElements = UINT32_MAX;  // of a value: shaders count in 32 bits

bool DependsOnStep(const rl_dim& dim) { return dim.t != 0 || dim.r != 0; }

bool IsMoved(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16 ||
         dtype == DType::kI32;
}

// The operands that are matrices of weights.
std::string WhyNotWeights(const sdk::GraphView& graph, const rl_op& op,
                          std::initializer_list<uint32_t> operands) {
  for (const uint32_t i : operands) {
    const rl_value* weight = graph.input(op, i);
    if (weight == nullptr) continue;
    const DType dtype = TypeOf(*weight);
    if (!IsMatrixType(dtype)) return "weight type " + std::string(NameOf(dtype));
    if (weight->lifetime != RL_LIFETIME_CONSTANT) return "weight is no constant";
  }
  return {};
}

// Gate and up are decoded by one shader.
std::string WhyNotGated(const sdk::GraphView& graph, const rl_op& op, uint32_t gate, uint32_t up) {
  const rl_value* second = graph.input(op, up);
  if (second == nullptr || second->dtype == graph.input(op, gate)->dtype) return {};
  return "gate and up have different types";
}

// All other operands: plain, and as elements follow each other.
std::string WhyNotPlain(const sdk::GraphView& graph, const rl_op& op, uint32_t first) {
  for (uint32_t i = first; i < op.input_count; ++i) {
    const rl_value* value = graph.input(op, i);
    if (value == nullptr) continue;
    if (value->lifetime == RL_LIFETIME_CONSTANT && !ShapeOfConstant(*value).contiguous()) {
      return "a constant of several rows, which are padded";
    }
    if (!IsMoved(TypeOf(*value))) {
      return "type " + std::string(NameOf(TypeOf(*value)));
    }
  }
  return {};
}

std::string WhyNotShapes(const sdk::GraphView& graph, const rl_op& op) {
  const auto check = [&graph](const rl_value& value) -> std::string {
    uint64_t elements = 1;
    for (uint32_t axis = 0; axis < value.rank; ++axis) {
      const rl_dim& dim = value.dims[axis];
      if (axis > 0 && DependsOnStep(dim)) return "an inner dimension depends on T or R";
      const int64_t most = dim.constant + dim.t * graph.max_t() + dim.r * graph.max_r();
      elements *= static_cast<uint64_t>(std::max<int64_t>(most, 1));
    }
    const bool counted =
        value.lifetime != RL_LIFETIME_CONSTANT && value.lifetime != RL_LIFETIME_STATE;
    return counted && elements > kMostElements ? "more than 2^32 elements" : "";
  };
  for (uint32_t i = 0; i < op.input_count; ++i) {
    if (const rl_value* value = graph.input(op, i); value != nullptr) {
      if (std::string why = check(*value); !why.empty()) return why;
    }
  }
  for (uint32_t i = 0; i < op.result_count; ++i) {
    if (std::string why = check(graph.result(op, i)); !why.empty()) return why;
  }
  return {};
}

std::string WhyNotAttention(const sdk::GraphView& graph, const rl_op& op) {
  const rl_value& q = *graph.input(op, 0);
  const rl_value& state = *graph.input(op, 3);
  for (uint32_t i = 1; i <= 4; ++i) {
    const DType dtype = TypeOf(*graph.input(op, i));
    if ((dtype != DType::kF16 && dtype != DType::kF32) || dtype != TypeOf(state)) {
      return "keys and values must be all f16 or all f32";
    }
  }
  const int64_t dim = Last(q);
  // A query has to fit the shared memory that attention.comp sets aside.
  if (dim % 4 != 0 || dim > 4096) return "head dim " + std::to_string(dim);
  return {};
}

// Whether an op finds the rows of an operand that lies in pieces.
bool TakesPieces(const sdk::GraphView& graph, const rl_op& op, uint32_t operand) {
  switch (op.kind) {
    case RL_OP_matmul:
      return operand == 1 && sdk::GraphView::attrs<rl_matmul_attrs>(op).transpose_weight != 0;
    case RL_OP_geglu_linear:
      return operand == 1 || operand == 2;
    case RL_OP_gather_rows:
      return operand == 0 && graph.input(op, 0)->rank == 2;
    default:
      return false;
  }
}

std::string WhyNotLarge(const sdk::GraphView& graph, const rl_op& op, uint64_t most_bytes) {
  for (uint32_t i = 0; i < op.input_count; ++i) {
    const rl_value* value = graph.input(op, i);
    if (value == nullptr || value->lifetime != RL_LIFETIME_CONSTANT) continue;
    const uint64_t bytes = ShapeOfConstant(*value).bytes();
    if (bytes <= most_bytes || TakesPieces(graph, op, i)) continue;
    return "a weight of " + std::to_string(bytes) + " bytes, of which one allocation may have " +
           std::to_string(most_bytes);
  }
  return {};
}

std::string WhyNotGather(const sdk::GraphView& graph, const rl_op& op) {
  const rl_value& table = *graph.input(op, 0);
  const DType dtype = TypeOf(table);
  if (table.lifetime == RL_LIFETIME_CONSTANT && table.rank != 2 &&
      !ShapeOfConstant(table).contiguous()) {
    return "a constant of several rows, which are padded";
  }
  const bool plain = IsMoved(dtype);
  if (plain && (table.rank != 2 || dtype == DType::kF32 || dtype == DType::kI32)) return {};
  if (table.lifetime == RL_LIFETIME_CONSTANT && IsMatrixType(dtype)) return {};
  return "table of type " + std::string(NameOf(dtype));
}

}  // namespace

std::string WhyNot(const sdk::GraphView& graph, const rl_op& op, bool float64,
                   uint64_t most_bytes) {
  if (std::string why = WhyNotLarge(graph, op, most_bytes); !why.empty()) return why;
  if (op.kind == RL_OP_attention_scores || op.kind == RL_OP_attention_mix) {
    return "attention runs whole";
  }
  if (op.kind == RL_OP_ple_inject || op.kind == RL_OP_soft_embed) return "runs as its parts";
  if (std::string why = WhyNotShapes(graph, op); !why.empty()) return why;
  switch (op.kind) {
    case RL_OP_matmul:
      return WhyNotWeights(graph, op, {1u});
    case RL_OP_geglu_linear:
      if (std::string why = WhyNotGated(graph, op, 1, 2); !why.empty()) return why;
      return WhyNotWeights(graph, op, {1u, 2u});
    case RL_OP_grouped_matmul:
      if (graph.input(op, 1)->dims[0].constant > kMostExperts) return "more than 1024 experts";
      return WhyNotWeights(graph, op, {1u});
    case RL_OP_moe_ffn:
      if (graph.input(op, 3)->dims[0].constant > kMostExperts) return "more than 1024 experts";
      if (std::string why = WhyNotGated(graph, op, 3, 4); !why.empty()) return why;
      return WhyNotWeights(graph, op, {3u, 4u, 5u});
    case RL_OP_gather_rows:
      return WhyNotGather(graph, op);
    case RL_OP_attention:
      return WhyNotAttention(graph, op);
    case RL_OP_rope: {
      const rl_value* factors = graph.input(op, 2);
      if (factors != nullptr && factors->lifetime != RL_LIFETIME_CONSTANT) {
        return "frequency factors are no constant";
      }
      return WhyNotPlain(graph, op, 0);
    }
    case RL_OP_entropy_accept:
      return float64 ? WhyNotPlain(graph, op, 0) : "the device has no numbers of 64 bits";
    case RL_OP_reshape:
    case RL_OP_slice:
    case RL_OP_concat:
    case RL_OP_cast:
    case RL_OP_copy:
    case RL_OP_gather_last:
    case RL_OP_unary:
    case RL_OP_binary:
    case RL_OP_scale:
    case RL_OP_affine:
    case RL_OP_select:
    case RL_OP_where:
    case RL_OP_reduce:
    case RL_OP_argmax:
    case RL_OP_topk:
    case RL_OP_cumsum:
    case RL_OP_softmax:
    case RL_OP_entropy:
    case RL_OP_rms_norm:
    case RL_OP_softcap:
    case RL_OP_geglu:
    case RL_OP_residual_norm:
    case RL_OP_state_append:
    case RL_OP_penalties:
    case RL_OP_bias_add:
    case RL_OP_top_p_mask:
    case RL_OP_min_p_mask:
    case RL_OP_typical_p_mask:
    case RL_OP_random_uniform:
    case RL_OP_categorical:
      return WhyNotPlain(graph, op, 0);
    default:
      return "unknown to this version of the backend";
  }
}

}  // namespace rullama::gpu
