#include "models/gemma4/graph/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "models/gemma4/graph/gemma4_test_file.h"

namespace rullama {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr LayerKind kS = LayerKind::kSliding;
constexpr LayerKind kG = LayerKind::kGlobal;

Result<Gemma4Config> Parse(Gemma4TestFile source) {
  const auto bytes = source.Bytes();
  RL_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Parse(bytes));
  return Gemma4Config::FromFile(file);
}

Gemma4Config Small() {
  auto config = Parse(Gemma4TestFile::Small());
  EXPECT_TRUE(config) << config.error().ToString();
  return *std::move(config);
}

std::vector<Gemma4Layer> Layers(const std::vector<LayerKind>& kinds) {
  std::vector<Gemma4Layer> layers(kinds.size());
  for (size_t i = 0; i < kinds.size(); ++i) layers[i].kind = kinds[i];
  return layers;
}

std::vector<int64_t> CacheLayers(const std::vector<Gemma4Layer>& layers) {
  std::vector<int64_t> caches;
  for (const Gemma4Layer& layer : layers) caches.push_back(layer.cache_layer);
  return caches;
}

// ---- donors -------------------------------------------------------------------------------------

TEST(AssignDonorsTest, LastOwnLayerOfTheSameKindWins) {
  // The global layer is not the last of the owners; otherwise "the last owner" and "the one before
  // it" would both be sliding.
  auto layers = Layers({kS, kS, kS, kG, kS, kS, kS, kG});
  ASSERT_TRUE(AssignDonors(layers, 3));
  EXPECT_THAT(CacheLayers(layers), ElementsAre(0, 1, 2, 3, 4, 4, 4, 3));
}

TEST(AssignDonorsTest, NoSharing) {
  auto layers = Layers({kS, kG});
  ASSERT_TRUE(AssignDonors(layers, 0));
  EXPECT_THAT(CacheLayers(layers), ElementsAre(0, 1));
}

TEST(AssignDonorsTest, ImpossibleSharingIsRefused) {
  for (const int64_t shared : {2, 3, 1000, -1}) {
    auto layers = Layers({kS, kG});
    const Status status = AssignDonors(layers, shared);
    ASSERT_FALSE(status) << shared;
    EXPECT_EQ(status.error().id, "model.kv_donor");
  }
  auto layers = Layers({kS, kS, kG});
  const Status status = AssignDonors(layers, 1);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().id, "model.kv_donor");
  EXPECT_THAT(status.error().message, HasSubstr("global"));
}

TEST(ValidateConfigTest, DonorsMustBeEarlierOwnersOfTheSameKind) {
  const auto id_with_donor = [](size_t layer, int64_t donor) {
    Gemma4Config config = Small();
    config.layers[layer].cache_layer = donor;
    const Status status = ValidateConfig(config);
    return status ? std::string("none") : status.error().id;
  };
  EXPECT_EQ(id_with_donor(3, 1), "none");
  EXPECT_EQ(id_with_donor(3, 0), "none");
  EXPECT_EQ(id_with_donor(3, 2), "model.kv_donor");  // another kind
  EXPECT_EQ(id_with_donor(3, 4), "model.kv_donor");  // forward
  EXPECT_EQ(id_with_donor(3, -1), "model.kv_donor");
  EXPECT_EQ(id_with_donor(4, 99), "model.kv_donor");
  EXPECT_EQ(id_with_donor(0, 3), "model.kv_donor");  // a cycle: 3 reads 1, 0 reads 3
}

// ---- reading ------------------------------------------------------------------------------------

TEST(Gemma4ConfigTest, ReadsEveryNumber) {
  const Gemma4Config c = Small();
  EXPECT_EQ(c.width, 32);
  EXPECT_EQ(c.vocabulary, 20);
  EXPECT_EQ(c.context_length, 64);
  EXPECT_EQ(c.heads, 2);
  EXPECT_EQ(c.sliding_window, 8);
  EXPECT_EQ(c.ple_dim, 4);
  EXPECT_EQ(c.final_softcap, 30);
  EXPECT_EQ(c.n_rot_global, 16);
  EXPECT_EQ(c.n_rot_sliding, 8);
  EXPECT_TRUE(c.rope_factors_in_file);
  EXPECT_EQ(c.first_shared_layer(), 3);
  EXPECT_THAT(CacheLayers(c.layers), ElementsAre(0, 1, 2, 1, 2));
  EXPECT_EQ(c.layer(2).head_dim, 16);
  EXPECT_EQ(c.layer(2).kind, kG);
  EXPECT_FALSE(c.layer(2).k_eq_v);
}

