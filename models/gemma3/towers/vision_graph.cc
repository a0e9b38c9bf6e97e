#include "models/gemma3/towers/vision_graph.h"

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "media/patches.h"
#include "models/common/towers/tower_builder.h"

namespace rullama::gemma3 {
namespace {

constexpr std::string_view kPatches = "patches";
constexpr std::string_view kPatchPlace = "patch";
constexpr std::string_view kPatchSlot = "patch.slot";

class VisionGraph {
 public:
  VisionGraph(const VisionTower& tower, int64_t max_tokens)
      : config_(tower.config), b_("vision", max_tokens, tower.weights) {
    const Dim rows(0, static_cast<int32_t>(config_.patches_per_token()), 0);
    patches_ = b_.ops().Input(kPatches, {DType::kF32, {rows, config_.patch_values()}});
    place_ = b_.ops().Input(kPatchPlace, {DType::kI32, {rows}});
    slot_ = b_.ops().Input(kPatchSlot, {DType::kI32, {rows}});
  }

  Result<TowerGraph> Build() && {
    ValueId hidden = Embed();
    for (int64_t i = 0; i < config_.layers; ++i) {
      const std::string layer = fmt::format("v.blk.{}.", i);
      const std::string name = fmt::format("blk.{}.", i);
      hidden = FeedForward(layer, name, Attention(layer, name, hidden));
    }
    const ValueId normed = b_.LayerNorm(hidden, "v.post_ln", config_.eps, "encoder.norm");
    const ValueId means = b_.ops().Add(
        ops::MeanRows{.x = normed, .group = config_.patches_per_token()}, "pool.means");
    const ValueId x = b_.Norm(means, "mm.soft_emb_norm.weight", config_.eps, "soft.norm");
    const ValueId soft = b_.ops().Add(
        ops::MatMul{
            .x = x, .weight = b_.Weight("mm.input_projection.weight"), .transpose_weight = 0},
        kSoftTokens);
    return std::move(b_).Finish(soft);
  }

 private:
  ValueId Embed() {
    GraphBuilder& g = b_.ops();
    const ValueId centred =
        g.Add(ops::Affine{.x = patches_, .scale = 2, .bias = -1}, "embd.centred");
    const ValueId weight = b_.Matrix("v.patch_embd.weight", config_.width, config_.patch_values());
    const ValueId product = g.Add(ops::Linear(centred, weight), "embd.product");
    const ValueId pixels = g.Add(
        ops::AddVector{.x = product, .vector = b_.Weight("v.patch_embd.bias")}, "embd.pixels");
    const ValueId positions = g.Add(
        ops::GatherRows{.table = b_.Weight("v.position_embd.weight"), .ids = place_}, "embd.place");
    return g.Add(ops::Sum(pixels, positions), "embd");
  }

  ValueId Heads(ValueId x, const std::string& layer, const std::string& name) {
    const ValueId flat = b_.Linear(x, layer, name + ".flat");
    return b_.ops().Add(ops::ReshapeTo(flat, {config_.heads, config_.head_dim()}), name);
  }

  ValueId Attention(const std::string& layer, const std::string& name, ValueId hidden) {
    const ValueId x = b_.LayerNorm(hidden, layer + "ln1", config_.eps, name + "attn.norm");
    // Each patch sees all others. Positions play no part in this mask.
    const ValueId mix =
        b_.ops().Add(ops::Attention{.q = Heads(x, layer + "attn_q", name + "attn.q"),
                                    .k_new = Heads(x, layer + "attn_k", name + "attn.k"),
                                    .v_new = Heads(x, layer + "attn_v", name + "attn.v"),
                                    .q_pos = place_,
                                    .q_slot = slot_,
                                    .kv_pos = place_,
                                    .kv_slot = slot_,
                                    .mask = RL_MASK_CANVAS,
                                    .scale = 1 / std::sqrt(static_cast<float>(config_.head_dim()))},
                     name + "attn.mix");
    const ValueId flat = b_.ops().Add(ops::ReshapeTo(mix, {config_.width}), name + "attn.mix.flat");
    const ValueId out = b_.Linear(flat, layer + "attn_out", name + "attn.out");
    return b_.ops().Add(ops::Sum(hidden, out), name + "attn.residual");
  }

  ValueId FeedForward(const std::string& layer, const std::string& name, ValueId hidden) {
    const ValueId x = b_.LayerNorm(hidden, layer + "ln2", config_.eps, name + "ffn.norm");
    const ValueId up = b_.Linear(x, layer + "ffn_up", name + "ffn.up");
    const ValueId active =
        b_.ops().Add(ops::Unary{.x = up, .fn = RL_UNARY_GELU_TANH}, name + "ffn.active");
    const ValueId down = b_.Linear(active, layer + "ffn_down", name + "ffn.down");
    return b_.ops().Add(ops::Sum(hidden, down), name + "out");
  }

  const VisionConfig& config_;
  TowerBuilder b_;
  ValueId patches_ = kNoValue;
  ValueId place_ = kNoValue;
  ValueId slot_ = kNoValue;
};

}  // namespace

Result<TowerGraph> BuildVisionGraph(const VisionTower& tower, int64_t max_tokens) {
  return VisionGraph(tower, max_tokens).Build();
}

TowerStep PictureInputs(const VisionConfig& config, const Picture& picture) {
  PicturePatches patches =
      CutPatches(picture, static_cast<uint32_t>(config.patch), static_cast<uint32_t>(config.pool));
  std::vector<int32_t> places;
  places.reserve(patches.count());
  for (size_t i = 0; i < patches.count(); ++i) {
    places.push_back(patches.y[i] * static_cast<int32_t>(config.patches_in_line()) + patches.x[i]);
  }
  TowerStep step{.tokens = config.tokens()};
  step.Add(kPatchSlot, std::vector<int32_t>(patches.count(), 0));
  step.Add(kPatches, std::move(patches.values));
  step.Add(kPatchPlace, std::move(places));
  return step;
}

}  // namespace rullama::gemma3
