// Models with matrices of each type that backends run, against the same numbers in f32.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rullama/sdk/dequantize.h>
#include <rullama/sdk/dtype.h>
#include <rullama/sdk/half.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/must_test_util.h"
#include "core/gguf/dequantize.h"
#include "core/gguf/gguf.h"
#include "core/gguf/gguf_writer.h"
#include "tests/cli/program.h"
#include "tests/fakes/adapter_folder.h"

namespace rullama::cli_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// A type, and the places of the f16 numbers in a block (its scale, its offset if it has one) and
// their values, which give weights of the usual size. Random bytes make up the rest.
struct TypeOfModel {
  DType dtype;
  size_t scale_at;
  float scale;
  size_t offset_at = 0;
  float offset = 0;  // 0: none
};
constexpr TypeOfModel kTypes[] = {{DType::kQ4_0, 0, 0.01F},
                                  {DType::kQ4_1, 0, 0.01F, 2, -0.08F},
                                  {DType::kQ5_0, 0, 5e-3F},
                                  {DType::kQ5_1, 0, 5e-3F, 2, -0.08F},
                                  {DType::kQ8_0, 0, 6e-4F},
                                  {DType::kQ2_K, 80, 4e-3F, 82, 4e-3F},
                                  {DType::kQ3_K, 108, 1e-3F},
                                  {DType::kQ4_K, 0, 2e-4F, 2, 1e-3F},
                                  {DType::kQ5_K, 0, 1e-4F, 2, 1e-3F},
                                  {DType::kQ6_K, 208, 2e-5F},
                                  {DType::kIQ4_NL, 0, 8e-4F},
                                  {DType::kIQ4_XS, 0, 3e-5F},
                                  {DType::kIQ2_XXS, 0, 2e-4F},
                                  {DType::kIQ2_XS, 0, 2e-4F},
                                  {DType::kIQ2_S, 0, 2e-4F},
                                  {DType::kIQ3_XXS, 0, 1e-4F},
                                  {DType::kIQ3_S, 0, 1e-4F},
                                  {DType::kIQ1_S, 0, 4e-3F},
                                  {DType::kIQ1_M, 0, 4e-3F},
                                  {DType::kTQ1_0, 52, 0.03F},
                                  {DType::kTQ2_0, 64, 0.03F},
                                  {DType::kMXFP4, 0, 0},
                                  {DType::kNVFP4, 0, 0}};

void SetScale(const TypeOfModel& type, std::span<std::byte> block) {
  const uint16_t scale = FloatToHalf(type.scale);
  if (type.dtype == DType::kMXFP4) {
    // E8M0 numbers from 2^-7 to 2^-4.
    block[0] = (block[0] & std::byte{3}) | std::byte{120};
    return;
  }
  if (type.dtype == DType::kNVFP4) {
    // E4M3 numbers from 2^-6 on.
    for (size_t i = 0; i < 4; ++i) block[i] = (block[i] & std::byte{7}) | std::byte{8};
    return;
  }
  if (type.dtype == DType::kIQ1_M) {  // four bits in each of the last four words
    for (size_t i = 0; i < 4; ++i) {
      std::byte& high = block[49 + 2 * i];
      high = (high & std::byte{15}) | static_cast<std::byte>((scale >> (4 * i) & 15) << 4);
    }
    return;
  }
  std::memcpy(block.data() + type.scale_at, &scale, sizeof(scale));
  if (type.offset == 0) return;
  const uint16_t offset = FloatToHalf(type.offset);
  std::memcpy(block.data() + type.offset_at, &offset, sizeof(offset));
}

using Replaced = std::map<std::string, std::vector<std::byte>, std::less<>>;

// Factors by the names of tensors that hold them.
using Factors = std::map<std::string, float, std::less<>>;

// The tiny model with other matrices, and with tensors of one number.
void WriteModel(const GgufFile& model, DType dtype, const Replaced& replaced, const fs::path& path,
                const Factors& factors = {}) {
  GgufWriter writer;
  for (const GgufEntry& entry : model.metadata()) {
    ASSERT_TRUE(writer.SetRaw(entry.key, entry.value));
  }
  for (const TensorInfo& tensor : model.tensors()) {
    ASSERT_TRUE(writer.AddTensor(tensor.name, replaced.contains(tensor.name) ? dtype : tensor.dtype,
                                 std::span(tensor.dims).first(tensor.rank)));
  }
  constexpr uint64_t kOne[] = {1};
  for (const auto& [name, factor] : factors) {
    ASSERT_TRUE(writer.AddTensor(name, DType::kF32, kOne));
  }
  GgufOutput output = Must(writer.Begin(path));
  for (const TensorInfo& tensor : model.tensors()) {
    const auto found = replaced.find(tensor.name);
    ASSERT_TRUE(output.Append(found == replaced.end() ? model.data(tensor)
                                                      : std::span<const std::byte>(found->second)));
  }
  for (const auto& [name, factor] : factors) {
    ASSERT_TRUE(output.Append(std::as_bytes(std::span(&factor, 1))));
  }
  ASSERT_TRUE(output.Finish());
}

// `adapter`: a folder; empty: none.
std::vector<float> Logits(const fs::path& model, const std::string& adapter) {
  const fs::path out = TemporaryDirectory() / "logits.f32";
  const fs::path tokens = TemporaryFile("tokens.json", "[2, 700, 41, 1999, 350, 12]");
  std::vector<std::string> words = {"logits",        "-m",    model.string(), "--tokens-file",
                                    tokens.string(), "--out", out.string()};
  if (!adapter.empty()) words.insert(words.end(), {"--lora", adapter});
  const RunResult run = RunRullama(words);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  const std::string bytes = ReadFile(out.string());
  std::vector<float> logits(bytes.size() / sizeof(float));
  std::memcpy(logits.data(), bytes.data(), logits.size() * sizeof(float));
  return logits;
}

