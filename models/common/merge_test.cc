// Adapters merged into a small file: values, types, kept tensors, and refusals.
#include "models/common/merge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/must_test_util.h"
#include "core/gguf/dequantize.h"
#include "core/gguf/gguf_writer.h"
#include "core/gguf/quantize.h"

namespace rullama {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr uint64_t kWidth = 64;

struct MergeCase {
  const char* name;
  DType type;
  std::vector<uint64_t> dims;  // fastest first
};
// The last two get no adapter.
const MergeCase kTensors[] = {
    {"plain", DType::kF32, {kWidth, 4}},      {"quantised", DType::kQ8_0, {kWidth, 6}},
    {"experts", DType::kF16, {kWidth, 3, 2}}, {"other", DType::kQ4_0, {kWidth, 2}},
    {"norm", DType::kF32, {kWidth}},
};

std::vector<float> Wave(size_t count, float step) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = std::sin(step * static_cast<float>(i + 1));
  return values;
}

AdapterWeight WeightOf(const MergeCase& tensor, int64_t rank) {
  const int64_t experts = tensor.dims.size() == 3 ? static_cast<int64_t>(tensor.dims[2]) : 0;
  AdapterWeight weight{.tensor = tensor.name,
                       .experts = experts,
                       .rank = rank,
                       .inputs = static_cast<int64_t>(tensor.dims[0]),
                       .outputs = static_cast<int64_t>(tensor.dims[1]),
                       .scale = 0.5,
                       .a = {},
                       .b = {}};
  const int64_t groups = std::max<int64_t>(1, experts);
  weight.a = Wave(static_cast<size_t>(groups * rank * weight.inputs), 0.3F);
  weight.b = Wave(static_cast<size_t>(groups * rank * weight.outputs), 0.7F);
  return weight;
}

// W + sum of scale B A by its definition.
std::vector<double> MergedByHand(std::vector<float> values, const AdapterWeight& w, double scale) {
  std::vector<double> merged(values.begin(), values.end());
  for (size_t i = 0; i < merged.size(); ++i) {
    const auto row = static_cast<int64_t>(i) / w.inputs;
    const int64_t expert = row / w.outputs;
    for (int64_t k = 0; k < w.rank; ++k) {
      const int64_t column = static_cast<int64_t>(i) % w.inputs;
      merged[i] +=
          scale * w.scale * static_cast<double>(w.b[static_cast<size_t>(row * w.rank + k)]) *
          static_cast<double>(w.a[static_cast<size_t>((expert * w.rank + k) * w.inputs + column)]);
    }
  }
  return merged;
}

class MergeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    GgufWriter writer;
    ASSERT_TRUE(writer.Set("general.architecture", "gemma4"));
    ASSERT_TRUE(writer.Set("general.file_type", uint32_t{7}));
    for (const MergeCase& tensor : kTensors) {
      ASSERT_TRUE(writer.AddTensor(tensor.name, tensor.type, tensor.dims));
    }
    GgufOutput output = Must(writer.Begin(folder_ / "base.gguf"));
    for (const MergeCase& tensor : kTensors) {
      uint64_t count = 1;
      for (const uint64_t dim : tensor.dims) count *= dim;
      std::vector<std::byte> bytes(RowBytes(tensor.type, count));
      ASSERT_TRUE(Quantize(tensor.type, Wave(count, 0.11F), bytes));
      ASSERT_TRUE(output.Append(bytes));
    }
    ASSERT_TRUE(output.Finish());
    base_ = std::make_unique<GgufFile>(Must(GgufFile::Open(folder_ / "base.gguf")));
    Adapter adapter;
    for (size_t i = 0; i < 3; ++i) {
      adapter.weights.push_back(WeightOf(kTensors[i], static_cast<int64_t>(i) + 1));
    }
    adapters_ = {{std::move(adapter), 2}};
  }
  void TearDown() override { fs::remove_all(folder_); }

  GgufFile Merged(const MergeOptions& options, const char* name = "merged.gguf") {
    merged_ = Must(MergeAdapters(*base_, adapters_, options, folder_ / name));
    return Must(GgufFile::Open(folder_ / name));
  }
  [[nodiscard]] std::string ErrorOf(const MergeOptions& options,
                                    const char* name = "x.gguf") const {
    const auto merged = MergeAdapters(*base_, adapters_, options, folder_ / name);
    return merged ? "no error" : merged.error().ToString();
  }
  static std::vector<float> ValuesOf(const GgufFile& file, const TensorInfo& tensor) {
    std::vector<float> values(tensor.elements());
    EXPECT_TRUE(Dequantize(tensor.dtype, file.data(tensor), values));
    return values;
  }
  // Relative L2 of each adapted tensor against the definition.
  std::vector<double> ErrorsOf(const GgufFile& file) const {
    std::vector<double> errors;
    for (const AdapterWeight& weight : adapters_[0].adapter.weights) {
      const auto expected = MergedByHand(ValuesOf(*base_, *base_->FindTensor(weight.tensor)),
                                         weight, adapters_[0].scale);
      const auto found = ValuesOf(file, *file.FindTensor(weight.tensor));
      double difference = 0;
      double norm = 0;
      for (size_t i = 0; i < found.size(); ++i) {
        difference += std::pow(static_cast<double>(found[i]) - expected[i], 2);
        norm += expected[i] * expected[i];
      }
      errors.push_back(std::sqrt(difference / norm));
    }
    return errors;
  }

  const fs::path folder_ =
      fs::path(::testing::TempDir()) / ("merge_test_" + std::to_string(::getpid()));
  std::unique_ptr<const GgufFile> base_;
  std::vector<ScaledAdapter> adapters_;
  std::vector<MergedTensor> merged_;
};

