#include "models/gemma4/towers/audio_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <string>
#include <string_view>
#include <utility>

#include "core/ir/builder.h"
#include "media/log_mel.h"
#include "media/sound.h"
#include "models/gemma4/towers/clipped_tower_builder.h"
#include "models/gemma4/towers/tower_file.h"

namespace rullama::gemma4 {
namespace {

constexpr std::string_view kFrames = "frames";
constexpr std::string_view kValid = "valid";

constexpr int64_t kConvKernel = 3;
constexpr int64_t kConvStride = 2;
constexpr int64_t kFramesOfToken = kConvStride * kConvStride;
constexpr float kScoreCap = 50;
constexpr float kHalfStep = 0.5F;  // what a feed-forward adds to the residual stream

// Sines and cosines of the distances 0 to kAttentionWindow - 1: [kAttentionWindow, width], one half
// of each.
std::vector<float> DistanceTable(int64_t width) {
  constexpr double kLongest = 10'000;
  const int64_t half = width / 2;
  std::vector<float> table(static_cast<size_t>(kAttentionWindow * width));
  for (int64_t distance = 0; distance < kAttentionWindow; ++distance) {
    for (int64_t i = 0; i < half; ++i) {
      const double rate =
          std::pow(kLongest, -static_cast<double>(i) / static_cast<double>(half - 1));
      const double angle = static_cast<double>(distance) * rate;
      const auto at = static_cast<size_t>(distance * width + i);
      table[at] = static_cast<float>(std::sin(angle));
      table[at + static_cast<size_t>(half)] = static_cast<float>(std::cos(angle));
    }
  }
  return table;
}

class AudioGraphBuilder {
 public:
  AudioGraphBuilder(const AudioTower& tower, int64_t max_tokens)
      : config_(tower.config),
        tower_("audio", max_tokens, tower.weights, tower.bounds),
        b_(tower_.ops()) {}

  Result<TowerGraph> Build() && {
    const ValueId hidden = config_.unified ? RawFrames() : Encode();
    const ValueId normed = Norm(hidden, "", "soft.norm");
    return std::move(tower_).Finish(
        b_.Add(ops::Linear(normed, Weight(kAudioProjector)), kSoftTokens));
  }

 private:
  ValueId Weight(std::string_view name) { return tower_.Weight(name); }

  ValueId Norm(ValueId x, std::string_view weight, std::string_view name) {
    return tower_.Norm(x, weight, config_.eps, name);
  }

  ValueId Linear(ValueId x, const std::string& layer, const std::string& name) {
    return tower_.ClippedLinear(x, layer, name);
  }

  ValueId RawFrames() { return b_.Input(kFrames, {DType::kF32, {Dim::T(), config_.inputs}}); }

  // A convolution that halves rows and columns, its norm and ReLU. x: f32[2 n, 2 columns, channels
  // in]; the result: f32[n, columns * channels out], with the channels of a column side by side.
  ValueId HalvingConvolution(ValueId x, size_t index, int64_t columns, int64_t channels_in) {
    const std::string layer = fmt::format("a.conv1d.{}.", index);
    const std::string name = fmt::format("conv.{}.", index);
    const int64_t channels = config_.conv_channels[index];
    const ValueId patches =
        b_.Add(ops::Im2Col{.x = x, .kernel = kConvKernel, .stride = kConvStride}, name + "patches");
    const ValueId weight =
        tower_.Matrix(layer + "weight", channels, channels_in * kConvKernel * kConvKernel);
    const ValueId product = b_.Add(ops::Linear(patches, weight), name + "product");
    const ValueId normed = b_.Add(
        ops::LayerNorm{.x = product, .weight = Weight(layer + "norm.weight"), .eps = config_.eps},
        name + "norm");
    const ValueId positive =
        b_.Add(ops::Clamp{.x = normed, .lo = 0, .hi = std::numeric_limits<float>::infinity()},
               name + "relu");
    return b_.Add(ops::FoldRows{.x = positive, .group = columns}, name + "out");
  }

