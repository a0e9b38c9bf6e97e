#include "models/quantize/quant_mix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace rullama {
namespace {

using ::testing::ElementsAre;
using ::testing::Optional;

std::optional<DType> TypeOf(const char* mix, const QuantTensor& tensor, int64_t experts = 0) {
  return ChooseTypes(*FindQuantMix(mix), std::span(&tensor, 1), {.layers = 8, .experts = experts})
      .front();
}

TEST(QuantMix, NamesAreFoundInAnyCase) {
  for (const char* name : {"Q4_K_M", "q4_k_m", "q4_K_m"}) {
    const auto mix = FindQuantMix(name);
    ASSERT_TRUE(mix) << name;
    EXPECT_EQ(mix->name, "Q4_K_M");
  }
}

TEST(QuantMix, NamesAreListedInTheError) {
  const auto mix = FindQuantMix("q4_k_x");
  ASSERT_FALSE(mix);
  EXPECT_EQ(mix.error().id, "quantize.type");
  EXPECT_THAT(mix.error().message, ::testing::HasSubstr("Q4_K_M, Q5_K_M"));
  EXPECT_EQ(FindQuantMix("Q5_0")->file_type, 8u);
}

TEST(QuantMix, SomeTensorsStay) {
  const QuantTensor kStaying[] = {
      {"output_norm.weight", 1, 256},
      {"blk.0.post_norm.weight", 2, 256},
      {"blk.0.layer_output_scale.weight", 1, 1},
      {"blk.0.ffn_gate_inp.weight", 2, 256},
      {"blk.0.ffn_gate_inp.scale", 2, 256},
      {"per_layer_model_proj.weight", 2, 256},
      {"v.blk.0.attn_q.weight", 2, 256},
      {"a.blk.0.attn_q.weight", 2, 256},
      {"mm.input_projection.weight", 2, 256},
  };
  for (const QuantTensor& tensor : kStaying) {
    EXPECT_EQ(TypeOf("Q4_K_M", tensor), std::nullopt) << tensor.name;
  }
}

TEST(QuantMix, RowsThatAreNoMultipleOf256TakeSmallerBlocks) {
  const auto type_of_row = [](const char* mix, uint64_t row) {
    return TypeOf(mix, {"blk.0.ffn_up.weight", 2, row});
  };
  EXPECT_THAT(type_of_row("Q4_K_M", 512), Optional(DType::kQ4_K));
  EXPECT_THAT(type_of_row("Q4_K_M", 480), Optional(DType::kQ5_0));
  EXPECT_THAT(type_of_row("Q5_K_M", 480), Optional(DType::kQ5_1));
  EXPECT_THAT(type_of_row("Q6_K", 480), Optional(DType::kQ8_0));
  for (const char* mix : {"Q4_K_M", "Q6_K", "Q8_0", "Q4_0"}) {
    EXPECT_THAT(type_of_row(mix, 40), Optional(DType::kF16)) << mix;
  }
}

TEST(QuantMix, EmbeddingsGetSixBits) {
  for (const char* mix : {"Q4_0", "Q5_0", "Q4_K_M", "Q5_K_M", "Q6_K"}) {
    EXPECT_THAT(TypeOf(mix, {"token_embd.weight", 2, 256}), Optional(DType::kQ6_K)) << mix;
    EXPECT_THAT(TypeOf(mix, {"per_layer_token_embd.weight", 2, 256}), Optional(DType::kQ6_K));
  }
  EXPECT_THAT(TypeOf("Q8_0", {"token_embd.weight", 2, 256}), Optional(DType::kQ8_0));
}

// llama-quantize's rule for exactly eight experts.
TEST(QuantMix, AttentionOfEightExperts) {
  const QuantTensor key = {"blk.0.attn_k.weight", 2, 256};
  const QuantTensor value = {"blk.0.attn_v.weight", 2, 256};
  const QuantTensor output = {"blk.0.attn_output.weight", 2, 256};
  for (const char* mix : {"Q4_0", "Q4_K_M", "Q5_K_M", "Q6_K"}) {
    EXPECT_THAT(TypeOf(mix, key, 8), Optional(DType::kQ8_0)) << mix;
    EXPECT_THAT(TypeOf(mix, value, 8), Optional(DType::kQ8_0)) << mix;
  }
  EXPECT_THAT(TypeOf("Q4_K_M", output, 8), Optional(DType::kQ5_K));
  EXPECT_THAT(TypeOf("Q4_0", output, 8), Optional(DType::kQ4_0));
  EXPECT_THAT(TypeOf("Q4_K_M", key, 128), Optional(DType::kQ4_K));
  EXPECT_THAT(TypeOf("F16", key, 8), Optional(DType::kF16));
}

// Down projections count by layer, value projections by their rank among those that exist, both
// whatever the order of the file.
TEST(QuantMix, LayersThatCountGetMoreBits) {
  std::vector<std::string> names;
  for (int layer = 7; layer >= 0; --layer) {
    if (layer % 2 == 1) names.push_back("blk." + std::to_string(layer) + ".attn_v.weight");
    names.push_back("blk." + std::to_string(layer) + ".ffn_down.weight");
  }
  std::vector<QuantTensor> tensors;
  for (const std::string& name : names) tensors.push_back({name, 2, 256});
  const auto types = ChooseTypes(*FindQuantMix("Q4_K_M"), tensors, {.layers = 8});
  std::vector<std::string> more;
  for (size_t i = 0; i < names.size(); ++i) {
    if (types[i] == DType::kQ6_K) more.push_back(names[i]);
  }
  // The mix takes layers 0, 3, 6 and 7 of 8, and the third and fourth of the four value projections
  // (1, 3, 5, 7).
  EXPECT_THAT(more,
              ElementsAre("blk.7.attn_v.weight", "blk.7.ffn_down.weight", "blk.6.ffn_down.weight",
                          "blk.5.attn_v.weight", "blk.3.ffn_down.weight", "blk.0.ffn_down.weight"));
}

// The rules of llama-quantize for mixes that do not follow MoreBits.
TEST(QuantMix, SmallMixesHaveRulesOfTheirOwn) {
  const auto type_of = [](const char* mix, const char* name, int64_t heads_per_kv) {
    const QuantTensor tensor{name, 2, 256};
    return ChooseTypes(*FindQuantMix(mix), std::span(&tensor, 1),
                       {.layers = 32, .heads_per_kv = heads_per_kv})
        .front();
  };
  struct Expected {
    const char* mix;
    const char* name;
    DType few, many;  // heads that share keys and values
  };
  for (const auto& [mix, name, few, many] : {
           Expected{"Q2_K", "blk.0.attn_v.weight", DType::kQ3_K, DType::kQ4_K},
           {"Q2_K", "blk.0.attn_output.weight", DType::kQ3_K, DType::kQ3_K},
           {"Q2_K", "blk.9.ffn_down.weight", DType::kQ3_K, DType::kQ3_K},
           {"Q2_K", "blk.9.ffn_up.weight", DType::kQ2_K, DType::kQ2_K},
           {"Q3_K_M", "blk.0.attn_v.weight", DType::kQ5_K, DType::kQ5_K},
           {"Q3_K_M", "blk.1.ffn_down.weight", DType::kQ5_K, DType::kQ5_K},
           {"Q3_K_M", "blk.2.ffn_down.weight", DType::kQ4_K, DType::kQ4_K},
           {"Q3_K_M", "blk.2.attn_output.weight", DType::kQ4_K, DType::kQ4_K},
           {"Q3_K_M", "blk.2.attn_q.weight", DType::kQ3_K, DType::kQ3_K},
           {"Q4_K_S", "blk.3.ffn_down.weight", DType::kQ5_K, DType::kQ5_K},
           {"Q4_K_S", "blk.4.ffn_down.weight", DType::kQ4_K, DType::kQ4_K},
           {"IQ4_XS", "blk.0.attn_v.weight", DType::kIQ4_XS, DType::kQ5_K},
           {"IQ4_XS", "blk.3.ffn_down.weight", DType::kQ5_K, DType::kQ5_K},
           {"IQ4_NL", "blk.9.ffn_down.weight", DType::kIQ4_NL, DType::kIQ4_NL},
           {"MXFP4_MOE", "blk.9.ffn_down.weight", DType::kQ8_0, DType::kQ8_0},
           {"MXFP4_MOE", "token_embd.weight", DType::kQ8_0, DType::kQ8_0},
       }) {
    EXPECT_EQ(type_of(mix, name, 1), few) << mix << " " << name;
    EXPECT_EQ(type_of(mix, name, 8), many) << mix << " " << name;
  }
  const QuantTensor experts{"blk.9.ffn_down_exps.weight", 3, 256};
  EXPECT_THAT(TypeOf("MXFP4_MOE", experts, 128), Optional(DType::kMXFP4));
}

}  // namespace
}  // namespace rullama
