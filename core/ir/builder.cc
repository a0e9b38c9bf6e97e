#include "core/ir/builder.h"

#include <fmt/format.h>

#include <array>
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
    if (info.trait == OpTrait::kEffect) {
      value.lifetime = Lifetime::kState;
      value.state = graph_.values[inputs[0]].state;
    }
    value.name =
        name.empty() ? fmt::format("{}.{}", info.name, graph_.values.size()) : std::string(name);
    if (results.size() > 1) value.name += fmt::format(".{}", info.results[i]);
    results[i] = AddValue(std::move(value));
  }
  graph_.ops.push_back({kind, std::move(inputs), results, attrs});
  return results;
}

ValueId GraphBuilder::AddOne(OpKind kind, std::vector<ValueId> inputs, OpAttrs attrs,
                             std::string_view name) {
  return Add(kind, std::move(inputs), attrs, name)[0];
}

ValueId GraphBuilder::Reshape(ValueId x, std::initializer_list<int64_t> inner,
                              std::string_view name) {
  std::array<int64_t, 3> dims{};
  size_t count = 0;
  for (const int64_t dim : inner) {
    if (count < dims.size()) dims[count] = dim;
    ++count;
  }
  return AddOne(OpKind::kReshape, {x},
                OpAttrs(rl_reshape_attrs{.struct_size = 0,
                                         .rank = static_cast<int32_t>(count) + 1,
                                         .d1 = dims[0],
                                         .d2 = dims[1],
                                         .d3 = dims[2]}),
                name);
}

ValueId GraphBuilder::Slice(ValueId x, int axis, int64_t start, int64_t size,
                            std::string_view name) {
  return AddOne(OpKind::kSlice, {x}, OpAttrs(rl_slice_attrs{0, axis, start, size}), name);
}

ValueId GraphBuilder::Concat(ValueId a, ValueId b, int axis, std::string_view name) {
  return AddOne(OpKind::kConcat, {a, b}, OpAttrs(rl_concat_attrs{0, axis}), name);
}

ValueId GraphBuilder::Cast(ValueId x, DType dtype, std::string_view name) {
  return AddOne(OpKind::kCast, {x}, OpAttrs(rl_cast_attrs{0, static_cast<int32_t>(dtype)}), name);
}

ValueId GraphBuilder::Copy(ValueId x, std::string_view name) {
  return AddOne(OpKind::kCopy, {x}, OpAttrs(OpKind::kCopy), name);
}

ValueId GraphBuilder::GatherRows(ValueId table, ValueId ids, std::string_view name, int64_t column,
                                 int64_t columns) {
  return AddOne(OpKind::kGatherRows, {table, ids},
                OpAttrs(rl_gather_rows_attrs{0, column, columns}), name);
}

ValueId GraphBuilder::GatherLast(ValueId x, ValueId index, std::string_view name) {
  return AddOne(OpKind::kGatherLast, {x, index}, OpAttrs(OpKind::kGatherLast), name);
}

ValueId GraphBuilder::Unary(ValueId x, rl_unary fn, std::string_view name) {
  return AddOne(OpKind::kUnary, {x}, OpAttrs(rl_unary_attrs{0, fn}), name);
}

ValueId GraphBuilder::Binary(ValueId a, ValueId b, rl_binary fn, std::string_view name) {
  return AddOne(OpKind::kBinary, {a, b}, OpAttrs(rl_binary_attrs{0, fn}), name);
}

ValueId GraphBuilder::Add(ValueId a, ValueId b, std::string_view name) {
  return Binary(a, b, RL_BINARY_ADD, name);
}

ValueId GraphBuilder::Mul(ValueId a, ValueId b, std::string_view name) {
  return Binary(a, b, RL_BINARY_MUL, name);
}

ValueId GraphBuilder::Scale(ValueId x, ValueId weight, std::string_view name) {
  return AddOne(OpKind::kScale, {x, weight}, OpAttrs(OpKind::kScale), name);
}

ValueId GraphBuilder::Affine(ValueId x, float scale, float bias, std::string_view name) {
  return AddOne(OpKind::kAffine, {x}, OpAttrs(rl_affine_attrs{0, scale, bias}), name);
}

