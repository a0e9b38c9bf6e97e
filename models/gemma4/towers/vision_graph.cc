#include "models/gemma4/towers/vision_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "media/patches.h"
#include "models/gemma4/towers/clipped_tower_builder.h"
#include "models/gemma4/towers/tower_file.h"

namespace rullama::gemma4 {
namespace {

constexpr std::string_view kPatches = "patches";
constexpr std::string_view kPatchX = "patch.x";
constexpr std::string_view kPatchY = "patch.y";
constexpr std::string_view kPatchSlot = "patch.slot";

constexpr float kRopeTheta = 100;
// Queries and keys are normalised per head, which takes the place of 1/sqrt(head_dim).
constexpr float kAttentionScale = 1;
// PyTorch's default, which the LayerNorms of the unified model have.
constexpr float kLayerNormEps = 1e-5F;

class VisionGraph {
 public:
  VisionGraph(const VisionTower& tower, int64_t max_tokens)
      : config_(tower.config), b_("vision", max_tokens, tower.weights, tower.bounds) {
    const Dim rows(0, static_cast<int32_t>(config_.patches_per_token()), 0);
    patches_ = b_.ops().Input(kPatches, {DType::kF32, {rows, config_.patch_values()}});
    x_ = b_.ops().Input(kPatchX, {DType::kI32, {rows}});
    y_ = b_.ops().Input(kPatchY, {DType::kI32, {rows}});
    if (!config_.unified) slot_ = b_.ops().Input(kPatchSlot, {DType::kI32, {rows}});
  }

  Result<TowerGraph> Build() && {
    const ValueId hidden = config_.unified ? EmbedBlocks() : Encode();
    const ValueId normed = b_.Norm(hidden, "", config_.eps, "soft.norm");
    const ValueId soft = b_.ClippedLinear(normed, "mm.input_projection", "soft");
    return std::move(b_).Finish(soft);
  }

 private:
  // x with the vectors of each patch's column and row added.
  ValueId AddPositions(ValueId x, std::string_view name) {
    GraphBuilder& g = b_.ops();
    const auto table = [&](int64_t first) {
      return b_.Matrix("v.position_embd.weight", config_.positions, config_.width, first);
    };
    const ValueId column = g.Add(ops::GatherRows{.table = table(0), .ids = x_}, "embd.column");
    const ValueId row =
        g.Add(ops::GatherRows{.table = table(config_.positions), .ids = y_}, "embd.row");
    return g.Add(ops::Sum(g.Add(ops::Sum(x, column), "embd.with_column"), row), name);
  }

  ValueId LayerNorm(ValueId x, int index, std::string_view name) {
    return b_.LayerNorm(x, fmt::format("v.patch_norm.{}", index), kLayerNormEps, name);
  }

  // The unified model has no encoder.
  ValueId EmbedBlocks() {
    const ValueId pixels = LayerNorm(patches_, 1, "embd.pixels");
    const ValueId dense = b_.ClippedLinear(pixels, "v.patch_embd", "embd.dense");
    const ValueId normed = LayerNorm(dense, 2, "embd.normed");
    return LayerNorm(AddPositions(normed, "embd.positions"), 3, "embd");
  }

  ValueId EmbedPatches() {
    GraphBuilder& g = b_.ops();
    const ValueId centred =
        g.Add(ops::Affine{.x = patches_, .scale = 2, .bias = -1}, "embd.centred");
    const ValueId weight = b_.Matrix("v.patch_embd.weight", config_.width, config_.patch_values());
    return AddPositions(g.Add(ops::Linear(centred, weight), "embd.pixels"), "embd");
  }

  ValueId Heads(ValueId x, const std::string& layer, const std::string& name) {
    const ValueId flat = b_.ClippedLinear(x, layer, name + ".flat");
    return b_.ops().Add(ops::ReshapeTo(flat, {config_.heads, config_.head_dim()}), name + ".heads");
  }

  // Turns one half of each head by the column of its patch and the other by its row.
  ValueId Rotate(ValueId heads, const std::string& name) {
    const auto half = static_cast<int32_t>(config_.head_dim() / 2);
    const auto turn = [&](ValueId x, ValueId position, int32_t first, const std::string& result) {
      return b_.ops().Add(
          ops::Rope{.x = x, .pos = position, .theta = kRopeTheta, .n_rot = half, .first = first},
          result);
    };
    return turn(turn(heads, x_, 0, name + ".column"), y_, half, name);
  }

  ValueId Attention(const std::string& layer, const std::string& name, ValueId hidden) {
    const ValueId x = b_.Norm(hidden, layer + "ln1.weight", config_.eps, name + "attn.norm");
    const auto rotated = [&](const std::string& weight, const std::string& value) {
      const ValueId heads = Heads(x, layer + weight, value);
      return Rotate(b_.Norm(heads, layer + weight + "_norm.weight", config_.eps, value + ".norm"),
                    value);
    };
    const ValueId q = rotated("attn_q", name + "attn.q");
    const ValueId k = rotated("attn_k", name + "attn.k");
    const ValueId v =
        b_.Norm(Heads(x, layer + "attn_v", name + "attn.v"), "", config_.eps, name + "attn.v");
    // Each patch sees all others. Positions play no part in this mask.
    const ValueId mix = b_.ops().Add(ops::Attention{.q = q,
                                                    .k_new = k,
                                                    .v_new = v,
                                                    .q_pos = x_,
                                                    .q_slot = slot_,
                                                    .kv_pos = x_,
                                                    .kv_slot = slot_,
                                                    .mask = RL_MASK_CANVAS,
                                                    .scale = kAttentionScale},
                                     name + "attn.mix");
    const ValueId flat = b_.ops().Add(ops::ReshapeTo(mix, {config_.width}), name + "attn.mix.flat");
    return b_.ops().Add(
        ops::ResidualNorm{.residual = hidden,
                          .x = b_.ClippedLinear(flat, layer + "attn_out", name + "attn.out"),
                          .weight = b_.Weight(layer + "attn_post_norm.weight"),
                          .eps = config_.eps},
        name + "attn.residual");
  }

