// Models that are split into several files, from outside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/must_test_util.h"
#include "core/gguf/gguf.h"
#include "core/gguf/gguf_writer.h"
#include "tests/cli/program.h"
#include "tests/fakes/adapter_folder.h"

namespace rullama::cli_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr uint16_t kParts = 3;

std::string PartName(int part) { return "split-0000" + std::to_string(part) + "-of-00003.gguf"; }

class SplitModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = TemporaryDirectory() / "split";
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    const GgufFile whole = Must(GgufFile::Open(TinyModel()));
    for (uint16_t part = 0; part < kParts; ++part) WritePart(whole, part);
  }

  // The metadata are in the first part, which has no tensors; the others have every second one.
  void WritePart(const GgufFile& whole, uint16_t part) {
    GgufWriter writer;
    if (part == 0) {
      for (const GgufEntry& entry : whole.metadata()) {
        ASSERT_TRUE(writer.SetRaw(entry.key, entry.value));
      }
    }
    ASSERT_TRUE(writer.Set("split.no", part));
    ASSERT_TRUE(writer.Set("split.count", kParts));
    ASSERT_TRUE(writer.Set("split.tensors.count", static_cast<int32_t>(whole.tensors().size())));
    std::vector<TensorInfo> own;
    for (size_t i = 0; i < whole.tensors().size(); ++i) {
      if (part == i % 2 + 1) own.push_back(whole.tensors()[i]);
    }
    for (const TensorInfo& tensor : own) {
      ASSERT_TRUE(
          writer.AddTensor(tensor.name, tensor.dtype, std::span(tensor.dims).first(tensor.rank)));
    }
    GgufOutput output = Must(writer.Begin(folder_ / PartName(part + 1)));
    for (const TensorInfo& tensor : own) ASSERT_TRUE(output.Append(whole.data(tensor)));
    ASSERT_TRUE(output.Finish());
  }

  [[nodiscard]] std::string Part(int part) const { return (folder_ / PartName(part)).string(); }

  // What a model answers.
  static std::string Answer(const std::string& model) {
    const RunResult run =
        RunRullama({"-m", model, "--raw", "-p", "one two", "-n", "6", "--greedy"});
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return run.out;
  }

  fs::path folder_;
};

TEST_F(SplitModelTest, RunsByTheNameOfAnyPart) {
  const std::string expected = Answer(TinyModel());
  EXPECT_EQ(Answer(Part(1)), expected);
  EXPECT_EQ(Answer(Part(3)), expected);
}

TEST_F(SplitModelTest, IsInspectedAsAWhole) {
  const auto inspect = [](const std::string& path) {
    const RunResult run = RunRullama({"inspect", path, "--json"});
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return nlohmann::json::parse(run.out);
  };
  const auto whole = inspect(TinyModel());
  const auto split = inspect(Part(2));
  EXPECT_EQ(whole.at("parts").size(), 1u);
  EXPECT_EQ(split.at("parts").size(), kParts);
  EXPECT_EQ(split.at("parts").at(0).at("path"), Part(1));
  EXPECT_EQ(split.at("runnable").at("yes"), true);
  for (const char* same : {"metadata", "parameters", "types"}) {
    EXPECT_EQ(split.at(same), whole.at(same)) << same;
  }
  EXPECT_EQ(RunRullama({"show", Part(2)}).exit_code, 0);
}

TEST_F(SplitModelTest, IsCopiedToOneFile) {
  const std::string path = (folder_ / "whole.gguf").string();
  const RunResult copied = RunRullama({"quantize", Part(2), path, "--copy"});
  ASSERT_EQ(copied.exit_code, 0) << copied.err;
  EXPECT_THAT(copied.err, HasSubstr("tensors as they were"));
  const GgufFile whole = Must(GgufFile::Open(TinyModel()));
  const GgufFile copy = Must(GgufFile::Open(path));
  EXPECT_EQ(copy.metadata().size(), whole.metadata().size());
  ASSERT_EQ(copy.tensors().size(), whole.tensors().size());
  for (const TensorInfo& tensor : whole.tensors()) {
    const TensorInfo* found = copy.FindTensor(tensor.name);
    ASSERT_NE(found, nullptr) << tensor.name;
    EXPECT_EQ(found->dtype, tensor.dtype);
    EXPECT_TRUE(std::ranges::equal(copy.data(*found), whole.data(tensor))) << tensor.name;
  }
  const RunResult both = RunRullama({"quantize", Part(2), path, "Q8_0", "--copy"});
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_THAT(both.err, HasSubstr("either a TYPE or --copy"));
}

TEST_F(SplitModelTest, IsComparedAsAWhole) {
  const RunResult run =
      RunRullama({"diff", "-m", Part(2), "--backends", "cpu,reference", "-p", "The prince"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("blk.7.out"));
}

TEST_F(SplitModelTest, TakesAnAdapterAsTheWholeDoes) {
  const fs::path adapter = folder_ / "adapter";
  WriteAdapterFolder(adapter, 512);
  const auto merged = [&](const std::string& model, const char* name) {
    const std::string out = (folder_ / name).string();
    const RunResult run = RunRullama(
        {"export-lora", "-m", model, "--lora", adapter.string(), "-o", out, "--type", "f16"});
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return out;
  };
  const GgufFile from_parts = Must(GgufFile::Open(merged(Part(3), "from-parts.gguf")));
  const GgufFile from_whole = Must(GgufFile::Open(merged(TinyModel(), "from-whole.gguf")));
  ASSERT_EQ(from_parts.tensors().size(), from_whole.tensors().size());
  for (const TensorInfo& tensor : from_whole.tensors()) {
    const TensorInfo* found = from_parts.FindTensor(tensor.name);
    ASSERT_NE(found, nullptr) << tensor.name;
    EXPECT_TRUE(std::ranges::equal(from_parts.data(*found), from_whole.data(tensor)))
        << tensor.name;
  }
}

TEST_F(SplitModelTest, OtherPartsAreNotOverwritten) {
  const RunResult run = RunRullama({"quantize", Part(1), Part(2), "--copy"});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, HasSubstr("[io.same_file]"));
}

TEST_F(SplitModelTest, MissingPartsAreNamed) {
  fs::remove(Part(2));
  const RunResult run = RunRullama({"-m", Part(1), "-p", "x"});
  EXPECT_EQ(run.exit_code, 4);
  EXPECT_THAT(run.err, HasSubstr("one is not next to it: " + PartName(2)));
  EXPECT_THAT(run.err, HasSubstr("[gguf.split_missing]"));
}

}  // namespace
}  // namespace rullama::cli_test
