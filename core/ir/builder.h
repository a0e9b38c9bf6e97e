// Builds a graph op by op, inferring and checking types on the way. The first mistake is kept and
// returned by Finish; methods called after it do nothing and return kNoValue, so a model builder
// reads as straight-line code. Names are made unique by the caller; an empty name gets "<op>.<n>".
// Not thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/ir/graph.h"

namespace rullama {

class GraphBuilder {
 public:
  explicit GraphBuilder(std::string name);
  // Continues an existing graph (samplers append to a model's graph).
  explicit GraphBuilder(Graph graph);

  ValueId Input(std::string_view name, TensorType type);
  // Rows [first_row, first_row + dim 0) of tensor `source` of the model file, with this type.
  ValueId Constant(std::string_view source, TensorType type, int64_t first_row = 0);
  ValueId State(std::string_view name, TensorType type);
  void Output(std::string_view name, ValueId value, RowDemand demand = RowDemand::kWanted);
  // Declares the input that names the wanted rows; done once.
  void WantedRows(ValueId rows);

  // Any op: operands in the order of ops.def, kNoValue for an absent optional one.
  std::vector<ValueId> Add(OpKind kind, std::vector<ValueId> inputs, OpAttrs attrs,
                           std::string_view name = {});

  // The ops that models and samplers use; ops.def documents each. Add takes the others.
  ValueId Reshape(ValueId x, std::initializer_list<int64_t> inner, std::string_view name = {});
  ValueId Slice(ValueId x, int axis, int64_t start, int64_t size, std::string_view name = {});
  ValueId Concat(ValueId a, ValueId b, int axis, std::string_view name = {});
  ValueId Cast(ValueId x, DType dtype, std::string_view name = {});
  ValueId Copy(ValueId x, std::string_view name = {});
  ValueId GatherRows(ValueId table, ValueId ids, std::string_view name = {}, int64_t column = 0,
                     int64_t columns = 0);
  ValueId GatherLast(ValueId x, ValueId index, std::string_view name = {});
  ValueId Unary(ValueId x, rl_unary fn, std::string_view name = {});
  ValueId Binary(ValueId a, ValueId b, rl_binary fn, std::string_view name = {});
  ValueId Add(ValueId a, ValueId b, std::string_view name = {});
  ValueId Mul(ValueId a, ValueId b, std::string_view name = {});
  ValueId Scale(ValueId x, ValueId weight, std::string_view name = {});
  ValueId Affine(ValueId x, float scale, float bias, std::string_view name = {});
  ValueId Select(ValueId condition, ValueId a, float otherwise, std::string_view name = {});
  ValueId Where(ValueId condition, ValueId a, ValueId b, std::string_view name = {});
  ValueId Reduce(ValueId x, rl_reduce fn, std::string_view name = {});
  ValueId ArgMax(ValueId x, std::string_view name = {});
  struct TopKResult {
    ValueId values;
    ValueId indices;
  };
  TopKResult TopK(ValueId x, int64_t k, std::string_view name = {});
  ValueId CumSum(ValueId x, std::string_view name = {});
  ValueId Softmax(ValueId x, std::string_view name = {});
  ValueId Entropy(ValueId x, std::string_view name = {});
  ValueId MatMul(ValueId x, ValueId weight, std::string_view name = {},
                 bool transpose_weight = true);
  ValueId RmsNorm(ValueId x, ValueId weight, float eps, std::string_view name = {});
  ValueId Softcap(ValueId x, float cap, std::string_view name = {});
  ValueId GeGlu(ValueId gate, ValueId up, std::string_view name = {});
  ValueId GeGluLinear(ValueId x, ValueId gate_weight, ValueId up_weight,
                      std::string_view name = {});
  ValueId ResidualNorm(ValueId residual, ValueId x, ValueId weight, ValueId scale, float eps,
                       std::string_view name = {});
  ValueId Rope(ValueId x, ValueId pos, ValueId freq_factors, float theta, int n_rot,
               std::string_view name = {});
  // The operands of attention that are the same for every layer, or shared by its parts.
  struct AttentionRows {
    ValueId q_pos, q_slot, kv_pos, kv_slot, past;
  };
  ValueId Attention(ValueId q, ValueId k_new, ValueId v_new, ValueId k_state, ValueId v_state,
                    const AttentionRows& rows, rl_mask mask, int64_t window, float scale,
                    std::string_view name = {});
  ValueId StateAppend(ValueId state, ValueId rows, ValueId pos, ValueId slot,
                      std::string_view name = {});
  ValueId PleInject(ValueId x, ValueId ple, ValueId gate_weight, ValueId proj_weight,
                    ValueId norm_weight, ValueId scale, float eps, std::string_view name = {});
  ValueId Penalties(ValueId logits, ValueId history, ValueId tokens, const AttentionRows& rows,
                    int64_t last_n, float repeat, float frequency, float presence,
                    std::string_view name = {});
  ValueId BiasAdd(ValueId logits, ValueId ids, ValueId bias, std::string_view name = {});
  ValueId TopPMask(ValueId x, float p, std::string_view name = {});
  ValueId MinPMask(ValueId x, float p, std::string_view name = {});
  ValueId TypicalPMask(ValueId x, float p, std::string_view name = {});
  ValueId RandomUniform(ValueId seed, ValueId pos, ValueId slot, int stream,
                        std::string_view name = {});
  ValueId Categorical(ValueId x, ValueId u, std::string_view name = {});
  ValueId GroupedMatMul(ValueId x, ValueId weight, ValueId experts, std::string_view name = {});
  struct ExpertWeights {
    ValueId gate, up, down, scale;  // up and scale may be kNoValue
  };
  ValueId MoeFfn(ValueId x, ValueId weights, ValueId experts, const ExpertWeights& tensors,
                 std::string_view name = {});
  ValueId SoftEmbed(ValueId logits, ValueId inverse_temperature, ValueId table,
                    std::string_view name = {});
  ValueId EntropyAccept(ValueId entropy, float bound, std::string_view name = {});

  [[nodiscard]] const Graph& graph() const { return graph_; }
  [[nodiscard]] bool ok() const { return !error_.has_value(); }

  // The graph, or the first error. The builder is empty afterwards.
  Result<Graph> Finish() &&;

 private:
  ValueId AddValue(Value value);
  ValueId AddOne(OpKind kind, std::vector<ValueId> inputs, OpAttrs attrs, std::string_view name);
  void Fail(Error error);

  Graph graph_;
  std::optional<Error> error_;
};

}  // namespace rullama