ValueId GraphBuilder::Select(ValueId condition, ValueId a, float otherwise, std::string_view name) {
  return AddOne(OpKind::kSelect, {condition, a}, OpAttrs(rl_select_attrs{0, otherwise}), name);
}

ValueId GraphBuilder::Reduce(ValueId x, rl_reduce fn, std::string_view name) {
  return AddOne(OpKind::kReduce, {x}, OpAttrs(rl_reduce_attrs{0, fn}), name);
}

ValueId GraphBuilder::ArgMax(ValueId x, std::string_view name) {
  return AddOne(OpKind::kArgMax, {x}, OpAttrs(OpKind::kArgMax), name);
}

GraphBuilder::TopKResult GraphBuilder::TopK(ValueId x, int64_t k, std::string_view name) {
  const auto results = Add(OpKind::kTopK, {x}, OpAttrs(rl_topk_attrs{0, k}), name);
  return {results[0], results[1]};
}

ValueId GraphBuilder::CumSum(ValueId x, std::string_view name) {
  return AddOne(OpKind::kCumSum, {x}, OpAttrs(OpKind::kCumSum), name);
}

ValueId GraphBuilder::Softmax(ValueId x, std::string_view name) {
  return AddOne(OpKind::kSoftmax, {x}, OpAttrs(OpKind::kSoftmax), name);
}

ValueId GraphBuilder::MatMul(ValueId x, ValueId weight, std::string_view name,
                             bool transpose_weight) {
  return AddOne(OpKind::kMatMul, {x, weight}, OpAttrs(rl_matmul_attrs{0, transpose_weight ? 1 : 0}),
                name);
}

ValueId GraphBuilder::RmsNorm(ValueId x, ValueId weight, float eps, std::string_view name) {
  return AddOne(OpKind::kRmsNorm, {x, weight}, OpAttrs(rl_rms_norm_attrs{0, eps}), name);
}

ValueId GraphBuilder::Softcap(ValueId x, float cap, std::string_view name) {
  return AddOne(OpKind::kSoftcap, {x}, OpAttrs(rl_softcap_attrs{0, cap}), name);
}

ValueId GraphBuilder::GeGlu(ValueId gate, ValueId up, std::string_view name) {
  return AddOne(OpKind::kGeGlu, {gate, up}, OpAttrs(OpKind::kGeGlu), name);
}

ValueId GraphBuilder::GeGluLinear(ValueId x, ValueId gate_weight, ValueId up_weight,
                                  std::string_view name) {
  return AddOne(OpKind::kGeGluLinear, {x, gate_weight, up_weight}, OpAttrs(OpKind::kGeGluLinear),
                name);
}

ValueId GraphBuilder::ResidualNorm(ValueId residual, ValueId x, ValueId weight, ValueId scale,
                                   float eps, std::string_view name) {
  return AddOne(OpKind::kResidualNorm, {residual, x, weight, scale},
                OpAttrs(rl_residual_norm_attrs{0, eps}), name);
}

ValueId GraphBuilder::Rope(ValueId x, ValueId pos, ValueId freq_factors, float theta, int n_rot,
                           std::string_view name) {
  return AddOne(OpKind::kRope, {x, pos, freq_factors}, OpAttrs(rl_rope_attrs{0, theta, n_rot}),
                name);
}

ValueId GraphBuilder::Attention(ValueId q, ValueId k_new, ValueId v_new, ValueId k_state,
                                ValueId v_state, const AttentionRows& rows, rl_mask mask,
                                int64_t window, float scale, std::string_view name) {
  return AddOne(OpKind::kAttention,
                {q, k_new, v_new, k_state, v_state, rows.q_pos, rows.q_slot, rows.kv_pos,
                 rows.kv_slot, rows.past},
                OpAttrs(rl_attention_attrs{0, mask, window, scale}), name);
}

ValueId GraphBuilder::StateAppend(ValueId state, ValueId rows, ValueId pos, ValueId slot,
                                  std::string_view name) {
  return AddOne(OpKind::kStateAppend, {state, rows, pos, slot}, OpAttrs(OpKind::kStateAppend),
                name);
}