  ValueId Embed() {
    const int64_t half = config_.inputs / kConvStride;
    const int64_t channels = config_.conv_channels[0];
    const ValueId frames =
        b_.Input(kFrames, {DType::kF32, {Dim(0, kFramesOfToken, 0), config_.inputs}});
    const ValueId valid =
        b_.Input(kValid, {DType::kF32, {Dim(0, static_cast<int32_t>(kConvStride), 0), 1}});
    const ValueId picture = b_.Add(ops::ReshapeTo(frames, {config_.inputs, 1}), "frames.picture");
    const ValueId halved = HalvingConvolution(picture, 0, half, 1);
    // The second convolution sees zeros after the sound, as at its other borders.
    const ValueId masked = b_.Add(ops::Product(halved, valid), "conv.0.masked");
    const ValueId shaped = b_.Add(ops::ReshapeTo(masked, {half, channels}), "conv.0.shaped");
    const ValueId features = HalvingConvolution(shaped, 1, half / kConvStride, channels);
    return b_.Add(ops::Linear(features, Weight("a.input_projection.weight")), "embd");
  }

  // h + rms(lin_down(silu(lin_up(rms(h)))), post_norm) / 2. `suffix`: "" or "_1".
  ValueId FeedForward(const std::string& layer, const std::string& name, const std::string& suffix,
                      ValueId hidden) {
    const std::string part = name + "ffn" + suffix;
    const ValueId x = Norm(hidden, layer + "ffn_norm" + suffix + ".weight", part + ".norm");
    const ValueId up = Linear(x, layer + "ffn_up" + suffix, part + ".up");
    const ValueId active = b_.Add(ops::Unary{.x = up, .fn = RL_UNARY_SILU}, part + ".silu");
    const ValueId down = Linear(active, layer + "ffn_down" + suffix, part + ".down");
    const ValueId normed =
        Norm(down, layer + "ffn_post_norm" + suffix + ".weight", part + ".post_norm");
    const ValueId half =
        b_.Add(ops::Affine{.x = normed, .scale = kHalfStep, .bias = 0}, part + ".half");
    return b_.Add(ops::Sum(hidden, half), part + ".residual");
  }

  ValueId Heads(ValueId x, const std::string& name) {
    return b_.Add(ops::ReshapeTo(x, {config_.heads, config_.head_dim()}), name + ".heads");
  }

  // The keys of the distances: f32[kAttentionWindow, heads, head dim].
  ValueId DistanceKeys(const std::string& layer, const std::string& name) {
    const ValueId keys =
        b_.Add(ops::Linear(Distances(), Weight(layer + "attn_k_rel.weight")), name + ".product");
    return Heads(keys, name);
  }

  ValueId Distances() {
    if (distances_ == kNoValue) {
      distances_ = tower_.Computed("distances", {DType::kF32, {kAttentionWindow, config_.width}},
                                   DistanceTable(config_.width));
    }
    return distances_;
  }

  ValueId Attention(const std::string& layer, const std::string& name, ValueId hidden) {
    const ValueId x = Norm(hidden, layer + "attn_pre_norm.weight", name + "attn.norm");
    const auto heads = [&](const std::string& weight, const std::string& value) {
      return Heads(Linear(x, layer + weight, value + ".linear"), value);
    };
    const float q_scale =
        1 / (std::sqrt(static_cast<float>(config_.head_dim())) * std::numbers::ln2_v<float>);
    const float k_scale = std::log1p(std::numbers::e_v<float>) / std::numbers::ln2_v<float>;
    // The file has the softplus of the checkpoint's scales.
    const ValueId per_dim = b_.Add(ops::Scale{.x = heads("attn_q", name + "attn.q"),
                                              .weight = Weight(layer + "per_dim_scale.weight")},
                                   name + "attn.q.per_dim");
    const ValueId q =
        b_.Add(ops::Affine{.x = per_dim, .scale = q_scale, .bias = 0}, name + "attn.q");
    const ValueId k =
        b_.Add(ops::Affine{.x = heads("attn_k", name + "attn.k"), .scale = k_scale, .bias = 0},
               name + "attn.k");
    const ValueId mix = b_.Add(ops::LocalAttention{.q = q,
                                                   .k = k,
                                                   .v = heads("attn_v", name + "attn.v"),
                                                   .rel = DistanceKeys(layer, name + "attn.rel"),
                                                   .cap = kScoreCap},
                               name + "attn.mix");
    const ValueId flat = b_.Add(ops::ReshapeTo(mix, {config_.width}), name + "attn.mix.flat");
    const ValueId out = Linear(flat, layer + "attn_out", name + "attn.out");
    return b_.Add(ops::ResidualNorm{.residual = hidden,
                                    .x = out,
                                    .weight = Weight(layer + "attn_post_norm.weight"),
                                    .eps = config_.eps},
                  name + "attn.residual");
  }

