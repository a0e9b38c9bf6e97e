#include "core/passes/mini_model_for_test.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/base/check.h"

namespace rullama {
namespace {

constexpr float kEps = 1e-6F;

struct Cache {
  ValueId k_new, v_new, k_state, v_state;
};

class MiniBuilder {
 public:
  Graph Build() && {
    AddInputs();
    ValueId x = b_.Add(
        ops::Affine{
            .x = Gather("token_embd.weight", Model::kWidth, "embd"), .scale = 2.5F, .bias = 0},
        "scaled");
    for (int64_t layer = 0; layer < Model::kLayers; ++layer) x = AddLayer(layer, x);
    AddAppends();
    AddOutputs(x);
    auto graph = std::move(b_).Finish();
    RL_CHECK(graph.has_value());
    graph->max_t = 5;
    graph->max_r = 2;
    return *std::move(graph);
  }

 private:
  using Model = MiniModel;

  void AddInputs() {
    tokens_ = b_.Input(input_names::kTokens, {DType::kI32, {Dim::T()}});
    pos_ = b_.Input(input_names::kPos, {DType::kI32, {Dim::T()}});
    slot_ = b_.Input(input_names::kSlot, {DType::kI32, {Dim::T()}});
    past_ = b_.Input(input_names::kPast, {DType::kI32, {Model::kSlots}});
    rows_ = b_.Input(input_names::kRows, {DType::kI32, {Dim::R()}});
    seed_ = b_.Input(input_names::kSeed, {DType::kI32, {2}});
    b_.WantedRows(rows_);
  }

  ValueId Matrix(std::string_view name, int64_t rows, int64_t columns) {
    return b_.Constant(name, {DType::kF32, {rows, columns}});
  }
  ValueId Vector(std::string_view name, int64_t size) {
    return b_.Constant(name, {DType::kF32, {size}});
  }
  ValueId Gather(std::string_view table, int64_t columns, std::string_view name) {
    const ValueId weight = Matrix(table, Model::kVocabulary, columns);
    if (table == "token_embd.weight") token_embd_ = weight;
    return b_.Add(ops::GatherRows{.table = weight, .ids = tokens_}, name);
  }

  // Keys or values of a layer: projected, normed, and for keys rotated.
  ValueId Projected(ValueId x, const std::string& name, int64_t heads, bool rotated) {
    const int64_t columns = heads * Model::kHeadDim;
    const ValueId flat =
        b_.Add(ops::Linear(x, Matrix(name + ".weight", columns, Model::kWidth)), name + ".m");
    const ValueId split = b_.Add(ops::ReshapeTo(flat, {heads, Model::kHeadDim}), name + ".split");
    const ValueId norm =
        b_.Add(ops::RmsNorm{.x = split, .eps = kEps}, rotated ? name + ".norm" : name);
    return rotated
               ? b_.Add(ops::Rope{.x = norm, .pos = pos_, .theta = 10000, .n_rot = Model::kHeadDim},
                        name)
               : norm;
  }

  Cache MakeCache(const std::string& prefix, ValueId x) {
    const TensorType state(DType::kF16, {Model::kSlots, Model::kCapacity, 1, Model::kHeadDim});
    Cache cache;
    cache.k_new = b_.Add(ops::Cast{.x = Projected(x, prefix + "k", 1, true), .dtype = DType::kF16},
                         prefix + "k16");
    cache.v_new = b_.Add(ops::Cast{.x = Projected(x, prefix + "v", 1, false), .dtype = DType::kF16},
                         prefix + "v16");
    cache.k_state = b_.State(prefix + "k_cache", state);
    cache.v_state = b_.State(prefix + "v_cache", state);
    return cache;
  }

  ValueId AddLayer(int64_t layer, ValueId x) {
    const std::string prefix = fmt::format("blk.{}.", layer);
    const auto norm_weight = [&](const char* name) { return Vector(prefix + name, Model::kWidth); };
    const ValueId normed =
        b_.Add(ops::RmsNorm{.x = x, .weight = norm_weight("attn_norm.weight"), .eps = kEps},
               prefix + "normed");
    const auto own_cache = static_cast<size_t>(layer);
    if (layer < Model::kLayersWithCache) caches_[own_cache] = MakeCache(prefix, normed);
    const Cache& cache = caches_[std::min(own_cache, caches_.size() - 1)];
    const ValueId q = Projected(normed, prefix + "q", Model::kHeads, true);
    const int64_t window = layer == 0 ? 0 : 3;
    const ValueId attention =
        b_.Add(ops::WithRows(ops::Attention{.q = q,
                                            .k_new = cache.k_new,
                                            .v_new = cache.v_new,
                                            .k_state = cache.k_state,
                                            .v_state = cache.v_state,
                                            .mask = RL_MASK_CAUSAL,
                                            .window = window,
                                            .scale = 1},
                             ops::AttentionRows{pos_, slot_, pos_, slot_, past_}),
               prefix + "attn");
    const ValueId flat = b_.Add(ops::ReshapeTo(attention, {Model::kWidth}), prefix + "attn.flat");
    const ValueId out =
        b_.Add(ops::Linear(flat, Matrix(prefix + "o.weight", Model::kWidth, Model::kWidth)),
               prefix + "attn.out");
    x = b_.Add(
        ops::ResidualNorm{
            .residual = x, .x = out, .weight = norm_weight("post_attn.weight"), .eps = kEps},
        prefix + "mid");
    x = AddFeedForward(prefix, x);
    const ValueId ple =
        Gather(prefix + "per_layer_token_embd.weight", Model::kPleWidth, prefix + "ple");
    return b_.Add(
        ops::PleInject{
            .x = x,
            .ple = ple,
            .gate_weight = Matrix(prefix + "ple_gate.weight", Model::kPleWidth, Model::kWidth),
            .proj_weight = Matrix(prefix + "ple_proj.weight", Model::kWidth, Model::kPleWidth),
            .norm_weight = norm_weight("ple_norm.weight"),
            .scale = Vector(prefix + "scale", 1),
            .eps = kEps},
        prefix + "out");
  }

