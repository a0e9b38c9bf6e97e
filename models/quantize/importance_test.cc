#include "models/quantize/importance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include "core/base/must_test_util.h"
#include "core/gguf/gguf_writer.h"
#include "models/quantize/importance_sums.h"

namespace rullama {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pointee;

struct Matrix {
  std::string name;
  int32_t calls;
  std::vector<float> columns;
};

void Append(std::vector<std::byte>& bytes, const void* data, size_t size) {
  const auto* first = static_cast<const std::byte*>(data);
  bytes.insert(bytes.end(), first, first + size);
}
void Append(std::vector<std::byte>& bytes, int32_t number) {
  Append(bytes, &number, sizeof(number));
}

std::vector<std::byte> OldForm(const std::vector<Matrix>& matrices) {
  std::vector<std::byte> bytes;
  Append(bytes, static_cast<int32_t>(matrices.size()));
  for (const Matrix& matrix : matrices) {
    Append(bytes, static_cast<int32_t>(matrix.name.size()));
    Append(bytes, matrix.name.data(), matrix.name.size());
    Append(bytes, matrix.calls);
    Append(bytes, static_cast<int32_t>(matrix.columns.size()));
    Append(bytes, matrix.columns.data(), matrix.columns.size() * sizeof(float));
  }
  return bytes;
}

TEST(Importance, OfTheOlderForm) {
  std::vector<std::byte> bytes = OldForm({{"a.weight", 4, {8, 0, 2}}, {"b.weight", 0, {1, 5}}});
  const size_t whole = bytes.size();
  Append(bytes, int32_t{12});  // chunks, and the name of the text
  const Importance importance = Must(Importance::ParseOld(bytes));
  EXPECT_EQ(importance.size(), 2U);
  EXPECT_THAT(importance.Find("a.weight"), Pointee(ElementsAre(2, 0, 0.5F)));
  EXPECT_THAT(importance.Find("b.weight"), Pointee(ElementsAre(1, 5)));
  EXPECT_EQ(importance.Find("c.weight"), nullptr);
  for (size_t size = 0; size < whole; ++size) {
    const auto cut = Importance::ParseOld(std::span(bytes).first(size));
    ASSERT_FALSE(cut) << size;
    EXPECT_EQ(cut.error().id, "imatrix.file");
  }
}

TEST(Importance, RefusesWhatIsNoMeanOfSquares) {
  for (const float value :
       {-1.0F, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const auto parsed = Importance::ParseOld(OldForm({{"a.weight", 1, {1, value}}}));
    ASSERT_FALSE(parsed) << value;
    EXPECT_THAT(parsed.error().message, HasSubstr("'a.weight' has the mean square"));
  }
  EXPECT_FALSE(Importance::ParseOld(OldForm({})));
  EXPECT_FALSE(Importance::ParseOld(OldForm({{"", 1, {1}}})));
  EXPECT_FALSE(Importance::ParseOld(OldForm({{"a", -1, {1}}})));
  EXPECT_FALSE(Importance::ParseOld(OldForm({{"a", 1, {}}})));
}

// Three experts, of which no token chose the second: llama-imatrix writes ones times the calls.
TEST(Importance, OfExpertsInTheOlderForm) {
  const Importance importance =
      Must(Importance::ParseOld(OldForm({{"x.weight", 4, {8, 2, 4, 4, 0, 0}}})));
  const std::vector<float>* const columns = importance.Find("x.weight");
  EXPECT_THAT(columns, Pointee(ElementsAre(2, 0.5F, 1, 1, 0, 0)));
  EXPECT_EQ(Importance::UnseenExperts(*columns, 2), 2U);
  EXPECT_EQ(Importance::UnseenExperts(*columns, 6), 0U);
}

// Of a matrix with two experts, one of which no token chose.
TEST(Importance, OfAGgufFile) {
  const auto path = std::filesystem::path(::testing::TempDir()) / "importance.gguf";
  const std::vector<float> sums = {8, 4, 0, 0}, counts = {2, 0};
  GgufWriter writer;
  EXPECT_TRUE(writer.Set("general.type", "imatrix"));
  constexpr uint64_t kSums[] = {2, 2}, kCounts[] = {1, 2};
  EXPECT_TRUE(writer.AddTensor("x.weight.in_sum2", DType::kF32, kSums));
  EXPECT_TRUE(writer.AddTensor("x.weight.counts", DType::kF32, kCounts));
  GgufOutput output = Must(writer.Begin(path));
  EXPECT_TRUE(output.Append(std::as_bytes(std::span(sums))));
  EXPECT_TRUE(output.Append(std::as_bytes(std::span(counts))));
  EXPECT_TRUE(output.Finish());
  const Importance importance = Must(Importance::Read(path));
  EXPECT_EQ(importance.size(), 1U);
  EXPECT_THAT(importance.Find("x.weight"), Pointee(ElementsAre(4, 2, 1, 1)));
  EXPECT_EQ(Importance::UnseenExperts(*importance.Find("x.weight"), 2), 1U);
  std::filesystem::remove(path);
}

TEST(Importance, OfMeasuredSums) {
  const auto path = std::filesystem::path(::testing::TempDir()) / "sums.gguf";
  ImportanceSums sums;
  sums.Add("x.weight", std::vector<float>{1, 2, 3, 0}, 2);
  sums.Add("x.weight", std::vector<float>{-1, 4}, 2);
  EXPECT_TRUE(sums.Write(Must(AtomicFile::Create(path)), {.text = "t", .chunks = 1}));
  const Importance importance = Must(Importance::Read(path));
  EXPECT_THAT(importance.Find("x.weight"),
              Pointee(ElementsAre(::testing::FloatEq(11.0F / 3), ::testing::FloatEq(20.0F / 3))));
  std::filesystem::remove(path);
}

// Two rows choose two of four experts each; their input is the same for both, their inner
// activations are not.
TEST(Importance, OfMeasuredExperts) {
  const auto path = std::filesystem::path(::testing::TempDir()) / "experts.gguf";
  const std::vector<int32_t> experts = {0, 3, 3, 1};
  ImportanceSums sums;
  sums.Add("up", std::vector<float>{1, 2, 3, 4}, 2, {experts, 4});
  sums.Add("down", std::vector<float>{1, 2, 3, 4}, 1, {experts, 4});
  EXPECT_EQ(sums.UnseenExperts("up"), 1U);
  EXPECT_TRUE(sums.Write(Must(AtomicFile::Create(path)), {.text = "t", .chunks = 1}));
  const GgufFile file = Must(GgufFile::Open(path));
  const TensorInfo* const squares = file.FindTensor("up.in_sum2");
  const TensorInfo* const counts = file.FindTensor("up.counts");
  ASSERT_TRUE(squares != nullptr && counts != nullptr);
  EXPECT_EQ(std::vector(squares->dims.begin(), squares->dims.begin() + squares->rank),
            (std::vector<uint64_t>{2, 4}));
  EXPECT_EQ(std::vector(counts->dims.begin(), counts->dims.begin() + counts->rank),
            (std::vector<uint64_t>{1, 4}));
  const Importance importance = Must(Importance::Read(path));
  EXPECT_THAT(importance.Find("up"), Pointee(ElementsAre(1, 4, 9, 16, 1, 1, 5, 10)));
  EXPECT_THAT(importance.Find("down"), Pointee(ElementsAre(1, 16, 1, 6.5F)));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace rullama
