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
    ValueId x = b_.Affine(Gather("token_embd.weight", Model::kWidth, "embd"), 2.5F, 0, "scaled");
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
    return b_.GatherRows(weight, tokens_, name);
  }

  // Keys or values of a layer: projected, normed, and for keys rotated.
  ValueId Projected(ValueId x, const std::string& name, int64_t heads, bool rotated) {
    const int64_t columns = heads * Model::kHeadDim;
    const ValueId flat =
        b_.MatMul(x, Matrix(name + ".weight", columns, Model::kWidth), name + ".m");
    const ValueId split = b_.Reshape(flat, {heads, Model::kHeadDim}, name + ".split");
    const ValueId norm = b_.RmsNorm(split, kNoValue, kEps, rotated ? name + ".norm" : name);
    return rotated ? b_.Rope(norm, pos_, kNoValue, 10000, Model::kHeadDim, name) : norm;
  }

  Cache MakeCache(const std::string& prefix, ValueId x) {
    const TensorType state(DType::kF16, {Model::kSlots, Model::kCapacity, 1, Model::kHeadDim});
    Cache cache;
    cache.k_new = b_.Cast(Projected(x, prefix + "k", 1, true), DType::kF16, prefix + "k16");
    cache.v_new = b_.Cast(Projected(x, prefix + "v", 1, false), DType::kF16, prefix + "v16");
    cache.k_state = b_.State(prefix + "k_cache", state);
    cache.v_state = b_.State(prefix + "v_cache", state);
    return cache;
  }

  ValueId AddLayer(int64_t layer, ValueId x) {
    const std::string prefix = fmt::format("blk.{}.", layer);
    const auto norm_weight = [&](const char* name) { return Vector(prefix + name, Model::kWidth); };
    const ValueId normed = b_.RmsNorm(x, norm_weight("attn_norm.weight"), kEps, prefix + "normed");
    const auto own_cache = static_cast<size_t>(layer);
    if (layer < Model::kLayersWithCache) caches_[own_cache] = MakeCache(prefix, normed);
    const Cache& cache = caches_[std::min(own_cache, caches_.size() - 1)];
    const ValueId q = Projected(normed, prefix + "q", Model::kHeads, true);
    const int64_t window = layer == 0 ? 0 : 3;
    const ValueId attention =
        b_.Attention(q, cache.k_new, cache.v_new, cache.k_state, cache.v_state,
                     {pos_, slot_, pos_, slot_, past_}, RL_MASK_CAUSAL, window, 1, prefix + "attn");
    const ValueId flat = b_.Reshape(attention, {Model::kWidth}, prefix + "attn.flat");
    const ValueId out = b_.MatMul(flat, Matrix(prefix + "o.weight", Model::kWidth, Model::kWidth),
                                  prefix + "attn.out");
    x = b_.ResidualNorm(x, out, norm_weight("post_attn.weight"), kNoValue, kEps, prefix + "mid");
    x = AddFeedForward(prefix, x);
    const ValueId ple =
        Gather(prefix + "per_layer_token_embd.weight", Model::kPleWidth, prefix + "ple");
    return b_.PleInject(x, ple, Matrix(prefix + "ple_gate.weight", Model::kPleWidth, Model::kWidth),
                        Matrix(prefix + "ple_proj.weight", Model::kWidth, Model::kPleWidth),
                        norm_weight("ple_norm.weight"), Vector(prefix + "scale", 1), kEps,
                        prefix + "out");
  }

  ValueId AddFeedForward(const std::string& prefix, ValueId x) {
    const auto weight = [&](const char* name) { return Vector(prefix + name, Model::kWidth); };
    const ValueId normed = b_.RmsNorm(x, weight("ffn_norm.weight"), kEps, prefix + "ffn.normed");
    const ValueId gated = b_.GeGluLinear(
        normed, Matrix(prefix + "gate.weight", Model::kFeedForward, Model::kWidth),
        Matrix(prefix + "up.weight", Model::kFeedForward, Model::kWidth), prefix + "ffn.gated");
    const ValueId down =
        b_.MatMul(gated, Matrix(prefix + "down.weight", Model::kWidth, Model::kFeedForward),
                  prefix + "ffn.down");
    return b_.ResidualNorm(x, down, weight("post_ffn.weight"), kNoValue, kEps, prefix + "ffn");
  }

  void AddAppends() {
    for (size_t layer = 0; layer < caches_.size(); ++layer) {
      const std::string prefix = fmt::format("blk.{}.", layer);
      const Cache& cache = caches_[layer];
      b_.StateAppend(cache.k_state, cache.k_new, pos_, slot_, prefix + "k_cache.next");
      b_.StateAppend(cache.v_state, cache.v_new, pos_, slot_, prefix + "v_cache.next");
    }
  }

  void AddOutputs(ValueId x) {
    const ValueId normed =
        b_.RmsNorm(x, Vector("output_norm.weight", Model::kWidth), kEps, "final");
    const ValueId raw = b_.MatMul(normed, token_embd_, "logits.raw");
    const ValueId logits = b_.Softcap(raw, 30, "logits");
    const ValueId history = b_.State("history", {DType::kI32, {Model::kSlots, Model::kCapacity}});
    const ValueId penalised =
        b_.Penalties(logits, history, tokens_, {pos_, slot_, pos_, slot_, past_}, Model::kCapacity,
                     1.3F, 0.1F, 0.2F, "penalised");
    b_.StateAppend(history, tokens_, pos_, slot_, "history.next");
    const auto sorted = b_.TopK(penalised, Model::kVocabulary, "sorted");
    const ValueId nucleus = b_.TopPMask(sorted.values, 0.9F, "nucleus");
    const ValueId masked = b_.MinPMask(nucleus, 0.02F, "masked");
    const ValueId u = b_.RandomUniform(seed_, pos_, slot_, 1, "u");
    const ValueId column = b_.Categorical(masked, u, "column");
    b_.Output("logits", logits);
    b_.Output("token", b_.GatherLast(sorted.indices, column, "token"));
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
