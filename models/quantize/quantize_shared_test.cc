// Small models of every kind against the files that llama-quantize made of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "models/quantize/quantize.h"

namespace rullama {
namespace {

GgufFile Open(const std::string& path) {
  auto file = GgufFile::Open(path);
  EXPECT_TRUE(file) << file.error().ToString();
  return *std::move(file);
}

std::string SharedModel(const std::string& name) {
  return std::string(RULLAMA_SOURCE_DIR) + "/../shared/models/" + name + ".gguf";
}

class QuantizeSharedModelTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    output_ = std::filesystem::path(::testing::TempDir()) /
              (std::string("quantize_shared_") + GetParam() + ".gguf");
  }
  void TearDown() override { std::filesystem::remove(output_); }

  // Quantises the f16 file of a model and opens the result.
  GgufFile Quantised(const std::string& model, const char* mix) {
    const GgufFile source = Open(SharedModel(model + "-f16"));
    const auto report = QuantizeFile(source, {.mix = *FindQuantMix(mix), .threads = 2}, output_);
    EXPECT_TRUE(report) << report.error().ToString();
    return Open(output_.string());
  }

 private:
  std::filesystem::path output_;
};

TEST_P(QuantizeSharedModelTest, TypesAreThoseOfLlamaQuantize) {
  const GgufFile ours = Quantised(GetParam(), "Q4_K_M");
  const GgufFile theirs = Open(SharedModel(std::string(GetParam()) + "-Q4_K_M"));
  ASSERT_EQ(ours.tensors().size(), theirs.tensors().size());
  for (const TensorInfo& tensor : theirs.tensors()) {
    const TensorInfo* const found = ours.FindTensor(tensor.name);
    ASSERT_NE(found, nullptr) << tensor.name;
    EXPECT_EQ(NameOf(found->dtype), NameOf(tensor.dtype)) << tensor.name;
    EXPECT_EQ(found->dims, tensor.dims) << tensor.name;
  }
  ASSERT_EQ(ours.metadata().size(), theirs.metadata().size());
  for (const GgufEntry& entry : theirs.metadata()) {
    const GgufValue* const found = ours.Find(entry.key);
    ASSERT_NE(found, nullptr) << entry.key;
    EXPECT_EQ(found->type, entry.value.type) << entry.key;
    EXPECT_TRUE(std::ranges::equal(found->bytes, entry.value.bytes)) << entry.key;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, QuantizeSharedModelTest,
                         ::testing::Values("tiny-e2b", "tiny-dense", "tiny-moe"),
                         [](const auto& row) { return std::string(row.param).substr(5); });

class QuantizeDiffusionTest : public QuantizeSharedModelTest {};

// llama-quantize does not take these files, so the rules speak: eight experts, rows of 480 and 160.
TEST_P(QuantizeDiffusionTest, TypesFollowTheRules) {
  const GgufFile file = Quantised(GetParam(), "Q4_K_M");
  const auto type_of = [&](const char* name) {
    const TensorInfo* const tensor = file.FindTensor(name);
    return tensor == nullptr ? std::string_view("missing") : NameOf(tensor->dtype);
  };
  EXPECT_EQ(*file.GetU32("general.file_type"), 15u);
  EXPECT_EQ(type_of("token_embd.weight"), "q6_k");
  EXPECT_EQ(type_of("self_cond_down.weight"), "q5_0");
  EXPECT_EQ(type_of("self_cond_up.weight"), "q4_k");
  EXPECT_EQ(type_of("blk.0.attn_q.weight"), "q4_k");
  EXPECT_EQ(type_of("blk.0.attn_v.weight"), "q8_0");
  EXPECT_EQ(type_of("blk.0.ffn_gate_inp.weight"), "f32");
  EXPECT_EQ(type_of("blk.0.ffn_down_exps.weight"), "q5_0");
  EXPECT_EQ(type_of("blk.5.ffn_down_exps.weight"), "q8_0");
}

INSTANTIATE_TEST_SUITE_P(Models, QuantizeDiffusionTest, ::testing::Values("tiny-diffusion"),
                         [](const auto& row) { return std::string(row.param).substr(5); });

}  // namespace
}  // namespace rullama
