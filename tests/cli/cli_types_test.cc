// Models with matrices of each type that only decoders read, against the same numbers in f32.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rullama/sdk/half.h>

#include <cstring>
#include <filesystem>
#include <functional>
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

namespace rullama::cli_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// A type, and the place of the f16 scale in a block and its value, which gives weights of the usual
// size. Random bytes make up the rest.
struct TypeOfModel {
  DType dtype;
  size_t scale_at;
  float scale;
};
constexpr TypeOfModel kTypes[] = {{DType::kIQ2_XXS, 0, 2e-4F}, {DType::kIQ2_XS, 0, 2e-4F},
                                  {DType::kIQ2_S, 0, 2e-4F},   {DType::kIQ3_XXS, 0, 1e-4F},
                                  {DType::kIQ3_S, 0, 1e-4F},   {DType::kIQ1_S, 0, 4e-3F},
                                  {DType::kIQ1_M, 0, 4e-3F},   {DType::kTQ1_0, 52, 0.03F},
                                  {DType::kTQ2_0, 64, 0.03F},  {DType::kNVFP4, 0, 0}};

void SetScale(const TypeOfModel& type, std::span<std::byte> block) {
  const uint16_t scale = FloatToHalf(type.scale);
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
}

using Replaced = std::map<std::string, std::vector<std::byte>, std::less<>>;

// The tiny model with other matrices.
void WriteModel(const GgufFile& model, DType dtype, const Replaced& replaced,
                const fs::path& path) {
  GgufWriter writer;
  for (const GgufEntry& entry : model.metadata()) {
    ASSERT_TRUE(writer.SetRaw(entry.key, entry.value));
  }
  for (const TensorInfo& tensor : model.tensors()) {
    ASSERT_TRUE(writer.AddTensor(tensor.name, replaced.contains(tensor.name) ? dtype : tensor.dtype,
                                 std::span(tensor.dims).first(tensor.rank)));
  }
  GgufOutput output = Must(writer.Begin(path));
  for (const TensorInfo& tensor : model.tensors()) {
    const auto found = replaced.find(tensor.name);
    ASSERT_TRUE(output.Append(found == replaced.end() ? model.data(tensor)
                                                      : std::span<const std::byte>(found->second)));
  }
  ASSERT_TRUE(output.Finish());
}

std::vector<float> Logits(const fs::path& model) {
  const fs::path out = TemporaryDirectory() / "logits.f32";
  const fs::path tokens = TemporaryFile("tokens.json", "[2, 700, 41, 1999, 350, 12]");
  const RunResult run = RunRullama(
      {"logits", "-m", model.string(), "--tokens-file", tokens.string(), "--out", out.string()});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  const std::string bytes = ReadFile(out.string());
  std::vector<float> logits(bytes.size() / sizeof(float));
  std::memcpy(logits.data(), bytes.data(), logits.size() * sizeof(float));
  return logits;
}

TEST(Types, LogitsAreThoseOfTheSameNumbersInF32) {
  const GgufFile model = Must(GgufFile::Open(TinyModel()));
  std::mt19937 random(5);
  for (const TypeOfModel& type : kTypes) {
    Replaced blocks, floats;
    for (const char* name : {"token_embd.weight", "blk.0.attn_q.weight", "blk.1.ffn_down.weight",
                             "blk.3.ffn_up.weight", "blk.6.attn_output.weight"}) {
      const TensorInfo* tensor = model.FindTensor(name);
      ASSERT_NE(tensor, nullptr) << name;
      std::vector<std::byte> bytes(RowBytes(type.dtype, tensor->elements()));
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() & 255);
      const size_t block = InfoOf(type.dtype).block_bytes;
      for (size_t at = 0; at < bytes.size(); at += block) {
        SetScale(type, std::span(bytes).subspan(at, block));
      }
      std::vector<float> values(tensor->elements());
      ASSERT_TRUE(Dequantize(type.dtype, bytes, values));
      const auto raw = std::as_bytes(std::span(values));
      floats.emplace(name, std::vector<std::byte>(raw.begin(), raw.end()));
      blocks.emplace(name, std::move(bytes));
    }
    const fs::path path = TemporaryDirectory() / "types.gguf";
    WriteModel(model, type.dtype, blocks, path);
    const std::vector<float> found = Logits(path);
    WriteModel(model, DType::kF32, floats, path);
    const std::vector<float> expected = Logits(path);
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
