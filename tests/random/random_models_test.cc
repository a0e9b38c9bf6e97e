// Backends against the float64 reference on models that a seed makes up. RULLAMA_RANDOM_SEED=N runs
// model N alone.
#include <gmock/gmock.h>
#include <rullama/sdk/cache_rows.h>

#include <algorithm>
#include <cstdlib>

#include "tests/gpu_backends.h"
#include "tests/random/random_support.h"

namespace rullama::testing {
namespace {

// The same graph on both sides: what differs is f32 against f64, the 16-bit activations of block
// weights, and values next to a rounding edge of an f16 cache, which may fall to either side. Each
// costs its own rounding (6e-8, 2e-5, 5e-4) times what the layers amplify, measured at up to 40.
// A canvas goes through the layers twice, the second time with what the first one expected.
double BoundOf(const RandomModelTraits& traits, CacheTypes types) {
  // A rounding that turns two close scores of a router around gives a token other experts: rare,
  // and as large as an expert's share. It stays within what quantised mixtures are allowed
  // (tests/golden).
  const bool exact = types == DType::kF32 && !traits.quantised;
  if (traits.experts && !exact) return 0.1;
  const double passes = traits.canvas ? 4 : 1;
  if (sdk::IsBlockCacheType(types.values)) return passes * 15e-3;  // steps of q8_0 are larger
  if (types != DType::kF32) return passes * 4e-3;
  return passes * (traits.quantised ? 1e-3 : 1e-5);
}

// Two of six seeds have a cache in f32, two in f16 and two in blocks. Models whose heads are not
// whole blocks have f16 instead, and so do models with experts, since a value next to a rounding
// edge may choose another expert. No seed has q4_0, where such a value costs as much as a mistake
// would.
CacheTypes CacheTypesOf(uint64_t seed, const Gemma4Config& config) {
  const uint64_t choice = seed % 6;
  if (choice < 2) return DType::kF32;
  const bool whole = std::ranges::all_of(config.layers, [](const Gemma4Layer& layer) {
    return layer.head_dim % static_cast<int64_t>(sdk::kCacheBlock) == 0;
  });
  if (choice < 4 || !whole || DrawTraits(seed).experts) return DType::kF16;
  return choice == 4 ? CacheTypes(DType::kQ8_0) : CacheTypes(DType::kF16, DType::kQ8_0);
}

int64_t TokenCount(const RandomModel& model) {
  // Past the end of the rings, so that they wrap.
  return 2 * model.config.sliding_window + 3;
}

class RandomModels : public ::testing::Test {
 protected:
  void Check(uint64_t seed, Device& tested) {
    const RandomModel model = MakeRandomModel(seed);
    SCOPED_TRACE(model.Describe());
    const auto tokens = RandomTokens(seed, TokenCount(model), model.config.vocabulary);
    const auto count = static_cast<int64_t>(tokens.size());
    // The reference in one step, the backend in chunks of an odd size: caches and rings are in
    // play.
    const int64_t chunk = 1 + static_cast<int64_t>(seed % 7);
    const CacheTypes types = CacheTypesOf(seed, model.config);
    const auto logits = [&](Device& device, int64_t rows) {
      if (!model.config.denoises()) return Logits(model, device, tokens, rows, types);
      const auto canvas =
          RandomTokens(seed + 1, model.config.canvas.length, model.config.vocabulary);
      return CanvasLogits(model, device, tokens, canvas, rows, types);
    };
    const auto expected = logits(*reference_, count);
    const auto actual = logits(tested, chunk);
    ASSERT_FALSE(expected.empty());
    EXPECT_LE(RelativeL2(actual, expected), BoundOf(DrawTraits(seed), types))
        << "again: RULLAMA_RANDOM_SEED=" << seed << ", chunks of " << chunk;
  }

  // The first of them, or the one of RULLAMA_RANDOM_SEED.
  void CheckFirst(uint64_t models, Device& device) {
    if (const char* seed = std::getenv("RULLAMA_RANDOM_SEED")) {
      Check(std::strtoull(seed, nullptr, 10), device);
      return;
    }
    for (uint64_t seed = 0; seed < models && !HasFailure(); ++seed) Check(seed, device);
  }

