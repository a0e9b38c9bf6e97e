#include "models/quantize/quantize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/base/read_file_test_util.h"
#include "core/gguf/dequantize.h"
#include "core/gguf/gguf_writer.h"

namespace rullama {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kRow = 256;
constexpr uint64_t kRows = 600;  // more than one slice of a thread

struct SourceTensor {
  std::string name;
  std::vector<uint64_t> dims;
  std::vector<float> values;
};

std::vector<float> Values(uint64_t count, float scale) {
  std::vector<float> values(count);
  for (uint64_t i = 0; i < count; ++i) {
    values[i] = scale * std::sin(static_cast<float>(i) * 0.37f + static_cast<float>(i % 97));
  }
  return values;
}

std::vector<SourceTensor> Tensors() {
  return {{"token_embd.weight", {kRow, kRows}, Values(kRow * kRows, 0.1f)},
          {"output_norm.weight", {kRow}, Values(kRow, 1)},
          {"blk.0.attn_q.weight", {kRow, 3}, Values(kRow * 3, 0.02f)},
          {"blk.0.ffn_down_exps.weight", {160, 4, 3}, Values(160 * 12, 0.02f)}};
}

class QuantizeFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* const info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(::testing::TempDir()) / (std::string("quantize_") + info->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // A file of f32 with an alignment that is not the default.
  GgufFile Source(const std::vector<SourceTensor>& tensors,
                  const std::string& architecture = "gemma4") {
    GgufWriter writer;
    EXPECT_TRUE(writer.Set("general.architecture", architecture));
    EXPECT_TRUE(writer.Set("general.alignment", uint32_t{64}));
    EXPECT_TRUE(writer.Set("general.file_type", uint32_t{0}));
    EXPECT_TRUE(writer.Set(architecture + ".block_count", uint32_t{1}));
    EXPECT_TRUE(writer.SetStrings("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b"}));
    for (const SourceTensor& tensor : tensors) {
      EXPECT_TRUE(writer.AddTensor(tensor.name, DType::kF32, tensor.dims));
    }
    auto output = writer.Begin(path("in.gguf"));
    EXPECT_TRUE(output);
    for (const SourceTensor& tensor : tensors) {
      EXPECT_TRUE(output->Append(std::as_bytes(std::span(tensor.values))));
    }
    EXPECT_TRUE(output->Finish());
    auto file = GgufFile::Open(path("in.gguf"));
    EXPECT_TRUE(file) << file.error().ToString();
    return *std::move(file);
  }

  static QuantizeOptions Options(const char* mix) { return {.mix = *FindQuantMix(mix)}; }
  [[nodiscard]] fs::path path(const char* name) const { return folder_ / name; }
  [[nodiscard]] std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      names.push_back(entry.path().filename().string());
    }
    std::ranges::sort(names);
    return names;
  }
  [[nodiscard]] std::string Bytes(const char* name) const { return ReadWholeFile(path(name)); }

 private:
  fs::path folder_;
};

TEST_F(QuantizeFileTest, KeepsAllButTheTypesOfMatrices) {
  const auto tensors = Tensors();
  const GgufFile source = Source(tensors);
  const auto report = QuantizeFile(source, Options("Q4_K_M"), path("out.gguf"));
  ASSERT_TRUE(report) << report.error().ToString();
  const std::map<DType, uint64_t> converted = {
      {DType::kQ4_K, 1}, {DType::kQ6_K, 1}, {DType::kQ8_0, 1}};
  EXPECT_EQ(report->converted, converted);
  EXPECT_EQ(report->copied, 1u);
  const auto file = GgufFile::Open(path("out.gguf"));
  ASSERT_TRUE(file) << file.error().ToString();
  EXPECT_EQ(file->alignment(), 64u);
  std::vector<std::string> keys;
  for (const GgufEntry& entry : file->metadata()) keys.emplace_back(entry.key);
  EXPECT_THAT(keys, ElementsAre("general.architecture", "general.alignment", "general.file_type",
                                "gemma4.block_count", "tokenizer.ggml.tokens",
                                "general.quantization_version"));
  EXPECT_EQ(*file->GetU32("general.file_type"), 15u);
  EXPECT_EQ(*file->GetU32("general.quantization_version"), 2u);
  uint64_t bytes = 0;
  const DType kTypes[] = {DType::kQ6_K, DType::kF32, DType::kQ4_K, DType::kQ8_0};
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorInfo& tensor = file->tensors()[i];
    EXPECT_EQ(tensor.name, tensors[i].name);
    EXPECT_EQ(tensor.dtype, kTypes[i]) << tensor.name;
    EXPECT_EQ(tensor.offset % 64, 0u);
    bytes += tensor.bytes;
    std::vector<float> values(tensor.elements());
    ASSERT_TRUE(Dequantize(tensor.dtype, file->data(tensor), values));
    double error = 0;
    double square = 0;
    for (size_t j = 0; j < values.size(); ++j) {
      error += std::pow(static_cast<double>(values[j] - tensors[i].values[j]), 2);
      square += std::pow(static_cast<double>(tensors[i].values[j]), 2);
    }
    EXPECT_LT(std::sqrt(error / square), 0.08) << tensor.name;
  }
  EXPECT_EQ(report->bytes_after, bytes);
}