TEST_F(MergeTest, TensorsKeepTheirTypes) {
  const GgufFile file = Merged({});
  const std::vector<double> errors = ErrorsOf(file);
  // f32, q8_0 with 8 bits for the largest of 32, f16.
  EXPECT_LT(errors[0], 1e-6);
  EXPECT_LT(errors[1], 5e-3);
  EXPECT_LT(errors[2], 5e-4);
  ASSERT_EQ(merged_.size(), 3u);
  for (size_t i = 0; i < merged_.size(); ++i) {
    EXPECT_EQ(merged_[i].name, kTensors[i].name);
    EXPECT_EQ(merged_[i].type, kTensors[i].type);
    EXPECT_NEAR(merged_[i].error, errors[i], 1e-6);
    EXPECT_GT(merged_[i].change, 0.1);
  }
  ASSERT_EQ(file.metadata().size(), base_->metadata().size());
  EXPECT_EQ(Must(file.FindU32("general.file_type")), 7u);
  for (const char* name : {"other", "norm"}) {
    const auto before = base_->data(*base_->FindTensor(name));
    const auto after = file.data(*file.FindTensor(name));
    EXPECT_TRUE(std::ranges::equal(before, after)) << name;
  }
}

TEST_F(MergeTest, AnotherTypeIsThatOfMergedTensorsOnly) {
  const GgufFile file = Merged({.type = DType::kF16});
  for (const double error : ErrorsOf(file)) EXPECT_LT(error, 5e-4);
  EXPECT_EQ(file.FindTensor("quantised")->dtype, DType::kF16);
  EXPECT_EQ(file.FindTensor("other")->dtype, DType::kQ4_0);
}

TEST_F(MergeTest, NarrowTensorsGetTheLeastType) {
  AdapterWeight narrow = WeightOf(kTensors[3], 1);
  narrow.scale = 0.03;
  adapters_[0].adapter.weights.push_back(narrow);
  // Four bits lose what the adapter adds; nothing is written to know that.
  const auto measured = Must(MeasureMerge(*base_, adapters_, {}));
  EXPECT_EQ(measured.back().type, DType::kQ4_0);
  EXPECT_TRUE(measured.back().loses_change());
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
  const GgufFile file = Merged({.least = DType::kQ8_0});
  EXPECT_EQ(file.FindTensor("other")->dtype, DType::kQ8_0);
  EXPECT_LT(merged_.back().error, measured.back().error / 4);
  EXPECT_FALSE(merged_.back().loses_change());
  EXPECT_EQ(file.FindTensor("plain")->dtype, DType::kF32);
  EXPECT_EQ(file.FindTensor("experts")->dtype, DType::kF16);
}

TEST_F(MergeTest, FilesOfAdaptersAreNotReplaced) {
  const fs::path adapter = folder_ / "adapter.gguf";
  fs::copy_file(folder_ / "base.gguf", adapter);
  adapters_[0].adapter.files = {adapter.string(), (folder_ / "adapter_config.json").string()};
  EXPECT_THAT(ErrorOf({}, "adapter.gguf"), HasSubstr("[io.same_file]"));
  EXPECT_EQ(fs::file_size(adapter), fs::file_size(folder_ / "base.gguf"));
}

TEST_F(MergeTest, BytesDoNotDependOnThreads) {
  const GgufFile one = Merged({.threads = 1}, "one.gguf");
  const GgufFile three = Merged({.threads = 3}, "three.gguf");
  EXPECT_TRUE(std::ranges::equal(one.bytes(), three.bytes()));
}

TEST_F(MergeTest, WhatDoesNotFitIsRefused) {
  EXPECT_THAT(ErrorOf({}, "base.gguf"), HasSubstr("[io.same_file]"));
  EXPECT_THAT(ErrorOf({.type = DType::kIQ2_XXS}), HasSubstr("[adapter.merge_type]"));
  AdapterWeight& weight = adapters_[0].adapter.weights[0];
  weight.outputs = 5;
  EXPECT_THAT(ErrorOf({}), HasSubstr("has 4 rows of 64 in the file, expected 5 rows of 64"));
  weight.tensor = "nowhere";
  EXPECT_THAT(ErrorOf({}), HasSubstr("the file has no tensor 'nowhere'"));
  weight = WeightOf(kTensors[0], 1);
  weight.b[0] = INFINITY;
  EXPECT_THAT(ErrorOf({}), HasSubstr("tensor 'plain'"));
  EXPECT_FALSE(fs::exists(folder_ / "x.gguf"));
}

}  // namespace
}  // namespace rullama
