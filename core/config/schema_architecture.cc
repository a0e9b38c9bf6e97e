#include "core/config/schema.h"

namespace rullama {
namespace {

// Limits of the shapes a file may ask for: far above every published size, small enough that
// products of three of them stay inside 64 bits.
constexpr int64_t kMaxLayers = 1024;
constexpr int64_t kMaxHeads = 1024;
constexpr int64_t kMaxHeadDim = 4096;
constexpr int64_t kMaxWidth = 65536;
constexpr int64_t kMaxFfnWidth = 1 << 20;
constexpr double kMaxRopeBase = 1e12;
constexpr double kMinRmsEps = 1e-12;
constexpr double kMaxRmsEps = 0.1;
constexpr double kMaxSoftcap = 1e6;

constexpr std::string_view kFromFile = "not checked";

PairCodec<SlidingGlobal> PerKind(int64_t max) {
  return {{1, max}, "sliding", &SlidingGlobal::sliding, "global", &SlidingGlobal::global};
}

BlockSpec RopeSchema() {
  return BlockBuilder<&Config::architecture, &ArchitectureConfig::rope>(
             "architecture.rope", "Rotary position embedding.")
      .Field("base_global", &RopeConfig::base_global, RealCodec{1, kMaxRopeBase},
             "Frequency base on global layers.", "1000000 in `rullama synth`")
      .Field("base_sliding", &RopeConfig::base_sliding, RealCodec{1, kMaxRopeBase},
             "Frequency base on sliding layers.", "10000 in `rullama synth`")
      .Field("rotary_fraction_global", &RopeConfig::rotary_fraction_global, RealCodec{0, 1},
             "Part of a global head's pairs of dims that rotates.", "0.25 in `rullama synth`")
      .Build();
}

BlockSpec ExpertsSchema() {
  constexpr int64_t kMaxExperts = 65536;
  return BlockBuilder<&Config::architecture, &ArchitectureConfig::experts>(
             "architecture.experts", "Mixture of experts, in addition to the feed-forward block.")
      .Field("count", &ExpertsConfig::count, IntegerCodec{0, kMaxExperts},
             "Experts of each layer; 0 means none.", kFromFile)
      .Field("used", &ExpertsConfig::used, IntegerCodec{0, kMaxExperts},
             "Experts that each token uses.", kFromFile)
      .Field("ffn", &ExpertsConfig::ffn, IntegerCodec{0, kMaxFfnWidth}, "Width of each expert.",
             kFromFile)
      .Build();
}

constexpr std::string_view kNone = "none";
constexpr std::string_view kNo = "false in `rullama synth`";

BlockSpec VisionSchema() {
  constexpr int64_t kMaxPatch = 64;
  constexpr int64_t kMaxPool = 8;
  return BlockBuilder<&Config::architecture, &ArchitectureConfig::vision>(
             "architecture.vision",
             "The tower for pictures, as `rullama synth --mmproj-out` builds it. A file of towers "
             "brings its own shapes and is not checked against these.")
      .Field("layers", &VisionArchitecture::layers, IntegerCodec{0, kMaxLayers},
             "Layers of the encoder; 0 projects the pixels of a soft token and no more.", kNone)
      .Field("width", &VisionArchitecture::width, IntegerCodec{1, kMaxWidth},
             "Width of the residual stream.", kNone)
      .Field("heads", &VisionArchitecture::heads, IntegerCodec{1, kMaxHeads},
             "Attention heads of each layer.", kNone)
      .Field("ffn", &VisionArchitecture::ffn, IntegerCodec{1, kMaxFfnWidth},
             "Width of the feed-forward block.", kNone)
      .Field("patch", &VisionArchitecture::patch, IntegerCodec{1, kMaxPatch},
             "Side of a patch in pixels.", "16 in `rullama synth`")
      .Field("pool", &VisionArchitecture::pool, IntegerCodec{1, kMaxPool},
             "Patches on each side of the square that becomes one soft token.",
             "3 in `rullama synth`")
      .Field("positions", &VisionArchitecture::positions, IntegerCodec{1, kMaxConfiguredTokens},
             "Columns, and rows, of patches that have a position.", "10240 in `rullama synth`")
      .Field("standardize", &VisionArchitecture::standardize, BoolCodec{},
             "The pooled values are shifted and scaled.", kNo)
      .Field("clipped", &VisionArchitecture::clipped, BoolCodec{},
             "Linear layers have bounds of their inputs and outputs.", kNo)
      .Build();
}

BlockSpec AudioSchema() {
  constexpr int64_t kMaxChannels = 4096;
  constexpr int64_t kMaxKernel = 31;
  return BlockBuilder<&Config::architecture, &ArchitectureConfig::audio>(
             "architecture.audio",
             "The tower for sound, as `rullama synth --mmproj-out` builds it. A file of towers "
             "brings its own shapes and is not checked against these.")
      .Field("layers", &AudioArchitecture::layers, IntegerCodec{0, kMaxLayers},
             "Layers of the conformer; 0 projects the samples of a soft token and no more.", kNone)
      .Field("width", &AudioArchitecture::width, IntegerCodec{1, kMaxWidth},
             "Width of the residual stream.", kNone)
      .Field("heads", &AudioArchitecture::heads, IntegerCodec{1, kMaxHeads},
             "Attention heads of each layer.", kNone)
      .Field("ffn", &AudioArchitecture::ffn, IntegerCodec{1, kMaxFfnWidth},
             "Width of the feed-forward blocks.", kNone)
      .Field("output", &AudioArchitecture::output, IntegerCodec{1, kMaxWidth},
             "Width before the projector.", "1536 in `rullama synth`")
      .Field("conv_channels", &AudioArchitecture::conv_channels,
             PairCodec<FirstSecond>{
                 {1, kMaxChannels}, "first", &FirstSecond::first, "second", &FirstSecond::second},
             "Channels of the two convolutions that shorten the sound.",
             "{first: 128, second: 32} in `rullama synth`")
      .Field("kernel", &AudioArchitecture::kernel, IntegerCodec{1, kMaxKernel},
             "Rows that the convolution of a layer sees.", "5 in `rullama synth`")
      .Field("clipped", &AudioArchitecture::clipped, BoolCodec{},
             "Linear layers have bounds of their inputs and outputs.", kNo)
      .Build();
}

}  // namespace

BlockSpec ArchitectureSchema() {
  return BlockBuilder<&Config::architecture>(
             "architecture",
             "Shapes of the network. A model file brings its own, so this block is not needed to "
             "run one; values given here are checked against the file. `rullama synth` builds a "
             "model of these shapes.")
      .Field("family", &ArchitectureConfig::family, NameCodec{},
             "The family member: what a file has as `general.architecture`.", kFromFile)
      .Field("layers", &ArchitectureConfig::layers, IntegerCodec{1, kMaxLayers},
             "Transformer layers.", kFromFile)
      .Field("width", &ArchitectureConfig::width, IntegerCodec{1, kMaxWidth},
             "Width of the residual stream.", kFromFile)
      .Field("heads", &ArchitectureConfig::heads, IntegerCodec{1, kMaxHeads},
             "Query heads of each layer.", kFromFile)
      .Field("kv_heads", &ArchitectureConfig::kv_heads, PerKind(kMaxHeads),
             "Key/value heads of sliding and of global layers; each divides `heads`.", kFromFile)
      .Field("head_dim", &ArchitectureConfig::head_dim, PerKind(kMaxHeadDim),
             "Dims of one head on sliding and on global layers; even.", kFromFile)
      .Field("ffn", &ArchitectureConfig::ffn,
             PairCodec<OwnedShared>{
                 {1, kMaxFfnWidth}, "owned", &OwnedShared::owned, "shared", &OwnedShared::shared},
             "Width of the feed-forward block, on layers that own their KV cache and on those "
             "that share one (double-wide on E2B).",
             kFromFile)
      .Field("sliding_window", &ArchitectureConfig::sliding_window,
             IntegerCodec{1, kMaxConfiguredTokens},
             "Tokens a sliding layer looks back, itself included.", kFromFile)
      .Field("pattern", &ArchitectureConfig::pattern, IntegerCodec{1, kMaxLayers},
             "Period of the layer kinds: 5 means 4 sliding layers, then a global one. The last "
             "layer of some families is always global.",
             kFromFile)
      .Field("shared_kv_layers", &ArchitectureConfig::shared_kv_layers,
             IntegerCodec{0, kMaxLayers - 1},
             "Trailing layers that read the KV cache of an earlier layer of their kind.", kFromFile)
      .Field("ple_dim", &ArchitectureConfig::ple_dim, IntegerCodec{0, kMaxWidth},
             "Width of the per-layer embeddings; 0 means none.", kFromFile)
      .Field("k_eq_v", &ArchitectureConfig::k_eq_v, BoolCodec{},
             "Global layers have no V projection and use K.", kFromFile)
      .Field("vocabulary", &ArchitectureConfig::vocabulary, IntegerCodec{1, kMaxVocabulary},
             "Tokens in the vocabulary.", kFromFile)
      .Field("context_length", &ArchitectureConfig::context_length,
             IntegerCodec{1, kMaxConfiguredTokens}, "Longest context the model was trained for.",
             kFromFile)
      .Field("canvas_length", &ArchitectureConfig::canvas_length,
             IntegerCodec{0, kMaxConfiguredTokens},
             "Tokens that a DiffusionGemma denoises together; 0 means none.", kFromFile)
      .Field("rms_eps", &ArchitectureConfig::rms_eps, RealCodec{kMinRmsEps, kMaxRmsEps},
             "Added to the mean square in RMSNorm.", "0.000001 in `rullama synth`")
      .Field("final_softcap", &ArchitectureConfig::final_softcap, RealCodec{0, kMaxSoftcap},
             "Soft cap of the logits; 0 means none.", "30 in `rullama synth`")
      .Nested(ExpertsSchema())
      .Nested(RopeSchema())
      .Nested(VisionSchema())
      .Nested(AudioSchema())
      .Build();
}

}  // namespace rullama
