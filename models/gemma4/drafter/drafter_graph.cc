#include "models/gemma4/drafter/drafter_graph.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "core/ir/draft_names.h"
#include "models/common/graph/decoder_parts.h"
#include "models/gemma4/drafter/partner.h"
#include "models/gemma4/graph/model.h"

namespace rullama::gemma4 {
namespace {

class DraftBuilder {
 public:
  DraftBuilder(const DraftGraphParts& parts, const BuildOptions& options, ModelGraph& model)
      : parts_(parts),
        network_(parts.config.network),
        options_(options),
        model_(model),
        drafter_(parts.weights, options, model),
        target_(parts.target_weights, options, model) {}

  void Build(const DraftShape& draft) {
    GraphBuilder& b = builder();
    AddInputs(draft.places);
    Step step{.token = model_.tokens, .hidden = FirstHidden()};
    ValueId drafted = kNoValue;
    ValueId probabilities = kNoValue;
    for (int64_t i = 0; i < draft.tokens; ++i) {
      b.NameOps(fmt::format("draft.{}.", i));
      step = Draft(step);
      drafted = Join(drafted, b.Add(ops::ReshapeTo(step.token, {1}), "token.column"), "tokens");
      if (!draft.probabilities) continue;
      probabilities = Join(probabilities, BestProbability(step.scores), "probabilities");
    }
    b.NameOps("");
    b.Output(draft_names::kTokens, drafted, RowDemand::kAll);
    if (draft.probabilities) {
      b.Output(draft_names::kProbabilities, probabilities, RowDemand::kAll);
    }
  }

 private:
  struct Step {
    ValueId token = kNoValue;   // i32[T]
    ValueId hidden = kNoValue;  // f32[T, width of the model]
    ValueId scores = kNoValue;  // f32[T, candidates], of which the token has the best
  };
  struct Choice {
    ValueId token = kNoValue;
    ValueId scores = kNoValue;
  };

  GraphBuilder& builder() { return model_.builder; }

  ValueId Join(ValueId columns, ValueId column, std::string_view name) {
    if (columns == kNoValue) return column;
    return builder().Add(ops::Concat{.a = columns, .b = column, .axis = 1}, name);
  }

  ValueId BestProbability(ValueId scores) {
    GraphBuilder& b = builder();
    const ValueId all = b.Add(ops::Softmax{scores}, "head.probabilities");
    return b.Add(ops::Reduce{.x = all, .fn = RL_REDUCE_MAX}, "probability");
  }

  void AddInputs(int64_t places) {
    GraphBuilder& b = builder();
    from_ = b.Input(draft_names::kFrom, {DType::kI32, {Dim::T()}});
    after_ = b.Input(draft_names::kAfter, {DType::kI32, {Dim::T()}});
    hidden_ = b.State(draft_names::kHidden, {DType::kF32, {places, 1, parts_.config.target_width}});
  }

  ValueId FirstHidden() {
    const ValueId row =
        builder().Add(ops::GatherRows{.table = hidden_, .ids = from_}, "draft.hidden.row");
    return builder().Add(ops::ReshapeTo(row, {parts_.config.target_width}), "draft.hidden.first");
  }

  Step Draft(const Step& before) {
    GraphBuilder& b = builder();
    const int64_t width = parts_.config.target_width;
    const ValueId gathered =
        b.Add(ops::GatherRows{.table = target_.Weight("token_embd.weight"), .ids = before.token},
              "embd.gather");
    const ValueId embedding =
        b.Add(ops::Affine{.x = gathered, .scale = std::sqrt(static_cast<float>(width)), .bias = 0},
              "embd");
    const ValueId both =
        b.Add(ops::Concat{.a = embedding, .b = before.hidden, .axis = 1}, "draft.concat");
    ValueId x = b.Add(ops::Linear(both, drafter_.Weight(kPreProjection)), "draft.input");
    for (int64_t i = 0; i < network_.layer_count(); ++i) x = Layer(i, x);
    const ValueId y = b.Add(
        ops::RmsNorm{
            .x = x, .weight = drafter_.Weight("output_norm.weight"), .eps = network_.rms_eps},
        "output.norm");
    const ValueId next = b.Add(ops::Linear(y, drafter_.Weight(kPostProjection)), "draft.next");
    const Choice choice = parts_.config.ordered ? ChooseOfClusters(y) : ChooseOfAll(y);
    return {.token = choice.token, .hidden = next, .scores = choice.scores};
  }