  // One half of x, gated by the other.
  ValueId GatedHalf(ValueId x, const std::string& name) {
    const auto half = [&](int64_t start, std::string_view part) {
      return b_.Add(ops::Slice{.x = x, .axis = 1, .start = start, .size = config_.width},
                    name + std::string(part));
    };
    const ValueId gate = b_.Add(
        ops::Unary{.x = half(config_.width, ".gate"), .fn = RL_UNARY_SIGMOID}, name + ".sigmoid");
    return b_.Add(ops::Product(half(0, ".value"), gate), name + ".glu");
  }

  // The weight of the causal convolution as f32, the only type that the op takes.
  ValueId Kernel(const std::string& layer, const std::string& name) {
    const ValueId weight = Weight(layer + "conv_dw.weight");
    if (b_.graph().type(weight).dtype == DType::kF32) return weight;
    return b_.Add(ops::Cast{.x = weight, .dtype = DType::kF32}, name + ".kernel");
  }

  ValueId Convolution(const std::string& layer, const std::string& name, ValueId hidden) {
    const std::string part = name + "conv";
    const ValueId x = Norm(hidden, layer + "conv_norm.weight", part + ".norm");
    const ValueId gated = GatedHalf(Linear(x, layer + "conv_pw1", part + ".pw1"), part);
    const ValueId mixed =
        b_.Add(ops::CausalConv1d{.x = gated, .weight = Kernel(layer, part)}, part + ".dw");
    const ValueId normed = Norm(mixed, layer + "norm_conv.weight", part + ".dw.norm");
    const ValueId active = b_.Add(ops::Unary{.x = normed, .fn = RL_UNARY_SILU}, part + ".silu");
    return b_.Add(ops::Sum(hidden, Linear(active, layer + "conv_pw2", part + ".pw2")),
                  part + ".residual");
  }

  ValueId Encode() {
    ValueId hidden = Embed();
    for (int64_t i = 0; i < config_.layers; ++i) {
      const std::string layer = fmt::format("a.blk.{}.", i);
      const std::string name = fmt::format("blk.{}.", i);
      hidden = FeedForward(layer, name, "", hidden);
      hidden = Attention(layer, name, hidden);
      hidden = Convolution(layer, name, hidden);
      hidden = FeedForward(layer, name, "_1", hidden);
      hidden = Norm(hidden, layer + "ln2.weight", name + "out");
    }
    const ValueId out =
        b_.Add(ops::Linear(hidden, Weight("a.pre_encode.out.weight")), "out.product");
    return b_.Add(ops::AddVector{.x = out, .vector = Weight("a.pre_encode.out.bias")}, "out");
  }

  const AudioConfig& config_;
  ClippedTowerBuilder tower_;
  GraphBuilder& b_;  // of tower_
  ValueId distances_ = kNoValue;
};

int64_t HalfOf(int64_t frames) { return (frames + 1) / kConvStride; }

}  // namespace

Result<TowerGraph> BuildAudioGraph(const AudioTower& tower, int64_t max_tokens) {
  return AudioGraphBuilder(tower, max_tokens).Build();
}

int64_t AudioTokens(const AudioConfig& config, size_t samples) {
  if (samples < kMinSoundSamples) return 0;
  if (config.unified) return static_cast<int64_t>((samples + kSoundFrame - 1) / kSoundFrame);
  return HalfOf(HalfOf(static_cast<int64_t>(MelFrames(samples))));
}

TowerStep MelInputs(const AudioConfig& config, std::span<const float> mel) {
  const int64_t count = static_cast<int64_t>(mel.size()) / config.inputs;
  TowerStep step{.tokens = HalfOf(HalfOf(count))};
  std::vector<float> frames(mel.begin(), mel.end());
  frames.resize(static_cast<size_t>(kFramesOfToken * step.tokens * config.inputs), 0);
  std::vector<float> valid(static_cast<size_t>(kConvStride * step.tokens), 0);
  std::fill_n(valid.begin(), HalfOf(count), 1.0F);
  step.Add(kFrames, std::move(frames));
  step.Add(kValid, std::move(valid));
  return step;
}

TowerStep SoundInputs(const AudioConfig& config, std::span<const float> samples) {
  if (!config.unified) return MelInputs(config, LogMel(samples));
  TowerStep step{.tokens = AudioTokens(config, samples.size())};
  step.Add(kFrames, SoundFrames(samples));
  return step;
}

}  // namespace rullama::gemma4