ValueId GraphBuilder::PleInject(ValueId x, ValueId ple, ValueId gate_weight, ValueId proj_weight,
                                ValueId norm_weight, ValueId scale, float eps,
                                std::string_view name) {
  return AddOne(OpKind::kPleInject, {x, ple, gate_weight, proj_weight, norm_weight, scale},
                OpAttrs(rl_ple_inject_attrs{0, eps}), name);
}

ValueId GraphBuilder::Penalties(ValueId logits, ValueId history, ValueId tokens,
                                const AttentionRows& rows, int64_t last_n, float repeat,
                                float frequency, float presence, std::string_view name) {
  return AddOne(
      OpKind::kPenalties,
      {logits, history, tokens, rows.q_pos, rows.q_slot, rows.kv_pos, rows.kv_slot, rows.past},
      OpAttrs(rl_penalties_attrs{0, last_n, repeat, frequency, presence}), name);
}

ValueId GraphBuilder::BiasAdd(ValueId logits, ValueId ids, ValueId bias, std::string_view name) {
  return AddOne(OpKind::kBiasAdd, {logits, ids, bias}, OpAttrs(OpKind::kBiasAdd), name);
}

ValueId GraphBuilder::TopPMask(ValueId x, float p, std::string_view name) {
  return AddOne(OpKind::kTopPMask, {x}, OpAttrs(rl_top_p_mask_attrs{0, p}), name);
}

ValueId GraphBuilder::MinPMask(ValueId x, float p, std::string_view name) {
  return AddOne(OpKind::kMinPMask, {x}, OpAttrs(rl_min_p_mask_attrs{0, p}), name);
}

ValueId GraphBuilder::TypicalPMask(ValueId x, float p, std::string_view name) {
  return AddOne(OpKind::kTypicalPMask, {x}, OpAttrs(rl_typical_p_mask_attrs{0, p}), name);
}

ValueId GraphBuilder::RandomUniform(ValueId seed, ValueId pos, ValueId slot, int stream,
                                    std::string_view name) {
  return AddOne(OpKind::kRandomUniform, {seed, pos, slot},
                OpAttrs(rl_random_uniform_attrs{0, stream}), name);
}

ValueId GraphBuilder::Categorical(ValueId x, ValueId u, std::string_view name) {
  return AddOne(OpKind::kCategorical, {x, u}, OpAttrs(OpKind::kCategorical), name);
}

ValueId GraphBuilder::Where(ValueId condition, ValueId a, ValueId b, std::string_view name) {
  return AddOne(OpKind::kWhere, {condition, a, b}, OpAttrs(OpKind::kWhere), name);
}

ValueId GraphBuilder::Entropy(ValueId x, std::string_view name) {
  return AddOne(OpKind::kEntropy, {x}, OpAttrs(OpKind::kEntropy), name);
}

ValueId GraphBuilder::GroupedMatMul(ValueId x, ValueId weight, ValueId experts,
                                    std::string_view name) {
  return AddOne(OpKind::kGroupedMatMul, {x, weight, experts}, OpAttrs(OpKind::kGroupedMatMul),
                name);
}

ValueId GraphBuilder::MoeFfn(ValueId x, ValueId weights, ValueId experts,
                             const ExpertWeights& tensors, std::string_view name) {
  return AddOne(OpKind::kMoeFfn,
                {x, weights, experts, tensors.gate, tensors.up, tensors.down, tensors.scale},
                OpAttrs(OpKind::kMoeFfn), name);
}

ValueId GraphBuilder::SoftEmbed(ValueId logits, ValueId inverse_temperature, ValueId table,
                                std::string_view name) {
  return AddOne(OpKind::kSoftEmbed, {logits, inverse_temperature, table},
                OpAttrs(OpKind::kSoftEmbed), name);
}

ValueId GraphBuilder::EntropyAccept(ValueId entropy, float bound, std::string_view name) {
  return AddOne(OpKind::kEntropyAccept, {entropy}, OpAttrs(rl_entropy_accept_attrs{0, bound}),
                name);
}

Result<Graph> GraphBuilder::Finish() && {
  if (error_) return tl::unexpected<Error>(*std::move(error_));
  return std::move(graph_);
}

}  // namespace rullama