  ValueId FeedForward(const std::string& layer, const std::string& name, ValueId hidden) {
    GraphBuilder& g = b_.ops();
    const ValueId x = b_.Norm(hidden, layer + "ln2.weight", config_.eps, name + "ffn.norm");
    ValueId glu = kNoValue;
    if (b_.clipped(layer + "ffn_gate") || b_.clipped(layer + "ffn_up")) {
      const ValueId gate = b_.ClippedLinear(x, layer + "ffn_gate", name + "ffn.gate");
      const ValueId up = b_.ClippedLinear(x, layer + "ffn_up", name + "ffn.up");
      glu = g.Add(ops::GeGlu{.gate = gate, .up = up}, name + "ffn.glu");
    } else {
      glu = g.Add(ops::GeGluLinear{.x = x,
                                   .gate_weight = b_.Weight(layer + "ffn_gate.weight"),
                                   .up_weight = b_.Weight(layer + "ffn_up.weight")},
                  name + "ffn.glu");
    }
    return g.Add(
        ops::ResidualNorm{.residual = hidden,
                          .x = b_.ClippedLinear(glu, layer + "ffn_down", name + "ffn.down"),
                          .weight = b_.Weight(layer + "ffn_post_norm.weight"),
                          .scale = b_.OptionalWeight(layer + "out_scale.weight"),
                          .eps = config_.eps},
        name + "out");
  }

  // The means of the patches of each token, scaled and standardised.
  ValueId Pool(ValueId hidden) {
    GraphBuilder& g = b_.ops();
    const ValueId means =
        g.Add(ops::MeanRows{.x = hidden, .group = config_.patches_per_token()}, "pool.means");
    const float scale = std::sqrt(static_cast<float>(config_.width));
    if (!config_.standardize) {
      return g.Add(ops::Affine{.x = means, .scale = scale, .bias = 0}, "pool");
    }
    // -(-x + bias), since there is an op that adds a vector and none that subtracts one.
    const ValueId negated =
        g.Add(ops::Affine{.x = means, .scale = -scale, .bias = 0}, "pool.negated");
    const ValueId shifted =
        g.Add(ops::AddVector{.x = negated, .vector = b_.Weight("v.std_bias")}, "pool.shifted");
    const ValueId centred =
        g.Add(ops::Affine{.x = shifted, .scale = -1, .bias = 0}, "pool.centred");
    return g.Add(ops::Scale{.x = centred, .weight = b_.Weight("v.std_scale")}, "pool");
  }

  ValueId Encode() {
    ValueId hidden = EmbedPatches();
    for (int64_t i = 0; i < config_.layers; ++i) {
      const std::string layer = fmt::format("v.blk.{}.", i);
      const std::string name = fmt::format("blk.{}.", i);
      hidden = FeedForward(layer, name, Attention(layer, name, hidden));
    }
    return Pool(hidden);
  }

  const VisionConfig& config_;
  ClippedTowerBuilder b_;
  ValueId patches_ = kNoValue;
  ValueId x_ = kNoValue;
  ValueId y_ = kNoValue;
  ValueId slot_ = kNoValue;
};

}  // namespace

Result<TowerGraph> BuildVisionGraph(const VisionTower& tower, int64_t max_tokens) {
  return VisionGraph(tower, max_tokens).Build();
}

Result<BlockGrid> FitPicture(const VisionConfig& config, uint32_t width, uint32_t height,
                             uint32_t budget) {
  const auto side = static_cast<uint32_t>(config.patch * config.pool);
  RL_ASSIGN_OR_RETURN(const BlockGrid grid, FitToBudget(width, height, budget, side));
  const int64_t longest = std::max(grid.columns, grid.rows) * config.pool;
  if (longest <= config.positions) return grid;
  return MakeError(ErrorKind::kUsage, "media.shape",
                   "a picture of {} x {} pixels has {} patches in a line, expected at most {}, the "
                   "positions of the tower; cut the picture or choose fewer image tokens",
                   width, height, longest, config.positions);
}

TowerStep PictureInputs(const VisionConfig& config, const Picture& picture) {
  PicturePatches patches =
      CutPatches(picture, static_cast<uint32_t>(config.patch), static_cast<uint32_t>(config.pool));
  TowerStep step{.tokens = static_cast<int64_t>(patches.count()) / config.patches_per_token()};
  if (!config.unified) step.Add(kPatchSlot, std::vector<int32_t>(patches.count(), 0));
  step.Add(kPatches, std::move(patches.values));
  step.Add(kPatchX, std::move(patches.x));
  step.Add(kPatchY, std::move(patches.y));
  return step;
}

}  // namespace rullama::gemma4
