// Built twice, once with products and sums fused: what a block means does not depend on it.
#include <gtest/gtest.h>
#include <rullama/abi/rullama_abi.h>
#include <rullama/sdk/dequantize.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace rullama {
namespace {

std::vector<char> ReadBytes(const std::string& name) {
  std::ifstream file(RULLAMA_SOURCE_DIR "/tests/data/quant/" + name, std::ios::binary);
  EXPECT_TRUE(file) << "cannot read " << name;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

struct Vector {
  const char* file;
  uint32_t dtype;
};
constexpr Vector kVectors[] = {
    {"f16", RL_DTYPE_F16},         {"bf16", RL_DTYPE_BF16},     {"q4_0", RL_DTYPE_Q4_0},
    {"q4_1", RL_DTYPE_Q4_1},       {"q5_0", RL_DTYPE_Q5_0},     {"q5_1", RL_DTYPE_Q5_1},
    {"q8_0", RL_DTYPE_Q8_0},       {"q2_K", RL_DTYPE_Q2_K},     {"q3_K", RL_DTYPE_Q3_K},
    {"q4_K", RL_DTYPE_Q4_K},       {"q5_K", RL_DTYPE_Q5_K},     {"q6_K", RL_DTYPE_Q6_K},
    {"iq4_nl", RL_DTYPE_IQ4_NL},   {"iq4_xs", RL_DTYPE_IQ4_XS}, {"mxfp4", RL_DTYPE_MXFP4},
    {"iq2_xxs", RL_DTYPE_IQ2_XXS}, {"iq2_xs", RL_DTYPE_IQ2_XS}, {"iq2_s", RL_DTYPE_IQ2_S},
    {"iq3_xxs", RL_DTYPE_IQ3_XXS}, {"iq3_s", RL_DTYPE_IQ3_S},   {"iq1_s", RL_DTYPE_IQ1_S},
    {"iq1_m", RL_DTYPE_IQ1_M},     {"tq1_0", RL_DTYPE_TQ1_0},   {"tq2_0", RL_DTYPE_TQ2_0},
    {"nvfp4", RL_DTYPE_NVFP4},
};

TEST(SdkDequantizeTest, EqualsTheReferenceBitForBit) {
  for (const auto& [file, dtype] : kVectors) {
    const std::vector<char> blocks = ReadBytes(std::string(file) + ".q");
    const std::vector<char> expected = ReadBytes(std::string(file) + ".f32");
    const DTypeInfo& info = *FindDType(dtype);
    const size_t count = blocks.size() / info.block_bytes;
    ASSERT_EQ(count * info.block_elements * sizeof(float), expected.size()) << file;
    std::vector<float> values(count * info.block_elements);
    sdk::FindDequantizer(dtype)(reinterpret_cast<const std::byte*>(blocks.data()), count,
                                values.data());
    size_t wrong = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      wrong += std::memcmp(&values[i], expected.data() + i * sizeof(float), sizeof(float)) != 0;
    }
    EXPECT_EQ(wrong, 0U) << file;
  }
}

TEST(SdkDequantizeTest, WhatIsNotDecodedIsNull) {
  EXPECT_EQ(sdk::FindDequantizer(RL_DTYPE_Q8_K), nullptr);
  EXPECT_EQ(sdk::FindDequantizer(uint32_t{4711}), nullptr);
}

}  // namespace
}  // namespace rullama