  ValueId Layer(int64_t index, ValueId hidden) {
    GraphBuilder& b = builder();
    const ValueId mix = Attention(index, hidden);
    const int64_t width = network_.heads * network_.layer(index).head_dim;
    hidden = EndAttention(drafter_, index, hidden, mix, width, network_.rms_eps);
    const ValueId out = DenseFeedForward(drafter_, index, hidden, network_.rms_eps);
    return b.Add(
        ops::ResidualNorm{
            .residual = hidden,
            .x = out,
            .weight = drafter_.Weight(LayerName(index, "post_ffw_norm.weight")),
            .scale = drafter_.OptionalWeight(LayerName(index, "layer_output_scale.weight")),
            .eps = network_.rms_eps},
        LayerName(index, "out"));
  }

  ValueId Attention(int64_t index, ValueId hidden) {
    GraphBuilder& b = builder();
    const Gemma4Layer& layer = network_.layer(index);
    const bool sliding = layer.kind == LayerKind::kSliding;
    const ValueId x =
        b.Add(ops::RmsNorm{.x = hidden,
                           .weight = drafter_.Weight(LayerName(index, "attn_norm.weight")),
                           .eps = network_.rms_eps},
              LayerName(index, "attn.norm"));
    const std::string name = LayerName(index, "attn.q");
    const ValueId heads = ProjectHeads(drafter_, index, x,
                                       {.weight = "attn_q.weight",
                                        .heads = network_.heads,
                                        .head_dim = layer.head_dim,
                                        .name = name,
                                        .heads_name = name + ".heads"});
    const ValueId q =
        NormAndRotate(drafter_, index, heads,
                      {.norm = "attn_q_norm.weight",
                       .eps = network_.rms_eps,
                       .theta = sliding ? network_.rope_base_sliding : network_.rope_base_global,
                       .n_rot = network_.n_rot(layer.kind),
                       .factors = sliding ? kNoValue : RopeFactors(),
                       .name = name});
    const LayerCache& cache = CacheOf(layer.kind, heads);
    // Positions after that of the row are not visible: only rows of the cache are.
    const ops::AttentionRows& rows = model_.attention_rows;
    return b.Add(ops::Attention{.q = q,
                                .k_new = cache.k_new,
                                .v_new = cache.v_new,
                                .k_state = cache.k_state,
                                .v_state = cache.v_state,
                                .q_pos = rows.q_pos,
                                .q_slot = rows.q_slot,
                                .kv_pos = after_,
                                .kv_slot = rows.kv_slot,
                                .past = rows.past,
                                .mask = RL_MASK_CAUSAL,
                                .window = sliding ? network_.sliding_window : 0,
                                .scale = kGemma4AttentionScale},
                 LayerName(index, "attn.mix"));
  }

  // The model's cache for layers of this kind. The op wants fresh rows, too, which nobody sees: the
  // first queries stand for them.
  const LayerCache& CacheOf(LayerKind kind, ValueId heads) {
    if (const auto found = caches_.find(kind); found != caches_.end()) return found->second;
    const int64_t owner = CacheForDrafter(parts_.target, kind);
    LayerCache cache = AddCache(target_, owner, CacheShapeOf(parts_.target, options_, owner));
    GraphBuilder& b = builder();
    const ValueId unseen = b.Add(
        ops::Slice{.x = heads, .axis = 1, .start = 0, .size = parts_.target.layer(owner).kv_heads},
        LayerName(owner, "unseen"));
    const auto rounded = [&](DType dtype, std::string_view name) {
      if (dtype == DType::kF32) return unseen;
      return b.Add(ops::Cast{.x = unseen, .dtype = dtype}, LayerName(owner, name));
    };
    const auto [keys, values] = options_.kv_dtype;
    cache.k_new = rounded(keys, "unseen.rounded");
    cache.v_new = keys == values ? cache.k_new : rounded(values, "unseen.values");
    return caches_.emplace(kind, cache).first->second;
  }

  ValueId RopeFactors() {
    const ValueId stored = drafter_.OptionalWeight("rope_freqs.weight");
    if (stored != kNoValue) return stored;
    return drafter_.Synthetic(fmt::format("{}rope_freqs.weight", kDrafterPrefix), DType::kF32,
                              std::span<const float>(network_.rope_factors));
  }