  ValueId AddFeedForward(const std::string& prefix, ValueId x) {
    const auto weight = [&](const char* name) { return Vector(prefix + name, Model::kWidth); };
    const ValueId normed =
        b_.Add(ops::RmsNorm{.x = x, .weight = weight("ffn_norm.weight"), .eps = kEps},
               prefix + "ffn.normed");
    const ValueId gated = b_.Add(
        ops::GeGluLinear{
            .x = normed,
            .gate_weight = Matrix(prefix + "gate.weight", Model::kFeedForward, Model::kWidth),
            .up_weight = Matrix(prefix + "up.weight", Model::kFeedForward, Model::kWidth)},
        prefix + "ffn.gated");
    const ValueId down = b_.Add(
        ops::Linear(gated, Matrix(prefix + "down.weight", Model::kWidth, Model::kFeedForward)),
        prefix + "ffn.down");
    return b_.Add(
        ops::ResidualNorm{
            .residual = x, .x = down, .weight = weight("post_ffn.weight"), .eps = kEps},
        prefix + "ffn");
  }

  void AddAppends() {
    for (size_t layer = 0; layer < caches_.size(); ++layer) {
      const std::string prefix = fmt::format("blk.{}.", layer);
      const Cache& cache = caches_[layer];
      b_.Add(
          ops::StateAppend{.state = cache.k_state, .rows = cache.k_new, .pos = pos_, .slot = slot_},
          prefix + "k_cache.next");
      b_.Add(
          ops::StateAppend{.state = cache.v_state, .rows = cache.v_new, .pos = pos_, .slot = slot_},
          prefix + "v_cache.next");
    }
  }

  void AddOutputs(ValueId x) {
    const ValueId normed = b_.Add(
        ops::RmsNorm{.x = x, .weight = Vector("output_norm.weight", Model::kWidth), .eps = kEps},
        "final");
    const ValueId raw = b_.Add(ops::Linear(normed, token_embd_), "logits.raw");
    const ValueId logits = b_.Add(ops::Softcap{.x = raw, .cap = 30}, "logits");
    const ValueId history = b_.State("history", {DType::kI32, {Model::kSlots, Model::kCapacity}});
    const ValueId penalised =
        b_.Add(ops::WithRows(ops::Penalties{.logits = logits,
                                            .history = history,
                                            .tokens = tokens_,
                                            .last_n = Model::kCapacity,
                                            .repeat = 1.3F,
                                            .frequency = 0.1F,
                                            .presence = 0.2F},
                             ops::AttentionRows{pos_, slot_, pos_, slot_, past_}),
               "penalised");
    b_.Add(ops::StateAppend{.state = history, .rows = tokens_, .pos = pos_, .slot = slot_},
           "history.next");
    const auto sorted = b_.Add(ops::TopK{.x = penalised, .k = Model::kVocabulary}, "sorted");
    const ValueId nucleus = b_.Add(ops::TopPMask{.x = sorted.values, .p = 0.9F}, "nucleus");
    const ValueId masked = b_.Add(ops::MinPMask{.x = nucleus, .p = 0.02F}, "masked");
    const ValueId u =
        b_.Add(ops::RandomUniform{.seed = seed_, .pos = pos_, .slot = slot_, .stream = 1}, "u");
    const ValueId column = b_.Add(ops::Categorical{.x = masked, .u = u}, "column");
    b_.Output("logits", logits);
    b_.Output("token", b_.Add(ops::GatherLast{.x = sorted.indices, .index = column}, "token"));
  }

  GraphBuilder b_{"mini"};
  std::array<Cache, Model::kLayersWithCache> caches_{};
  ValueId tokens_ = kNoValue, pos_ = kNoValue, slot_ = kNoValue, past_ = kNoValue, rows_ = kNoValue,
          seed_ = kNoValue, token_embd_ = kNoValue;
};

}  // namespace

Graph MiniModel::Build() { return MiniBuilder().Build(); }

OpIndex OpOf(const Graph& graph, std::string_view value_name) {
  const ValueId id = graph.Find(value_name);
  RL_CHECK(id != kNoValue && graph.value(id).producer != kNoOp);
  return graph.value(id).producer;
}

size_t CountOps(const Graph& graph, OpKind kind) {
  return static_cast<size_t>(std::ranges::count(graph.ops, kind, &Op::kind));
}

}  // namespace rullama
