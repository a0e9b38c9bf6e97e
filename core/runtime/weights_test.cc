#include "core/runtime/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "core/base/must_test_util.h"
#include "core/gguf/gguf_writer.h"

namespace rullama {
namespace {

using ::testing::ElementsAre;

// A file with one tensor of two numbers.
GgufFile FileWith(const std::string& tensor, std::array<float, 2> numbers) {
  const std::string path = ::testing::TempDir() + "/weights_" + tensor + ".gguf";
  GgufWriter writer;
  const std::vector<uint64_t> dims = {2};
  EXPECT_TRUE(writer.AddTensor(tensor, DType::kF32, dims));
  auto output = Must(writer.Begin(path));
  EXPECT_TRUE(output.Append(std::as_bytes(std::span(numbers))));
  EXPECT_TRUE(output.Finish());
  GgufFile file = Must(GgufFile::Open(path));
  std::filesystem::remove(path);
  return file;
}

std::vector<float> Numbers(const GgufWeights& weights, const std::string& source) {
  const Value constant{
      .type = {DType::kF32, {2}}, .lifetime = Lifetime::kConstant, .source = source};
  const auto bytes = Must(weights.Bytes(constant));
  std::vector<float> numbers(bytes.size() / sizeof(float));
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

TEST(GgufWeightsTest, TensorsOfAnotherFileHaveAPrefix) {
  const GgufFile file = FileWith("a", {1, 2});
  const GgufFile other = FileWith("b", {3, 4});
  GgufWeights weights(file);
  weights.AddFile("other.", other);
  EXPECT_THAT(Numbers(weights, "a"), ElementsAre(1, 2));
  EXPECT_THAT(Numbers(weights, "other.b"), ElementsAre(3, 4));
  for (const char* source : {"b", "other.a"}) {
    const Value missing{
        .type = {DType::kF32, {2}}, .lifetime = Lifetime::kConstant, .source = source};
    EXPECT_EQ(weights.Bytes(missing).error().id, "model.missing_tensor") << source;
  }
}

}  // namespace
}  // namespace rullama