TEST(Gemma4ConfigTest, ScalarsAndArraysMeanTheSame) {
  Gemma4TestFile file = Gemma4TestFile::Small();
  file.SetArray<int32_t>("gemma4.feed_forward_length", {48, 48, 48, 48, 48});
  file.SetArray<uint32_t>("gemma4.attention.head_count_kv", {1, 1, 1, 1, 1});
  file.SetArray<int32_t>("gemma4.attention.head_count", {2, 2, 2, 2, 2});
  const auto config = Parse(file);
  ASSERT_TRUE(config) << config.error().ToString();
  EXPECT_EQ(*config, Small());
}

TEST(Gemma4ConfigTest, PatternMayBeAPeriod) {
  Gemma4TestFile file = Gemma4TestFile::Small();
  file.writer.Set("gemma4.attention.sliding_window_pattern", uint32_t{3});
  const auto config = Parse(file);
  ASSERT_TRUE(config) << config.error().ToString();
  // s,s,g,s and a last layer that is global whatever the period.
  EXPECT_EQ(*config, Small());
}

TEST(Gemma4ConfigTest, OlderSpellingOfGlobalKvHeads) {
  Gemma4TestFile file = Gemma4TestFile::Small();
  file.writer.Set("gemma4.attention.global_head_count_kv", uint32_t{2});
  const auto config = Parse(file);
  ASSERT_TRUE(config) << config.error().ToString();
  EXPECT_EQ(config->layer(1).kv_heads, 1);
  EXPECT_EQ(config->layer(2).kv_heads, 2);
  EXPECT_EQ(config->layer(4).kv_heads, 2);
}

TEST(Gemma4ConfigTest, KvHeadsFallBackToTheShapeOfK) {
  Gemma4TestFile file = Gemma4TestFile::Small();
  file.writer.Remove("gemma4.attention.head_count_kv");
  file.Find("blk.1.attn_k.weight").dims = {32, 16};
  const auto config = Parse(file);
  ASSERT_TRUE(config) << config.error().ToString();
  EXPECT_EQ(config->layer(0).kv_heads, 1);
  EXPECT_EQ(config->layer(1).kv_heads, 2);
  EXPECT_EQ(config->layer(3).kv_heads, 2);  // its donor is layer 1

  file.Find("blk.1.attn_k.weight").dims = {32, 13};
  EXPECT_EQ(Parse(file).error().id, "model.tensor_shape");
  file.Remove("blk.1.attn_k.weight");
  EXPECT_EQ(Parse(file).error().id, "model.missing_tensor");
}

TEST(Gemma4ConfigTest, MissingValuesGetTheirDefaults) {
  Gemma4TestFile file = Gemma4TestFile::Small();
  for (const char* key :
       {"gemma4.rope.freq_base", "gemma4.rope.freq_base_swa", "gemma4.rope.dimension_count",
        "gemma4.rope.dimension_count_swa", "gemma4.attention.value_length",
        "gemma4.attention.value_length_swa", "gemma4.attention.layer_norm_rms_epsilon"}) {
    file.writer.Remove(key);
  }
  const auto config = Parse(file);
  ASSERT_TRUE(config) << config.error().ToString();
  EXPECT_EQ(*config, Small());

  file.writer.Set("gemma4.rope.local.freq_base", 5e3F);
  file.writer.Remove("gemma4.final_logit_softcapping");
  const auto local = Parse(file);
  ASSERT_TRUE(local);
  EXPECT_EQ(local->rope_base_sliding, 5e3F);
  EXPECT_EQ(local->final_softcap, 0);
}

TEST(Gemma4ConfigTest, RopeFactorsAreSynthesised) {
  Gemma4TestFile file = Gemma4TestFile::Small();
  file.Remove("rope_freqs.weight");
  const auto config = Parse(file);
  ASSERT_TRUE(config) << config.error().ToString();
  EXPECT_FALSE(config->rope_factors_in_file);
  EXPECT_EQ(CountRotatingPairs(config->rope_factors), 2);

  file.writer.Set("gemma4.rope.partial_rotary_factor", 0.5F);
  EXPECT_EQ(CountRotatingPairs(Parse(file)->rope_factors), 4);
  file.writer.Set("gemma4.rope.partial_rotary_factor", 1.5F);
  EXPECT_EQ(Parse(file).error().id, "model.hparam");
}

