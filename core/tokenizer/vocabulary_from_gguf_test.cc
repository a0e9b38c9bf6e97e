#include "core/tokenizer/vocabulary_from_gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/gguf/gguf_test_bytes.h"
#include "core/tokenizer/tokenizer.h"
#include "core/tokenizer/tokenizer_test_support.h"

namespace rullama {
namespace {

using ::testing::ElementsAre;

GgufFile Parse(const GgufBytes& bytes) {
  auto file = GgufFile::Parse(bytes.bytes());
  if (!file) throw std::runtime_error(file.error().ToString());
  return *std::move(file);
}

TEST(VocabularyFromGguf, ConverterSpelling) {
  GgufBytes bytes;
  bytes.Header(0, 9)
      .Entry("tokenizer.ggml.model", "gemma4")
      .StringsEntry("tokenizer.ggml.tokens", {"<unk>", "a", "b", "ab"})
      .ArrayEntry<float>("tokenizer.ggml.scores", {0, 0, 0, 0})
      .ArrayEntry<int32_t>("tokenizer.ggml.token_type", {2, 1, 1, 1})
      .StringsEntry("tokenizer.ggml.merges", {"a b"})
      .Entry<uint32_t>("tokenizer.ggml.eos_token_id", 1)
      .Entry<uint32_t>("tokenizer.ggml.unknown_token_id", 0)
      .ArrayEntry<int32_t>("tokenizer.ggml.suppress_tokens", {2, 3})
      .Entry<bool>("tokenizer.ggml.add_bos_token", true);
  const GgufFile file = Parse(bytes);
  const auto data = VocabularyFromGguf(file);
  ASSERT_TRUE(data) << data.error().ToString();
  EXPECT_EQ(data->model, "gemma4");
  EXPECT_EQ(data->pre, "");
  EXPECT_THAT(data->tokens, ElementsAre("<unk>", "a", "b", "ab"));
  EXPECT_THAT(data->types, ElementsAre(2, 1, 1, 1));
  EXPECT_THAT(data->merges, ElementsAre("a b"));
  EXPECT_THAT(data->scores, ::testing::Optional(ElementsAre(0, 0, 0, 0)));
  EXPECT_EQ(data->embedding_rows, std::nullopt);
  EXPECT_EQ(data->eos_id, 1u);
  EXPECT_EQ(data->bos_id, std::nullopt);
  EXPECT_THAT(data->suppress_ids, ElementsAre(2, 3));
  const auto tokenizer = Tokenizer::Build(*data);
  ASSERT_TRUE(tokenizer) << tokenizer.error().ToString();
  EXPECT_EQ((*tokenizer)->Encode("ab"), (std::vector<TokenId>{3}));
}

TEST(VocabularyFromGguf, OllamaSpelling) {
  GgufBytes bytes;
  bytes.Header(0, 6)
      .Entry("tokenizer.ggml.model", "llama")
      .Entry("tokenizer.ggml.pre", "gemma4")
      .StringsEntry("tokenizer.ggml.tokens", {"<unk>", "a", "b", "ab"})
      .StringsEntry("tokenizer.ggml.merges", {"a b"})
      .Entry<uint32_t>("tokenizer.ggml.unknown_token_id", 0)
      .ArrayEntry<int32_t>("tokenizer.ggml.eos_token_ids", {1, 3});
  const GgufFile file = Parse(bytes);
  const auto data = VocabularyFromGguf(file);
  ASSERT_TRUE(data) << data.error().ToString();
  EXPECT_THAT(data->extra_eos_ids, ElementsAre(1, 3));
  const auto tokenizer = Tokenizer::Build(*data);
  ASSERT_TRUE(tokenizer) << tokenizer.error().ToString();
  EXPECT_THAT((*tokenizer)->end_of_generation_ids(), ElementsAre(1, 3));
}

TEST(VocabularyFromGguf, EmbeddingRowsOfTheFileAreCompared) {
  GgufBytes bytes;
  bytes.Header(1, 4)
      .Entry("tokenizer.ggml.model", "gemma4")
      .StringsEntry("tokenizer.ggml.tokens", {"<unk>", "a", "b", "ab"})
      .StringsEntry("tokenizer.ggml.merges", {"a b"})
      .Entry<uint32_t>("tokenizer.ggml.unknown_token_id", 0)
      .Tensor("token_embd.weight", {2, 3}, /*type=*/0, 0)
      .PadTo(kGgufDefaultAlignment)
      .Data(2 * 3 * sizeof(float));
  const GgufFile file = Parse(bytes);
  const auto data = VocabularyFromGguf(file);
  ASSERT_TRUE(data) << data.error().ToString();
  const auto tokenizer = Tokenizer::Build(*data);
  ASSERT_FALSE(tokenizer);
  EXPECT_EQ(tokenizer.error().id, "tokenizer.size");
}

TEST(VocabularyFromGguf, MissingOrMistypedKeys) {
  GgufBytes no_merges;
  no_merges.Header(0, 2)
      .Entry("tokenizer.ggml.model", "gemma4")
      .StringsEntry("tokenizer.ggml.tokens", {"a"});
  auto data = VocabularyFromGguf(Parse(no_merges));
  ASSERT_FALSE(data);
  EXPECT_EQ(data.error().id, "gguf.key_missing");

  for (const bool list : {false, true}) {
    GgufBytes bytes;
    bytes.Header(0, 4)
        .Entry("tokenizer.ggml.model", "gemma4")
        .StringsEntry("tokenizer.ggml.tokens", {"a"})
        .StringsEntry("tokenizer.ggml.merges", {"a a"});
    list ? bytes.StringsEntry("tokenizer.ggml.eos_token_ids", {"a"})
         : bytes.Entry("tokenizer.ggml.eos_token_id", "a");
    data = VocabularyFromGguf(Parse(bytes));
    ASSERT_FALSE(data);
    EXPECT_EQ(data.error().id, "gguf.key_type");
  }
}

// A real file, as converted by llama.cpp and quantised.
TEST(VocabularyFromGguf, TinyModelFile) {
  const auto file = GgufFile::Open(RULLAMA_SOURCE_DIR "/tests/data/tiny-e2b-Q4_K_M.gguf");
  ASSERT_TRUE(file) << file.error().ToString();
  const auto data = VocabularyFromGguf(*file);
  ASSERT_TRUE(data) << data.error().ToString();
  EXPECT_EQ(data->embedding_rows, 2048u);
  const auto tokenizer = Tokenizer::Build(*data);
  ASSERT_TRUE(tokenizer) << tokenizer.error().ToString();
  EXPECT_EQ(tokenizer_test::CheckVectors(**tokenizer,
                                         RULLAMA_SOURCE_DIR "/tests/data/tokenizer_tiny.jsonl"),
            123u);
  EXPECT_THAT((*tokenizer)->end_of_generation_ids(), ElementsAre(1, 9, 16));
}

TEST(VocabularyFromGguf, ScoresInPlaceOfMerges) {
  GgufBytes bytes;
  bytes.Header(0, 6)
      .Entry("tokenizer.ggml.model", "llama")
      .Entry("tokenizer.ggml.pre", "default")
      .StringsEntry("tokenizer.ggml.tokens", {"<unk>", "a", "b", "ab"})
      .ArrayEntry<float>("tokenizer.ggml.scores", {0, -3, -2, -1})
      .Entry<bool>("tokenizer.ggml.add_space_prefix", false)
      .Entry<uint32_t>("tokenizer.ggml.unknown_token_id", 0);
  const GgufFile file = Parse(bytes);
  const auto data = VocabularyFromGguf(file);
  ASSERT_TRUE(data) << data.error().ToString();
  EXPECT_THAT(data->scores, ::testing::Optional(ElementsAre(0, -3, -2, -1)));
  EXPECT_EQ(data->add_space_prefix, false);
  const auto tokenizer = Tokenizer::Build(*data);
  ASSERT_TRUE(tokenizer) << tokenizer.error().ToString();
  EXPECT_EQ((*tokenizer)->Encode("aab"), (std::vector<TokenId>{1, 3}));
}

// As in Google's QAT files of Gemma 3, which type the markers of turns as plain text.
TEST(VocabularyFromGguf, MarkersTypedAsPlainAreMarkers) {
  constexpr int32_t kPlain = 1, kUnknown = 2;
  GgufBytes bytes;
  bytes.Header(0, 5)
      .Entry("tokenizer.ggml.model", "llama")
      .StringsEntry("tokenizer.ggml.tokens", {"<unk>", "<start_of_turn>", "<end_of_turn>", "a"})
      .ArrayEntry<float>("tokenizer.ggml.scores", {0, -1, -2, -3})
      .ArrayEntry<int32_t>("tokenizer.ggml.token_type", {kUnknown, kPlain, kPlain, kPlain})
      .Entry<uint32_t>("tokenizer.ggml.unknown_token_id", 0);
  const GgufFile file = Parse(bytes);
  const auto data = VocabularyFromGguf(file);
  ASSERT_TRUE(data) << data.error().ToString();
  const auto tokenizer = Tokenizer::Build(*data);
  ASSERT_TRUE(tokenizer) << tokenizer.error().ToString();
  EXPECT_EQ((*tokenizer)->Encode("<start_of_turn>a<end_of_turn>"), (std::vector<TokenId>{1, 3, 2}));
  EXPECT_TRUE((*tokenizer)->IsEndOfGeneration(2));
  EXPECT_THAT(tokenizer_test::Encode(**tokenizer, "a<end_of_turn>", {.parse_special = false}),
              ::testing::Not(::testing::Contains(2)))
      << "what a user typed stays text";
}

// -1 for "no token" is answered by the vocabulary, as an id outside it.
TEST(VocabularyFromGguf, NegativeIds) {
  GgufBytes bytes;
  bytes.Header(0, 4)
      .Entry("tokenizer.ggml.model", "gemma4")
      .StringsEntry("tokenizer.ggml.tokens", {"a", "aa"})
      .StringsEntry("tokenizer.ggml.merges", {"a a"})
      .Entry<int32_t>("tokenizer.ggml.bos_token_id", -1);
  const auto data = VocabularyFromGguf(Parse(bytes));
  ASSERT_TRUE(data) << data.error().ToString();
  const auto tokenizer = Tokenizer::Build(*data);
  ASSERT_FALSE(tokenizer);
  EXPECT_EQ(tokenizer.error().id, "tokenizer.vocabulary_id");
}

}  // namespace
}  // namespace rullama
