#include "models/gemma4/graph/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>

#include "models/gemma4/graph/gemma4_loading_test_util.h"

namespace rullama {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Gemma4WeightsTest, BindsEveryTensorOfACompleteFile) {
  const auto loaded = LoadGemma4(Gemma4TestFile::Small(), /*strict=*/true);
  ASSERT_TRUE(loaded) << loaded.error().ToString();
  EXPECT_TRUE(loaded->weights.warnings().empty());
  const WeightBinding* gate = loaded->weights.Find("blk.4.ffn_gate.weight");
  ASSERT_NE(gate, nullptr);
  EXPECT_THAT(gate->dims, ElementsAre(48, 32));
  EXPECT_EQ(loaded->weights.Find("output.weight"), nullptr);
}

TEST(Gemma4WeightsTest, OtherSpellingsAreFound) {
  Gemma4TestFile file = Gemma4TestFile::Small();
  file.Rename("blk.0.post_attention_norm.weight", "blk.0.attn_post_norm.weight");
  file.Rename("blk.0.ffn_norm.weight", "blk.0.ffn_pre_norm.weight");
  file.Rename("blk.1.post_ffw_norm.weight", "blk.1.ffn_post_norm.weight");
  file.Rename("blk.2.layer_output_scale.weight", "blk.2.layer_scalar");
  const auto loaded = LoadGemma4(file, /*strict=*/true);
  ASSERT_TRUE(loaded) << loaded.error().ToString();
  EXPECT_EQ(loaded->weights.Find("blk.0.post_attention_norm.weight")->tensor,
            "blk.0.attn_post_norm.weight");
  EXPECT_EQ(loaded->weights.Find("blk.2.layer_output_scale.weight")->tensor, "blk.2.layer_scalar");
}

TEST(Gemma4WeightsTest, KAndVOfSharingLayersAreAcceptedAndNeverUsed) {
  Gemma4TestFile file = Gemma4TestFile::Small();
  file.Add("blk.3.attn_k.weight", {32, 8});
  file.Add("blk.3.attn_v.weight", {32, 8});
  file.Add("blk.3.attn_k_norm.weight", {8});
  const auto loaded = LoadGemma4(file, /*strict=*/true);
  ASSERT_TRUE(loaded) << loaded.error().ToString();
  EXPECT_EQ(loaded->weights.Find("blk.3.attn_k.weight"), nullptr);
  EXPECT_EQ(loaded->weights.Find("blk.3.attn_v.weight"), nullptr);
}

// As NVFP4 files have them. That of the input is for those who quantise activations.
TEST(Gemma4WeightsTest, FactorsOfMatricesAreRead) {
  Gemma4TestFile file = Gemma4TestFile::Small();
  file.Add("blk.0.ffn_up.scale", {1});
  file.Find("blk.0.ffn_up.scale").values = {0.25F};
  file.Add("blk.0.ffn_up.input_scale", {1});
  const auto loaded = LoadGemma4(file, /*strict=*/true);
  ASSERT_TRUE(loaded) << loaded.error().ToString();
  EXPECT_THAT(loaded->weights.scales(), ElementsAre(WeightScale{"blk.0.ffn_up.weight", 0.25F}));
}

TEST(Gemma4WeightsTest, TowersAreLeftAlone) {
  Gemma4TestFile file = Gemma4TestFile::Small();
  file.Add("v.blk.0.attn_q.weight", {8, 8});
  file.Add("a.conv1d.0.weight", {3, 3, 1, 8});
  file.Add("mm.input_projection.weight", {8, 32});
  const auto loaded = LoadGemma4(file, /*strict=*/true);
  ASSERT_TRUE(loaded) << loaded.error().ToString();
  EXPECT_TRUE(loaded->weights.warnings().empty());
}

TEST(Gemma4WeightsTest, OwnHeadIsUsedWhenThereIsOne) {
  Gemma4TestFile file = Gemma4TestFile::Small();
  file.Add("output.weight", {32, 20});
  const auto loaded = LoadGemma4(file);
  ASSERT_TRUE(loaded);
  EXPECT_NE(loaded->weights.Find("output.weight"), nullptr);
}

TEST(Gemma4WeightsTest, MissingTensorsAreCountedAndTheFirstFiveNamed) {
  Gemma4TestFile file = Gemma4TestFile::Small();
  for (const char* name :
       {"blk.0.attn_q.weight", "blk.0.ffn_up.weight", "blk.1.attn_k.weight", "blk.2.proj.weight",
        "blk.3.post_norm.weight", "blk.4.ffn_down.weight", "output_norm.weight"}) {
    file.Remove(name);
  }
  const auto loaded = LoadGemma4(file);
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().id, "model.missing_tensor");
  const std::string& text = loaded.error().message;
  EXPECT_THAT(text, HasSubstr("7 of"));
  EXPECT_THAT(text, HasSubstr("'blk.0.attn_q.weight' [32, 16]"));
  EXPECT_THAT(text, HasSubstr("'blk.3.post_norm.weight' [32], ..."));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("output_norm")));
}

TEST(Gemma4WeightsTest, SlidingLayersNeedTheirV) {
  Gemma4TestFile file = Gemma4TestFile::Small();
  file.Remove("blk.1.attn_v.weight");
  const auto loaded = LoadGemma4(file);
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().id, "model.missing_tensor");
}

TEST(Gemma4WeightsTest, UnknownTensorsAreAWarningOrAnError) {
  Gemma4TestFile file = Gemma4TestFile::Small();
  file.Add("blk.0.mystery.weight", {8});
  const auto loaded = LoadGemma4(file);
  ASSERT_TRUE(loaded);
  ASSERT_EQ(loaded->weights.warnings().size(), 1u);
  EXPECT_THAT(loaded->weights.warnings()[0], HasSubstr("blk.0.mystery.weight"));
  const auto strict = LoadGemma4(file, /*strict=*/true);
  ASSERT_FALSE(strict);
  EXPECT_EQ(strict.error().id, "model.unknown_tensor");
}