TEST(Gemma4ConfigTest, GlobalLayerWithoutVUsesK) {
  Gemma4TestFile file = Gemma4TestFile::Small();
  file.Remove("blk.2.attn_v.weight");
  const auto config = Parse(file);
  ASSERT_TRUE(config) << config.error().ToString();
  EXPECT_TRUE(config->layer(2).k_eq_v);
  EXPECT_FALSE(config->layer(4).k_eq_v);  // it has no K either
}

// ---- hostile metadata ---------------------------------------------------------------------------

struct HostileCase {
  const char* name;
  const char* id;
  std::function<void(Gemma4TestFile&)> spoil;
};

template <typename T>
std::function<void(Gemma4TestFile&)> Set(const char* key, T value) {
  return [key, value](Gemma4TestFile& file) { ASSERT_TRUE(file.writer.Set(key, value)); };
}

template <typename T>
std::function<void(Gemma4TestFile&)> SetArray(const char* key, std::vector<T> values) {
  return [key, values](Gemma4TestFile& file) { file.SetArray<T>(key, values); };
}

std::function<void(Gemma4TestFile&)> Drop(const char* key) {
  return [key](Gemma4TestFile& file) { file.writer.Remove(key); };
}

constexpr float kInf = std::numeric_limits<float>::infinity();