  Choice ChooseOfAll(ValueId y) {
    GraphBuilder& b = builder();
    ValueId weight = drafter_.OptionalWeight("output.weight");
    if (weight == kNoValue) weight = drafter_.Weight("token_embd.weight");
    const bool cap = network_.final_softcap > 0;
    ValueId logits = b.Add(ops::Linear(y, weight), cap ? "output.project" : "logits");
    if (cap) logits = b.Add(ops::Softcap{.x = logits, .cap = network_.final_softcap}, "logits");
    return {.token = b.Add(ops::ArgMax{logits}, "token"), .scores = logits};
  }

  // The clusters whose centroids score best, then the best token of these: the best cluster, its
  // scores once more, and the best of them. A soft-cap would not change which is best.
  Choice ChooseOfClusters(ValueId y) {
    GraphBuilder& b = builder();
    const OrderedHead& head = *parts_.config.ordered;
    const int64_t size = head.cluster_size();
    const ValueId centroids = b.Add(ops::Linear(y, drafter_.Weight(kCentroids)), "head.centroids");
    const auto chosen = b.Add(ops::TopK{.x = centroids, .k = head.chosen}, "head.chosen");
    const ValueId weight = ClusteredHead();
    const ValueId scores = b.Add(
        ops::GroupedMatMul{.x = y, .weight = weight, .experts = chosen.indices}, "head.scores");
    const ValueId best = b.Add(ops::Reduce{.x = scores, .fn = RL_REDUCE_MAX}, "head.best");
    const ValueId which = b.Add(
        ops::ArgMax{b.Add(ops::ReshapeTo(best, {head.chosen}), "head.best.flat")}, "head.which");
    const ValueId cluster =
        b.Add(ops::GatherLast{.x = chosen.indices, .index = which}, "head.cluster");
    const ValueId column = b.Add(ops::ReshapeTo(cluster, {1}), "head.cluster.column");
    const ValueId own =
        b.Add(ops::GroupedMatMul{.x = y, .weight = weight, .experts = column}, "head.own");
    const ValueId member =
        b.Add(ops::ArgMax{b.Add(ops::ReshapeTo(own, {size}), "head.own.flat")}, "head.member");
    const ValueId tokens =
        b.Add(ops::GatherRows{.table = clustered_tokens_, .ids = cluster}, "head.tokens");
    return {.token = b.Add(ops::GatherLast{.x = tokens, .index = member}, "token"),
            .scores = Capped(b.Add(ops::ReshapeTo(scores, {head.chosen * size}), "head.flat"))};
  }

  ValueId Capped(ValueId scores) {
    if (network_.final_softcap <= 0) return scores;
    return builder().Add(ops::Softcap{.x = scores, .cap = network_.final_softcap}, "head.capped");
  }

  ValueId ClusteredHead() {
    if (clustered_head_ != kNoValue) return clustered_head_;
    const OrderedHead& head = *parts_.config.ordered;
    clustered_head_ = builder().Constant(
        kClusteredHead,
        {HeadOf(parts_.weights).dtype, {head.clusters, head.cluster_size(), network_.width}});
    clustered_tokens_ =
        builder().Constant(kClusteredTokens, {DType::kI32, {head.clusters, head.cluster_size()}});
    return clustered_head_;
  }

  const DraftGraphParts parts_;
  const Gemma4Config& network_;
  const BuildOptions& options_;
  ModelGraph& model_;
  GraphContext drafter_;
  GraphContext target_;
  std::map<LayerKind, LayerCache> caches_;
  ValueId from_ = kNoValue;
  ValueId after_ = kNoValue;
  ValueId hidden_ = kNoValue;
  ValueId clustered_head_ = kNoValue;
  ValueId clustered_tokens_ = kNoValue;
};

}  // namespace

Result<ModelGraph> BuildDraftGraph(const DraftGraphParts& parts, const BuildOptions& options,
                                   const DraftShape& draft) {
  const GraphLimits limits{.context_length = parts.target.context_length};
  RL_ASSIGN_OR_RETURN(
      ModelGraph model,
      BeginModelGraph(fmt::format("gemma4.draft.{}", draft.tokens), limits, options));
  DraftBuilder(parts, options, model).Build(draft);
  return model;
}

}  // namespace rullama::gemma4
