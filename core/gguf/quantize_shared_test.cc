// Quantize against what ggml's quantisers make of the same values.
#include <cmath>

#include "core/gguf/quant_vectors_test_util.h"
#include "core/gguf/quantize.h"

namespace rullama {
namespace {

constexpr const char* kFolder = RULLAMA_SOURCE_DIR "/../shared/vectors/quant/";
constexpr size_t kRows = 8;
constexpr size_t kColumns = 1024;

std::vector<float> ReadFloats(const std::string& name) {
  const auto bytes = ReadBytes(kFolder + name);
  std::vector<float> values(bytes.size() / sizeof(float));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = LoadUnaligned<float>(bytes.data() + i * sizeof(float));
  }
  return values;
}

double RootMeanSquare(const std::vector<float>& a, const std::vector<float>& b, size_t row) {
  double sum = 0;
  for (size_t i = row * kColumns; i < (row + 1) * kColumns; ++i) {
    const double difference = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    sum += difference * difference;
  }
  return std::sqrt(sum / kColumns);
}

struct Case {
  DType dtype;
  const char* file;
};

class QuantizeSharedTest : public ::testing::TestWithParam<Case> {};

// Row by row, since rows differ in size by a factor of a hundred.
TEST_P(QuantizeSharedTest, ErrorIsNoLargerThanThatOfGgml) {
  const std::vector<float> source = ReadFloats("source.f32");
  const std::vector<float> reference = ReadFloats(std::string(GetParam().file) + ".f32");
  ASSERT_EQ(source.size(), kRows * kColumns);
  ASSERT_EQ(reference.size(), source.size());
  std::vector<std::byte> blocks(RowBytes(GetParam().dtype, source.size()));
  const Status status = Quantize(GetParam().dtype, source, blocks);
  ASSERT_TRUE(status) << status.error().ToString();
  std::vector<float> ours(source.size());
  ASSERT_TRUE(Dequantize(GetParam().dtype, blocks, ours));
  for (size_t row = 0; row < kRows; ++row) {
    const double ratio = RootMeanSquare(ours, source, row) / RootMeanSquare(reference, source, row);
    EXPECT_LE(ratio, 1.02) << "row " << row;
    RecordProperty("ratio_" + std::to_string(row), std::to_string(ratio));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, QuantizeSharedTest,
                         ::testing::Values(Case{DType::kF16, "f16"}, Case{DType::kBF16, "bf16"},
                                           Case{DType::kQ4_0, "q4_0"}, Case{DType::kQ4_1, "q4_1"},
                                           Case{DType::kQ5_0, "q5_0"}, Case{DType::kQ5_1, "q5_1"},
                                           Case{DType::kQ8_0, "q8_0"}, Case{DType::kQ4_K, "q4_K"},
                                           Case{DType::kQ5_K, "q5_K"}, Case{DType::kQ6_K, "q6_K"},
                                           Case{DType::kQ2_K, "q2_K"}, Case{DType::kQ3_K, "q3_K"},
                                           Case{DType::kIQ4_NL, "iq4_nl"},
                                           Case{DType::kIQ4_XS, "iq4_xs"},
                                           Case{DType::kMXFP4, "mxfp4"}),
                         [](const auto& row) { return std::string(row.param.file); });

}  // namespace
}  // namespace rullama
