// The reader on real files: vocabularies and models written by other programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <string_view>

#include "core/gguf/gguf.h"
#include "core/gguf/gguf_writer.h"

namespace rullama {
namespace {

using ::testing::HasSubstr;

const std::filesystem::path kModels = RULLAMA_SOURCE_DIR "/../shared/models";

TEST(GgufSharedTest, VocabularyIsReadInPlace) {
  const auto file = GgufFile::Open(kModels / "gemma4-vocab.gguf");
  ASSERT_TRUE(file) << file.error().ToString();
  EXPECT_EQ(file->GetString("general.architecture").value(), "gemma4");
  const auto tokens = file->GetStrings("tokenizer.ggml.tokens").value();
  const auto merges = file->GetStrings("tokenizer.ggml.merges").value();
  EXPECT_EQ(tokens.size(), 262144u);
  EXPECT_EQ(merges.size(), 514906u);
  EXPECT_EQ(*tokens.begin(), "<pad>");
  const auto bytes = file->bytes();
  for (const std::string_view text : {*tokens.begin(), *merges.begin()}) {
    const auto inside = std::as_bytes(std::span(text));
    EXPECT_TRUE(inside.data() >= bytes.data() && &inside.back() <= &bytes.back());
  }
  size_t spaces = 0;
  for (const std::string_view merge : merges) spaces += merge.find(' ') != merge.npos ? 1 : 0;
  EXPECT_EQ(spaces, merges.size());
}

class GgufModelsTest : public ::testing::TestWithParam<const char*> {};

TEST_P(GgufModelsTest, OpensAndTensorsFillTheFile) {
  const auto file = GgufFile::Open(kModels / GetParam());
  ASSERT_TRUE(file) << file.error().ToString();
  ASSERT_FALSE(file->tensors().empty());
  uint64_t end = 0;
  for (const TensorInfo& tensor : file->tensors()) {
    EXPECT_EQ(file->FindTensor(tensor.name), &tensor);
    EXPECT_EQ(RowBytes(tensor.dtype, tensor.elements()), tensor.bytes) << tensor.name;
    end = std::max(end, tensor.offset + tensor.bytes);
  }
  EXPECT_LE(end, file->bytes().size());
  EXPECT_LT(file->bytes().size() - end, file->alignment());
  const auto architecture = file->GetString("general.architecture");
  ASSERT_TRUE(architecture);
  const std::string prefix(*architecture);
  const uint32_t layers = file->GetU32(prefix + ".block_count").value();
  EXPECT_EQ(file->GetU32PerLayer(prefix + ".feed_forward_length", layers).value().size(), layers);
  EXPECT_EQ(file->GetU32PerLayer(prefix + ".attention.head_count_kv", layers).value().size(),
            layers);
  EXPECT_EQ(
      file->GetBoolPerLayer(prefix + ".attention.sliding_window_pattern", layers).value().size(),
      layers);
}

// The files were written by another program; copying one through our writer gives the same bytes.
TEST_P(GgufModelsTest, CopyIsIdentical) {
  const auto source = GgufFile::Open(kModels / GetParam());
  ASSERT_TRUE(source) << source.error().ToString();
  GgufWriter writer;
  for (const GgufEntry& entry : source->metadata()) {
    ASSERT_TRUE(writer.SetRaw(entry.key, entry.value));
  }
  for (const TensorInfo& tensor : source->tensors()) {
    ASSERT_TRUE(
        writer.AddTensor(tensor.name, tensor.dtype, std::span(tensor.dims).first(tensor.rank)));
  }
  const auto path = std::filesystem::path(::testing::TempDir()) / "gguf_shared_test_copy.gguf";
  auto output = writer.Begin(path);
  ASSERT_TRUE(output) << output.error().ToString();
  for (const TensorInfo& tensor : source->tensors()) {
    ASSERT_TRUE(output->Append(source->data(tensor)));
  }
  ASSERT_TRUE(output->Finish());
  const auto copy = GgufFile::Open(path);
  ASSERT_TRUE(copy) << copy.error().ToString();
  EXPECT_TRUE(std::ranges::equal(source->bytes(), copy->bytes()));
  std::filesystem::remove(path);
}

INSTANTIATE_TEST_SUITE_P(Models, GgufModelsTest,
                         ::testing::Values("tiny-e2b-f16.gguf", "tiny-e2b-Q4_K_M.gguf",
                                           "tiny-dense-f16.gguf", "tiny-dense-Q4_K_M.gguf",
                                           "tiny-moe-f16.gguf", "tiny-moe-Q4_K_M.gguf",
                                           "tiny-diffusion-f16.gguf"));

TEST(GgufSharedTest, ARealFileCutInItsDataSaysWhatSizeItShouldHave) {
  const auto whole = GgufFile::Open(kModels / "tiny-dense-Q4_K_M.gguf");
  ASSERT_TRUE(whole);
  const auto cut = GgufFile::Parse(whole->bytes().first(whole->bytes().size() / 2));
  ASSERT_FALSE(cut);
  EXPECT_EQ(cut.error().id, "gguf.truncated");
  const TensorInfo& last = whole->tensors().back();
  EXPECT_THAT(cut.error().message, HasSubstr(std::to_string(last.offset + last.bytes)));
}

}  // namespace
}  // namespace rullama