const HostileCase kHostile[] = {
    {"no_architecture", "gguf.key_missing", Drop("general.architecture")},
    {"no_layers", "model.hparam", Set("gemma4.block_count", uint32_t{0})},
    {"a_million_layers", "model.hparam", Set("gemma4.block_count", uint32_t{1000000})},
    {"layers_as_text", "gguf.key_type", Set("gemma4.block_count", "five")},
    {"no_block_count", "gguf.key_missing", Drop("gemma4.block_count")},
    {"no_heads", "model.hparam", Set("gemma4.attention.head_count", uint32_t{0})},
    {"heads_differ", "model.hparam",
     SetArray<uint32_t>("gemma4.attention.head_count", {2, 2, 4, 2, 2})},
    {"no_kv_heads", "model.hparam", Set("gemma4.attention.head_count_kv", uint32_t{0})},
    {"kv_heads_do_not_divide", "model.hparam", Set("gemma4.attention.head_count_kv", uint32_t{3})},
    {"kv_heads_short", "model.array_length",
     SetArray<uint32_t>("gemma4.attention.head_count_kv", {1, 1, 1, 1})},
    {"kv_heads_of_sharer_differ", "model.kv_donor",
     SetArray<uint32_t>("gemma4.attention.head_count_kv", {1, 1, 1, 2, 1})},
    {"odd_key_length", "model.hparam",
     [](Gemma4TestFile& file) {
       file.writer.Set("gemma4.attention.key_length", uint32_t{15});
       file.writer.Set("gemma4.attention.value_length", uint32_t{15});
     }},
    {"zero_key_length", "model.hparam",
     [](Gemma4TestFile& file) {
       file.writer.Set("gemma4.attention.key_length", uint32_t{0});
       file.writer.Set("gemma4.attention.value_length", uint32_t{0});
     }},
    {"values_differ_from_keys", "model.hparam", Set("gemma4.attention.value_length", uint32_t{8})},
    {"no_width", "model.hparam", Set("gemma4.embedding_length", uint32_t{0})},
    {"huge_width", "model.hparam", Set("gemma4.embedding_length", uint32_t{0xFFFFFFFF})},
    {"negative_width", "gguf.key_type", Set("gemma4.embedding_length", int32_t{-1})},
    {"ffn_zero", "model.hparam", Set("gemma4.feed_forward_length", uint32_t{0})},
    {"ffn_long", "model.array_length",
     SetArray<uint32_t>("gemma4.feed_forward_length", {48, 48, 48, 48, 48, 48})},
    {"pattern_short", "model.array_length",
     [](Gemma4TestFile& file) {
       const bool pattern[] = {true, false};
       file.writer.SetArray("gemma4.attention.sliding_window_pattern",
                            std::span<const bool>(pattern));
     }},
    {"pattern_of_text", "gguf.key_type", Set("gemma4.attention.sliding_window_pattern", "ssg")},
    {"pattern_zero", "model.hparam", Set("gemma4.attention.sliding_window_pattern", uint32_t{0})},
    {"shared_all", "model.kv_donor", Set("gemma4.attention.shared_kv_layers", uint32_t{5})},
    {"shared_more", "model.kv_donor",
     Set("gemma4.attention.shared_kv_layers", uint32_t{0xFFFFFFFF})},
    {"no_global_donor", "model.kv_donor", Set("gemma4.attention.shared_kv_layers", uint32_t{3})},
    {"window_zero", "model.hparam", Set("gemma4.attention.sliding_window", uint32_t{0})},
    {"window_beyond_context", "model.hparam", Set("gemma4.attention.sliding_window", uint32_t{65})},
    {"context_zero", "model.hparam", Set("gemma4.context_length", uint32_t{0})},
    {"softcap_zero", "model.hparam", Set("gemma4.final_logit_softcapping", 0.0F)},
    {"softcap_nan", "model.hparam", Set("gemma4.final_logit_softcapping", kNan)},
    {"softcap_inf", "model.hparam", Set("gemma4.final_logit_softcapping", kInf)},
    {"rope_base_zero", "model.hparam", Set("gemma4.rope.freq_base", 0.0F)},
    {"rope_base_negative", "model.hparam", Set("gemma4.rope.freq_base_swa", -1e4F)},
    {"rope_base_nan", "model.hparam", Set("gemma4.rope.freq_base", kNan)},
    {"eps_zero", "model.hparam", Set("gemma4.attention.layer_norm_rms_epsilon", 0.0F)},
    {"eps_nan", "model.hparam", Set("gemma4.attention.layer_norm_rms_epsilon", kNan)},
    {"rotary_dims_odd", "model.hparam", Set("gemma4.rope.dimension_count_swa", uint32_t{7})},
    {"rotary_dims_beyond_head", "model.hparam", Set("gemma4.rope.dimension_count", uint32_t{32})},
    {"rotary_factors_short", "model.hparam",
     [](Gemma4TestFile& file) { file.Find("rope_freqs.weight").dims = {4}; }},
    {"rotary_factor_zero", "model.hparam",
     [](Gemma4TestFile& file) {
       file.Find("rope_freqs.weight").values = {1, 0};
     }},
    {"rotary_factor_nan", "model.hparam",
     [](Gemma4TestFile& file) {
       file.Find("rope_freqs.weight").values = {1, kNan};
     }},
    {"rotary_factors_f16", "model.tensor_dtype",
     [](Gemma4TestFile& file) { file.Find("rope_freqs.weight").dtype = DType::kF16; }},
    {"rotary_part_unknown", "model.hparam",
     [](Gemma4TestFile& file) {
       file.Remove("rope_freqs.weight");
       file.writer.Set("gemma4.rope.dimension_count", uint32_t{8});
     }},
    {"ple_huge", "model.hparam",
     Set("gemma4.embedding_length_per_layer_input", uint32_t{0x80000000})},
    {"expert_width_missing", "gguf.key_missing",
     [](Gemma4TestFile& file) {
       file.writer.Set("gemma4.expert_count", uint32_t{8});
       file.writer.Set("gemma4.expert_used_count", uint32_t{2});
     }},
    {"no_expert_used", "model.hparam",
     [](Gemma4TestFile& file) {
       file.writer.Set("gemma4.expert_count", uint32_t{8});
       file.writer.Set("gemma4.expert_feed_forward_length", uint32_t{8});
     }},
    {"more_experts_used_than_there_are", "model.moe",
     [](Gemma4TestFile& file) {
       file.writer.Set("gemma4.expert_count", uint32_t{2});
       file.writer.Set("gemma4.expert_used_count", uint32_t{8});
     }},
    {"expert_tensors_without_count", "model.moe",
     [](Gemma4TestFile& file) {
       file.Add("blk.0.ffn_down_exps.weight", {8, 8, 2});
     }},
    {"tokens_and_rows_differ", "model.vocabulary",
     [](Gemma4TestFile& file) {
       const std::vector<std::string> tokens = {"a", "b"};
       file.writer.SetStrings("tokenizer.ggml.tokens", tokens);
     }},
    {"no_vocabulary", "model.missing_tensor",
     [](Gemma4TestFile& file) { file.Remove("token_embd.weight"); }},
    {"suppressed_outside", "model.hparam",
     SetArray<int32_t>("tokenizer.ggml.suppress_tokens", {20})},
    {"suppressed_negative", "model.hparam",
     SetArray<int32_t>("tokenizer.ggml.suppress_tokens", {-1})},
};

class HostileMetadataTest : public testing::TestWithParam<HostileCase> {};

TEST_P(HostileMetadataTest, IsRefused) {
  Gemma4TestFile file = Gemma4TestFile::Small();
  GetParam().spoil(file);
  const auto config = Parse(file);
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().id, GetParam().id) << config.error().ToString();
  EXPECT_EQ(config.error().kind, ErrorKind::kModelFile);
}

INSTANTIATE_TEST_SUITE_P(Table, HostileMetadataTest, testing::ValuesIn(kHostile),
                         [](const auto& test) { return std::string(test.param.name); });