// Of an importance matrix with these columns for `name`.
Importance ImportanceOf(const std::string& name, const std::vector<float>& columns) {
  std::vector<std::byte> bytes;
  const auto append = [&](const void* data, size_t size) {
    const auto* first = static_cast<const std::byte*>(data);
    bytes.insert(bytes.end(), first, first + size);
  };
  const auto number = [&](size_t value) {
    const auto word = static_cast<int32_t>(value);
    append(&word, sizeof(word));
  };
  number(1);
  number(name.size());
  append(name.data(), name.size());
  number(1);
  number(columns.size());
  append(columns.data(), columns.size() * sizeof(float));
  auto importance = Importance::ParseOld(bytes);
  EXPECT_TRUE(importance) << importance.error().ToString();
  return *std::move(importance);
}

TEST_F(QuantizeFileTest, ErrorsOfImportantColumnsAreSmaller) {
  const auto tensors = Tensors();
  const GgufFile source = Source(tensors);
  // Experts that find other columns important, and slices that end within a row of 160.
  std::vector<float> columns(size_t{160} * 3, 0.01f);
  for (size_t expert = 0; expert < 3; ++expert) columns[expert * 160 + expert] = 100;
  const Importance importance = ImportanceOf("blk.0.ffn_down_exps.weight", columns);
  // The squared error of each expert in its important column.
  const auto errors = [&](const char* name) {
    const auto file = GgufFile::Open(path(name));
    EXPECT_TRUE(file);
    const TensorInfo& tensor = *file->FindTensor("blk.0.ffn_down_exps.weight");
    std::vector<float> values(tensor.elements());
    EXPECT_TRUE(Dequantize(tensor.dtype, file->data(tensor), values));
    double error = 0;
    for (size_t row = 0; row < 12; ++row) {
      const size_t at = row * 160 + row / 4;
      error += std::pow(static_cast<double>(values[at] - tensors[3].values[at]), 2);
    }
    return error;
  };
  QuantizeOptions options = Options("Q4_0");
  std::map<std::string, double, std::less<>> told;
  options.on_tensor = [&](const QuantizedTensor& tensor) {
    told[std::string(tensor.name)] = tensor.error;
  };
  ASSERT_TRUE(QuantizeFile(source, options, path("plain.gguf")));
  options.importance = &importance;
  const auto report = QuantizeFile(source, options, path("weighted.gguf"));
  ASSERT_TRUE(report) << report.error().ToString();
  EXPECT_EQ(report->without_importance, 2u);
  EXPECT_LT(errors("weighted.gguf"), 0.2 * errors("plain.gguf"));
  EXPECT_THAT(told, ::testing::SizeIs(3));
  for (const auto& [name, error] : told) {
    EXPECT_GT(error, 0.001) << name;
    EXPECT_LT(error, 0.2) << name;
  }
}

TEST_F(QuantizeFileTest, ImportanceOfAnotherModelIsRefused) {
  const GgufFile source = Source(Tensors());
  const Importance importance = ImportanceOf("blk.0.attn_q.weight", {1, 2, 3});
  QuantizeOptions options = Options("Q4_0");
  options.importance = &importance;
  const auto report = QuantizeFile(source, options, path("never.gguf"));
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().id, "imatrix.shape");
  EXPECT_FALSE(fs::exists(path("never.gguf")));
}