  Backends backends_;
  std::unique_ptr<Device> cpu_ = backends_.Open("cpu");
  std::unique_ptr<Device> reference_ = backends_.Open("reference");
};

// RULLAMA_RANDOM_MODELS asks for more or fewer than usual.
uint64_t ModelsOr(uint64_t usual) {
  const char* models = std::getenv("RULLAMA_RANDOM_MODELS");
  return models == nullptr ? usual : std::strtoull(models, nullptr, 10);
}

TEST_F(RandomModels, CpuAgreesWithTheReference) { CheckFirst(ModelsOr(200), *cpu_); }

class RandomModelsOnGpus : public RandomModels,
                           public ::testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Gpus, RandomModelsOnGpus, ::testing::ValuesIn(GpuBackendNames()),
                         kBackendName);

// Drivers in software compile kernels of their own for each model's shapes: few by default.
TEST_P(RandomModelsOnGpus, AgreeWithTheReference) {
  CheckFirst(ModelsOr(12), *backends_.Open(GetParam()));
}

TEST_F(RandomModels, TheSeedIsEverything) {
  const auto tokens = RandomTokens(1, 9, 64);
  const RandomModel first = MakeRandomModel(21), again = MakeRandomModel(21),
                    other = MakeRandomModel(53);
  EXPECT_EQ(first.config, again.config);
  EXPECT_EQ(Logits(first, *cpu_, tokens, 9), Logits(again, *cpu_, tokens, 9));
  EXPECT_NE(Logits(first, *cpu_, tokens, 9), Logits(other, *cpu_, tokens, 9));
}

// Layers s, s, s, g, s with caches of their own and s, s, g that share: the donors are 4, 4 and 3,
// the last of each kind. A rule that counts back from the first sharer would take the global layer
// for the sliding ones, and one that takes "the last but one" layer 2 or 3.
Gemma4Config OddDonors() {
  Gemma4Config c = MakeRandomModel(3, {.shared_kv = true}).config;
  c.sliding_window = 5;
  Gemma4Layer layer = c.layers[0];
  layer.head_dim = c.n_rot_sliding = c.n_rot_global = 32;
  layer.kv_heads = 1;
  c.rope_factors = MakeRopeFactors(16, kGemma4RotaryFraction);
  c.layers.clear();
  for (const char kind : std::string("sssgsssg")) {
    layer.kind = kind == 'g' ? LayerKind::kGlobal : LayerKind::kSliding;
    layer.cache_layer = std::ssize(c.layers);
    c.layers.push_back(layer);
  }
  EXPECT_TRUE(AssignDonors(c.layers, 3));
  return c;
}

TEST_F(RandomModels, OddDonorsAreRight) {
  const Gemma4Config config = OddDonors();
  EXPECT_EQ(config.layer(5).cache_layer, 4);
  EXPECT_EQ(config.layer(6).cache_layer, 4);
  EXPECT_EQ(config.layer(7).cache_layer, 3);
  const RandomModelTraits traits{.shared_kv = true};
  const auto tokens = RandomTokens(5, 17, config.vocabulary);
  const RandomModel model = MakeRandomModel(3, traits, config);
  const auto expected = Logits(model, *reference_, tokens, 17);
  constexpr double kBound = 1e-5;  // floats throughout
  EXPECT_LE(RelativeL2(Logits(model, *cpu_, tokens, 4), expected), kBound);

  // Other donors give other logits: the comparison sees what it is there to see.
  Gemma4Config wrong = config;
  wrong.layers[5].cache_layer = wrong.layers[6].cache_layer = 2;
  const RandomModel other = MakeRandomModel(3, traits, wrong);
  EXPECT_GT(RelativeL2(Logits(other, *cpu_, tokens, 4), expected), 1000 * kBound);
}

TEST(RandomModel, EveryTraitComesUp) {
  int shared = 0, per_layer = 0, k_eq_v = 0, quantised = 0;
  for (uint64_t seed = 0; seed < 64; ++seed) {
    const RandomModel model = MakeRandomModel(seed);
    const Gemma4Config& c = model.config;
    EXPECT_TRUE(ValidateConfig(c)) << model.Describe();
    shared += c.OwnsCache(c.layer_count() - 1) ? 0 : 1;
    per_layer += c.ple_dim > 0 ? 1 : 0;
    k_eq_v += c.layer(1).k_eq_v ? 1 : 0;
    quantised += IsBlockType(model.weights.Find("blk.0.attn_q.weight")->dtype) ? 1 : 0;
  }
  for (const int count : {shared, per_layer, k_eq_v}) EXPECT_EQ(count, 32);
  EXPECT_GT(quantised, 16);
}

}  // namespace
}  // namespace rullama::testing