// ---- architecture block -------------------------------------------------------------------------

ArchitectureConfig SmallArchitecture() {
  ArchitectureConfig a;
  a.family = kGemma4Architecture;
  a.layers = 5;
  a.width = 32;
  a.heads = 2;
  a.kv_heads = {1, 1};
  a.head_dim = {8, 16};
  a.ffn = {48, 48};
  a.sliding_window = 8;
  a.pattern = 3;
  a.shared_kv_layers = 2;
  a.ple_dim = 4;
  a.k_eq_v = false;
  a.vocabulary = 20;
  a.context_length = 64;
  a.rms_eps = 1e-6;
  a.final_softcap = 30;
  return a;
}

TEST(ArchitectureTest, MakesTheSameConfigAsAFile) {
  const auto made = Gemma4Config::FromArchitecture(SmallArchitecture());
  ASSERT_TRUE(made) << made.error().ToString();
  Gemma4TestFile file = Gemma4TestFile::Small();
  file.Remove("rope_freqs.weight");
  EXPECT_EQ(*made, *Parse(file));
  EXPECT_TRUE(made->CheckAgainst(SmallArchitecture()));
}

TEST(ArchitectureTest, OnlyDiffusionGemmaHasACanvas) {
  ArchitectureConfig a = SmallArchitecture();
  a.ple_dim = 0;
  a.canvas_length = 16;
  EXPECT_EQ(Gemma4Config::FromArchitecture(a).error().id, "config.conflict");
  a.family = kDiffusionGemmaArchitecture;
  const auto made = Gemma4Config::FromArchitecture(a);
  ASSERT_TRUE(made) << made.error().ToString();
  EXPECT_EQ(made->architecture(), kDiffusionGemmaArchitecture);
  EXPECT_TRUE(made->CheckAgainst(a));
  EXPECT_THAT(made->CheckAgainst(SmallArchitecture()).error().message,
              HasSubstr("architecture.family is gemma4 in the configuration, diffusion-gemma in"));
  a.canvas_length = 0;
  EXPECT_EQ(Gemma4Config::FromArchitecture(a).error().id, "config.conflict");
  a.canvas_length.reset();
  EXPECT_EQ(Gemma4Config::FromArchitecture(a).error().id, "config.missing_key");
}

TEST(ArchitectureTest, EmptyBlockMatchesEverything) {
  EXPECT_TRUE(Small().CheckAgainst(ArchitectureConfig()));
}

TEST(ArchitectureTest, EveryDifferenceIsListed) {
  ArchitectureConfig a = SmallArchitecture();
  a.width = 64;
  a.head_dim = {8, 32};
  a.ffn = {48, 96};
  a.rope.base_global = 5e5;
  a.k_eq_v = true;
  a.pattern = 2;
  const Status status = Small().CheckAgainst(a);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().id, "model.architecture_mismatch");
  EXPECT_EQ(status.error().kind, ErrorKind::kUsage);
  const std::string& text = status.error().message;
  EXPECT_THAT(text, HasSubstr("architecture.width is 64 in the configuration, 32 in the model"));
  EXPECT_THAT(text, HasSubstr("architecture.head_dim (layer 2) is 32"));
  EXPECT_THAT(text, HasSubstr("architecture.ffn (layer 3) is 96"));
  EXPECT_THAT(text, HasSubstr("architecture.rope.base_global is 500000"));
  EXPECT_THAT(text, HasSubstr("architecture.k_eq_v is true"));
  EXPECT_THAT(text, HasSubstr("architecture.pattern 2 (layer 1) is global"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("vocabulary")));
}

TEST(ArchitectureTest, IncompleteOrImpossibleBlocksAreRefused) {
  ArchitectureConfig a = SmallArchitecture();
  a.width.reset();
  EXPECT_EQ(Gemma4Config::FromArchitecture(a).error().id, "config.missing_key");
  a = SmallArchitecture();
  a.family = "gemma3";
  EXPECT_EQ(Gemma4Config::FromArchitecture(a).error().id, "model.architecture");
  a = SmallArchitecture();
  a.layers = int64_t{1} << 60;
  EXPECT_EQ(Gemma4Config::FromArchitecture(a).error().id, "model.architecture");
  a = SmallArchitecture();
  a.width = int64_t{1} << 40;
  const auto wide = Gemma4Config::FromArchitecture(a);
  ASSERT_FALSE(wide);
  EXPECT_EQ(wide.error().id, "model.architecture");
  EXPECT_EQ(wide.error().kind, ErrorKind::kUsage);
}

}  // namespace
}  // namespace rullama