TEST_F(QuantizeFileTest, BytesDoNotDependOnThreads) {
  const GgufFile source = Source(Tensors());
  QuantizeOptions options = Options("Q5_K_M");
  uint64_t last = 0;
  options.on_progress = [&](uint64_t done, uint64_t total) {
    EXPECT_GT(done, last);
    EXPECT_EQ(total, kRow * kRows + kRow + kRow * 3 + 160u * 12);
    last = done;
  };
  ASSERT_TRUE(QuantizeFile(source, options, path("one.gguf")));
  EXPECT_EQ(last, kRow * kRows + kRow + kRow * 3 + 160u * 12);
  options.on_progress = nullptr;
  options.threads = 5;
  ASSERT_TRUE(QuantizeFile(source, options, path("five.gguf")));
  EXPECT_EQ(Bytes("one.gguf"), Bytes("five.gguf"));
}

TEST_F(QuantizeFileTest, AFileOfAnyArchitectureIsQuantised) {
  const GgufFile source = Source(Tensors(), "diffusion-gemma");
  EXPECT_TRUE(QuantizeFile(source, Options("Q4_0"), path("out.gguf")));
}

TEST_F(QuantizeFileTest, WhatIsNotFiniteIsNamedAndLeavesNoFile) {
  auto tensors = Tensors();
  constexpr size_t kBad = kRow * kRows - 5;  // in the last slice
  tensors[0].values[kBad] = NAN;
  const GgufFile source = Source(tensors);
  QuantizeOptions options = Options("Q8_0");
  options.threads = 3;
  const auto report = QuantizeFile(source, options, path("out.gguf"));
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().id, "gguf.quantize_value");
  EXPECT_THAT(report.error().message, HasSubstr("token_embd.weight"));
  EXPECT_THAT(report.error().message, HasSubstr("element " + std::to_string(kBad) + " "));
  EXPECT_THAT(Names(), ElementsAre("in.gguf"));
}

TEST_F(QuantizeFileTest, QuantisedFilesAreRefused) {
  const GgufFile source = Source(Tensors());
  ASSERT_TRUE(QuantizeFile(source, Options("Q8_0"), path("small.gguf")));
  const auto small = GgufFile::Open(path("small.gguf"));
  ASSERT_TRUE(small);
  const auto report = QuantizeFile(*small, Options("Q4_0"), path("smaller.gguf"));
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().id, "quantize.source_type");
  EXPECT_THAT(report.error().message, HasSubstr("'token_embd.weight' has type q8_0"));
  EXPECT_THAT(Names(), ElementsAre("in.gguf", "small.gguf"));
}

TEST_F(QuantizeFileTest, CancellingLeavesNoFile) {
  const GgufFile source = Source(Tensors());
  QuantizeOptions options = Options("Q4_K_M");
  const auto cancel = std::make_shared<std::atomic<bool>>(false);
  options.cancel = cancel;
  options.on_progress = [&](uint64_t, uint64_t) { *cancel = true; };
  const auto report = QuantizeFile(source, options, path("out.gguf"));
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().id, "run.cancelled");
  EXPECT_THAT(Names(), ElementsAre("in.gguf"));
}

TEST_F(QuantizeFileTest, OutputMustBeAnotherFile) {
  const GgufFile source = Source(Tensors());
  const std::string before = Bytes("in.gguf");
  fs::create_symlink(path("in.gguf"), path("link.gguf"));
  for (const char* name : {"in.gguf", "link.gguf"}) {
    const auto report = QuantizeFile(source, Options("Q8_0"), path(name));
    ASSERT_FALSE(report) << name;
    EXPECT_EQ(report.error().id, "io.same_file");
  }
  fs::create_directory(path("folder"));
  for (const fs::path& bad : {path("folder"), path("no/such/folder.gguf")}) {
    const auto report = QuantizeFile(source, Options("Q8_0"), bad);
    ASSERT_FALSE(report) << bad;
    EXPECT_EQ(report.error().id, "io.open") << bad;
  }
  EXPECT_EQ(Bytes("in.gguf"), before);
}

TEST_F(QuantizeFileTest, AFileThatChangedWhileItWasReadIsAnError) {
  const GgufFile source = Source(Tensors());
  QuantizeOptions options = Options("Q8_0");
  options.on_progress = [&](uint64_t, uint64_t) {
    fs::resize_file(path("in.gguf"), fs::file_size(path("in.gguf")) + 1);
  };
  const auto report = QuantizeFile(source, options, path("out.gguf"));
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().id, "io.mapped_file_changed");
  EXPECT_THAT(Names(), ElementsAre("in.gguf"));
}

}  // namespace
}  // namespace rullama