struct SpoiledCase {
  const char* name;
  const char* id;
  std::function<void(Gemma4TestFile&)> spoil;
};

const SpoiledCase kSpoiled[] = {
    {"transposed", "model.tensor_shape",
     [](Gemma4TestFile& file) {
       file.Find("blk.0.ffn_gate.weight").dims = {48, 32};
     }},
    {"q_of_a_larger_model", "model.tensor_shape",
     [](Gemma4TestFile& file) {
       file.Find("blk.2.attn_q.weight").dims = {32, 64};
     }},
    {"rank_three", "model.tensor_shape",
     [](Gemma4TestFile& file) {
       file.Find("blk.0.ffn_up.weight").dims = {32, 48, 2};
     }},
    {"norm_in_f16", "model.tensor_dtype",
     [](Gemma4TestFile& file) { file.Find("blk.0.attn_norm.weight").dtype = DType::kF16; }},
    {"matrix_of_integers", "model.tensor_dtype",
     [](Gemma4TestFile& file) { file.Find("blk.0.ffn_up.weight").dtype = DType::kI32; }},
    // 4 layers of 8 values fill a block of 32, which then cannot be read for a layer alone.
    {"blocks_across_layers", "model.tensor_dtype",
     [](Gemma4TestFile& file) {
       std::erase_if(file.tensors, [](const Gemma4TestFile::Tensor& tensor) {
         return tensor.name.starts_with("blk.4.");
       });
       file.writer.Set("gemma4.block_count", uint32_t{4});
       file.writer.Set("gemma4.attention.shared_kv_layers", uint32_t{1});
       const bool pattern[] = {true, true, false, true};
       file.writer.SetArray("gemma4.attention.sliding_window_pattern",
                            std::span<const bool>(pattern));
       file.writer.Set("gemma4.embedding_length_per_layer_input", uint32_t{8});
       for (int i = 0; i < 4; ++i) {
         const std::string p = "blk." + std::to_string(i) + ".";
         file.Find(p + "inp_gate.weight").dims = {32, 8};
         file.Find(p + "proj.weight").dims = {8, 32};
       }
       file.Find("per_layer_model_proj.weight").dims = {32, 32};
       file.Find("per_layer_proj_norm.weight").dims = {8};
       file.Find("per_layer_token_embd.weight").dims = {32, 20};
       file.Find("per_layer_token_embd.weight").dtype = DType::kQ8_0;
     }},
    {"scale_zero", "model.layer_scale",
     [](Gemma4TestFile& file) { file.Find("blk.1.layer_output_scale.weight").values = {0}; }},
    {"scale_nan", "model.layer_scale",
     [](Gemma4TestFile& file) { file.Find("blk.1.layer_output_scale.weight").values = {kNan}; }},
    {"scale_missing_on_one_layer", "model.layer_scale",
     [](Gemma4TestFile& file) { file.Remove("blk.3.layer_output_scale.weight"); }},
    {"factor_zero", "model.unsupported",
     [](Gemma4TestFile& file) {
       file.Add("blk.0.ffn_up.scale", {1});
       file.Find("blk.0.ffn_up.scale").values = {0};
     }},
    {"factors_of_rows", "model.unsupported",
     [](Gemma4TestFile& file) { file.Add("blk.0.ffn_up.scale", {48}); }},
    {"factor_of_nothing", "model.unsupported",
     [](Gemma4TestFile& file) { file.Add("blk.0.attn_gate.scale", {1}); }},
};

class SpoiledTensorsTest : public testing::TestWithParam<SpoiledCase> {};

TEST_P(SpoiledTensorsTest, IsRefused) {
  Gemma4TestFile file = Gemma4TestFile::Small();
  GetParam().spoil(file);
  const auto loaded = LoadGemma4(file);
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().id, GetParam().id) << loaded.error().ToString();
  EXPECT_EQ(loaded.error().kind, ErrorKind::kModelFile);
}

INSTANTIATE_TEST_SUITE_P(Table, SpoiledTensorsTest, testing::ValuesIn(kSpoiled),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(Gemma4WeightsTest, NoScalesAtAllIsUnusualButRuns) {
  Gemma4TestFile file = Gemma4TestFile::Small();
  for (int i = 0; i < 5; ++i) {
    file.Remove("blk." + std::to_string(i) + ".layer_output_scale.weight");
  }
  const auto loaded = LoadGemma4(file);
  ASSERT_TRUE(loaded) << loaded.error().ToString();
  ASSERT_EQ(loaded->weights.warnings().size(), 1u);
  EXPECT_THAT(loaded->weights.warnings()[0], HasSubstr("layer_output_scale"));
}

TEST(Gemma4WeightsTest, SyntheticModelHasRequiredAndUsualTensors) {
  const auto loaded = LoadGemma4(Gemma4TestFile::Small());
  ASSERT_TRUE(loaded);
  const auto weights =
      Gemma4Weights::Synthetic(loaded->config, [](const TensorSpec&) { return DType::kQ8_0; });
  EXPECT_EQ(weights.Find("blk.0.ffn_up.weight")->dtype, DType::kQ8_0);
  EXPECT_EQ(weights.Find("blk.0.ffn_norm.weight")->dtype, DType::kF32);
  EXPECT_NE(weights.Find("rope_freqs.weight"), nullptr);
  EXPECT_EQ(weights.Find("output.weight"), nullptr);
  EXPECT_EQ(weights.Find("blk.3.attn_k.weight"), nullptr);
}

}  // namespace
}  // namespace rullama
