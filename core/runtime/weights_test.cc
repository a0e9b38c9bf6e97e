#include "core/runtime/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <span>
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

TEST(GgufWeightsTest, BorrowsConstantsWithoutACopy) {
  const GgufFile file = FileWith("a", {1, 2});
  std::array<float, 2> numbers = {5, 6};
  GgufWeights weights(file);
  weights.AddBorrowedConstant("a", {DType::kF32, {2}}, std::as_bytes(std::span(numbers)));
  EXPECT_THAT(Numbers(weights, "a"), ElementsAre(5, 6));
  numbers[0] = 7;
  EXPECT_THAT(Numbers(weights, "a"), ElementsAre(7, 6));
}

TEST(GgufWeightsTest, ReadsAFileByRanges) {
  const std::string path = ::testing::TempDir() + "/weights_ranges.gguf";
  std::vector<float> numbers(kGgufSmallTensorBytes);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
  const uint64_t columns = numbers.size() / 8;
  GgufWriter writer;
  const std::vector<uint64_t> dims = {columns, 8};
  ASSERT_TRUE(writer.AddTensor("table", DType::kF32, dims));
  auto output = Must(writer.Begin(path));
  ASSERT_TRUE(output.Append(std::as_bytes(std::span(numbers))));
  ASSERT_TRUE(output.Finish());
  const GgufFile file = Must(GgufFile::Read(Must(OpenRangeReader(path))));
  const GgufWeights weights(file);
  Value rows{.type = {DType::kF32, {2, static_cast<int64_t>(columns)}},
             .lifetime = Lifetime::kConstant,
             .source = "table",
             .first_row = 3};
  EXPECT_TRUE(weights.Check(rows));
  const auto bytes = Must(weights.Bytes(rows));
  std::vector<float> found(bytes.size() / sizeof(float));
  std::memcpy(found.data(), bytes.data(), bytes.size());
  EXPECT_EQ(found, std::vector<float>(numbers.begin() + static_cast<ptrdiff_t>(3 * columns),
                                      numbers.begin() + static_cast<ptrdiff_t>(5 * columns)));
  weights.Release(bytes);
  // The second number of the first of these rows, and those after it.
  std::array<float, 3> some;
  ASSERT_TRUE(weights.Copy(rows, sizeof(float), std::as_writable_bytes(std::span(some))));
  const auto first = static_cast<float>(3 * columns + 1);
  EXPECT_THAT(some, ElementsAre(first, first + 1, first + 2));
  EXPECT_TRUE(weights.IsReadByRow(rows));
  EXPECT_FALSE(GgufWeights(Must(GgufFile::Open(path))).IsReadByRow(rows)) << "it is mapped";
  rows.first_row = 7;
  EXPECT_EQ(weights.Check(rows).error().id, "model.tensor_shape");
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  rows.first_row = 6;
  EXPECT_EQ(weights.Bytes(rows).error().id, "io.read");
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace rullama
