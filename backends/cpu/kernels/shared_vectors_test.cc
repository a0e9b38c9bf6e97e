// Compares dequantisation bit for bit with reference vectors: blocks made by another
// implementation's quantisers, and their values.
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "backends/cpu/kernels/kernel_table.h"
#include "backends/cpu/kernels/test_weights.h"
#include "gtest/gtest.h"

namespace rullama::cpu {
namespace {

constexpr size_t kRows = 8, kColumns = 1024;

std::vector<char> ReadFile(const std::string& name) {
  std::ifstream file(std::string(RULLAMA_SOURCE_DIR "/../shared/vectors/quant/") + name,
                     std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(SharedVectorsTest, EveryTypeDequantizesBitForBit) {
  const std::pair<DType, const char*> types[] = {
      {DType::kF16, "f16"},       {DType::kBF16, "bf16"},     {DType::kQ4_0, "q4_0"},
      {DType::kQ4_1, "q4_1"},     {DType::kQ5_0, "q5_0"},     {DType::kQ5_1, "q5_1"},
      {DType::kQ8_0, "q8_0"},     {DType::kQ2_K, "q2_K"},     {DType::kQ3_K, "q3_K"},
      {DType::kQ4_K, "q4_K"},     {DType::kQ5_K, "q5_K"},     {DType::kQ6_K, "q6_K"},
      {DType::kIQ4_NL, "iq4_nl"}, {DType::kIQ4_XS, "iq4_xs"}, {DType::kMXFP4, "mxfp4"}};
  for (const auto& [dtype, name] : types) {
    const auto blocks = ReadFile(std::string(name) + ".q");
    const auto values = ReadFile(std::string(name) + ".f32");
    const size_t row_bytes = RowBytes(dtype, kColumns);
    ASSERT_EQ(blocks.size(), kRows * row_bytes) << name;
    ASSERT_EQ(values.size(), kRows * kColumns * sizeof(float)) << name;
    std::vector<float> expected(kRows * kColumns), out(kColumns);
    std::memcpy(expected.data(), values.data(), values.size());
    for (Isa isa : testing::AvailableIsas()) {
      for (size_t row = 0; row < kRows; ++row) {
        FindWeight(KernelsFor(isa), dtype)
            ->dequantize(blocks.data() + row * row_bytes, kColumns, out.data());
        for (size_t i = 0; i < kColumns; ++i) {
          ASSERT_EQ(out[i], expected[row * kColumns + i])
              << name << " " << IsaName(isa) << " row " << row << " element " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace rullama::cpu