// Random blocks of a type, and the numbers that they stand for times `factor`, as f32.
struct Matrix {
  std::vector<std::byte> blocks, floats;
};
Matrix RandomMatrix(const TypeOfModel& type, uint64_t elements, float factor,
                    std::mt19937& random) {
  Matrix matrix;
  matrix.blocks.resize(RowBytes(type.dtype, elements));
  for (std::byte& byte : matrix.blocks) byte = static_cast<std::byte>(random() & 255);
  const size_t block = InfoOf(type.dtype).block_bytes;
  for (size_t at = 0; at < matrix.blocks.size(); at += block) {
    SetScale(type, std::span(matrix.blocks).subspan(at, block));
  }
  std::vector<float> values(elements);
  EXPECT_TRUE(Dequantize(type.dtype, matrix.blocks, values));
  for (float& value : values) value *= factor;
  const auto raw = std::as_bytes(std::span(values));
  matrix.floats.assign(raw.begin(), raw.end());
  return matrix;
}

// Compares a model with some matrices of a type with the same numbers in f32. `factors`: the same
// for each matrix, in a tensor of its own; empty: none.
void ExpectNumbersOf(const TypeOfModel& type, std::mt19937& random,
                     std::span<const float> factors = {}, const std::string& adapter = "") {
  const GgufFile model = Must(GgufFile::Open(TinyModel()));
  Replaced blocks, floats;
  Factors scales;
  for (const std::string name :
       {"token_embd", "blk.0.attn_q", "blk.0.ffn_down", "blk.3.ffn_up", "blk.6.attn_output"}) {
    const TensorInfo* tensor = model.FindTensor(name + ".weight");
    ASSERT_NE(tensor, nullptr) << name;
    const float factor = factors.empty() ? 1 : factors[scales.size() % factors.size()];
    if (!factors.empty()) scales[name + ".scale"] = factor;
    Matrix matrix = RandomMatrix(type, tensor->elements(), factor, random);
    blocks.emplace(name + ".weight", std::move(matrix.blocks));
    floats.emplace(name + ".weight", std::move(matrix.floats));
  }
  const fs::path path = TemporaryDirectory() / "types.gguf";
  WriteModel(model, type.dtype, blocks, path, scales);
  const std::vector<float> found = Logits(path, adapter);
  WriteModel(model, DType::kF32, floats, path);
  const std::vector<float> expected = Logits(path, adapter);
  ASSERT_EQ(found.size(), 6U * 2048);
  ASSERT_EQ(found.size(), expected.size());
  double error = 0, norm = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    error += (found[i] - double{expected[i]}) * (found[i] - double{expected[i]});
    norm += double{expected[i]} * expected[i];
  }
  EXPECT_GT(norm, 0) << NameOf(type.dtype);
  EXPECT_LE(error, 1e-5 * norm) << NameOf(type.dtype);
}

TEST(Types, LogitsAreThoseOfTheSameNumbersInF32) {
  std::mt19937 random(5);
  for (const TypeOfModel& type : kTypes) ExpectNumbersOf(type, random);
}

TEST(Types, AllTypesInBlocksAreTried) {
  for (const DTypeInfo& info : kDTypes) {
    const bool tried =
        std::ranges::find(kTypes, info.dtype, &TypeOfModel::dtype) != std::end(kTypes);
    const bool runs = info.block_elements > 1 && sdk::FindDequantizer(info.dtype) != nullptr;
    EXPECT_EQ(tried, runs) << info.name;
  }
}

// As converters write NVFP4. They do not multiply an adapter, here that of blk.0.ffn_down.
TEST(Types, FactorsInTensorsOfTheirOwnMultiplyWeights) {
  constexpr float kFactors[] = {0.5F, 1.25F, 0.75F};
  const std::string adapter = (TemporaryDirectory() / "adapter").string();
  WriteAdapterFolder(adapter, 512);
  std::mt19937 random(6);
  for (const std::string& folder : {std::string(), adapter}) {
    ExpectNumbersOf({DType::kNVFP4, 0, 0}, random, kFactors, folder);
  }
}

// Half a scale of a block becomes NaN, as in a damaged download.
TEST(Types, InspectNamesTensorsWithDamagedNumbers) {
  const RunResult well = RunRullama({"inspect", TinyModel(), "--check"});
  EXPECT_EQ(well.exit_code, 0) << well.err;
  EXPECT_THAT(well.out, HasSubstr("all of 130 tensors are finite"));
  const GgufFile model = Must(GgufFile::Open(TinyModel()));
  std::string bytes = ReadFile(TinyModel());
  bytes.replace(model.FindTensor("blk.2.attn_q.weight")->offset, 2, std::string("\x00\x7e", 2));
  const std::string path = TemporaryFile("damaged.gguf", bytes).string();
  const RunResult damaged = RunRullama({"inspect", path, "--check"});
  EXPECT_EQ(damaged.exit_code, 4);
  EXPECT_THAT(damaged.out, HasSubstr("256 NaN, 0 infinite, 0 above 10000; the first is element 0"));
  EXPECT_THAT(damaged.err, HasSubstr("1 tensor has numbers that no trained model has, first "
                                     "'blk.2.attn_q.weight'"));
  EXPECT_EQ(RunRullama({"inspect", path}).exit_code, 0);
}

}  // namespace
}  // namespace rullama::cli_test
