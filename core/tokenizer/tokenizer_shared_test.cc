// The full-size vocabulary against the vectors of llama.cpp, and the tiny models' files.
#include <gtest/gtest.h>

#include <filesystem>

#include "core/gguf/gguf.h"
#include "core/tokenizer/tokenizer.h"
#include "core/tokenizer/tokenizer_test_support.h"
#include "core/tokenizer/vocabulary_from_gguf.h"

namespace rullama {
namespace {

using tokenizer_test::CheckVectors;
using tokenizer_test::Encode;
using Ids = std::vector<TokenId>;

const std::string kShared = RULLAMA_SOURCE_DIR "/../shared/";

struct Loaded {
  GgufFile file;
  std::shared_ptr<const Tokenizer> tokenizer;
};

Loaded Load(const std::string& name) {
  auto file = GgufFile::Open(kShared + "models/" + name);
  if (!file) throw std::runtime_error(file.error().ToString());
  auto data = VocabularyFromGguf(*file);
  if (!data) throw std::runtime_error(data.error().ToString());
  auto tokenizer = Tokenizer::Build(*std::move(data));
  if (!tokenizer) throw std::runtime_error(tokenizer.error().ToString());
  return {*std::move(file), *std::move(tokenizer)};
}

class FullVocabulary : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { loaded_ = new Loaded(Load("gemma4-vocab.gguf")); }
  static void TearDownTestSuite() {
    delete loaded_;
    loaded_ = nullptr;
  }
  static const Tokenizer& tokenizer() { return *loaded_->tokenizer; }

 private:
  static inline Loaded* loaded_ = nullptr;
};

TEST_F(FullVocabulary, OfficialVectors) {
  EXPECT_EQ(CheckVectors(tokenizer(), kShared + "vectors/tokenizer/gemma4-official.jsonl"), 46u);
}

TEST_F(FullVocabulary, LlamaCppVectors) {
  EXPECT_EQ(CheckVectors(tokenizer(), kShared + "vectors/tokenizer/gemma4-llamacpp.jsonl"), 85u);
}

TEST_F(FullVocabulary, VectorsOfTheSpecification) {
  const std::vector<std::pair<std::string, Ids>> vectors = {
      {"Hello", {9259}},
      {" Hello", {26352}},
      {"  Hello", {138, 9259}},
      {"hello  world", {23391, 138, 12392}},
      {"    Hello\n    Hello", {140, 9259, 107, 140, 9259}},
      {"\t\t", {255969}},
      {"\n =", {107, 578}},
      {"!!!!!!", {123947}},
      {"333", {236800, 236800, 236800}},
      {"3.14159", {236800, 236761, 236770, 236812, 236770, 236810, 236819}},
      {"Cửa Việt", {236780, 29719, 33154}},
      {"你好世界", {144626, 12811}},
      {"aaaaaa", {50354, 9236}},
      {"🦙", {478, 397, 404, 391}},
      {"<|turn>user\nWhat is 2+2?<turn|>\n<|turn>model\n",
       {105, 2364, 107, 3689, 563, 236743, 236778, 236862, 236778, 236881, 106, 107, 105, 4368,
        107}},
      {"<|tool_call>call:bash{command:<|\"|>ls -la<|\"|>}<tool_call|>",
       {48, 6639, 236787, 42422, 236782, 7674, 236787, 52, 5629, 753, 2149, 52, 236783, 49}},
      {"<|channel>thought\nLet me think about this...<channel|>The answer is 42.",
       {100, 45518, 107, 6481, 786, 1751, 1003, 672, 1390, 101, 818, 3890, 563, 236743, 236812,
        236778, 236761}},
  };
  for (const auto& [text, ids] : vectors) EXPECT_EQ(Encode(tokenizer(), text), ids) << text;
}

TEST_F(FullVocabulary, WellKnownIds) {
  EXPECT_EQ(tokenizer().size(), 262144u);
  EXPECT_EQ(tokenizer().bos_id(), 2);
  EXPECT_THAT(tokenizer().end_of_generation_ids(), ::testing::ElementsAre(1, 50, 106));
  EXPECT_FALSE(tokenizer().IsEndOfGeneration(*tokenizer().FindToken("</s>")));
  EXPECT_EQ(tokenizer().FindToken("<|turn>"), 105);
}

// Newline runs longer than any token are cut greedily.
TEST_F(FullVocabulary, LongNewlineRuns) {
  EXPECT_EQ(Encode(tokenizer(), std::string(31, '\n')), Ids{137});
  EXPECT_EQ(Encode(tokenizer(), std::string(40, '\n')), (Ids{137, 115}));
}

// A fragment that happens to be a vocabulary entry needs no shortcut: merges reach all entries but
// these four, and Hugging Face and llama.cpp split those four too.
TEST_F(FullVocabulary, MergesReachTextTokens) {
  std::vector<std::string> unreachable;
  for (TokenId id = 0; id < static_cast<TokenId>(tokenizer().size()); ++id) {
    if (tokenizer().kind(id) != TokenKind::kText) continue;
    const std::string text(tokenizer().TokenText(id));
    if (Encode(tokenizer(), text) != Ids{id}) unreachable.push_back(text);
  }
  EXPECT_THAT(unreachable, ::testing::ElementsAre("▁YYYY", "▁yyyy", "▁diffformul", "▁::::::::"));
}

TEST_F(FullVocabulary, UserTextCannotSpellMarkers) {
  const EncodeOptions user{.parse_special = false};
  for (TokenId id = 0; id < static_cast<TokenId>(tokenizer().size()); ++id) {
    if (tokenizer().kind(id) != TokenKind::kControl) continue;
    const std::string text = "x" + std::string(tokenizer().TokenText(id)) + "y";
    const Ids ids = Encode(tokenizer(), text, user);
    EXPECT_THAT(ids, ::testing::Not(::testing::Contains(id))) << text;
    EXPECT_EQ(tokenizer().Decode(ids), text);
  }
}

TEST_F(FullVocabulary, HtmlTagsStayTokensInUserText) {
  EXPECT_EQ(Encode(tokenizer(), "<b>x</b>", {.parse_special = false}),
            Encode(tokenizer(), "<b>x</b>"));
}

// Work that grows with the square of the length does not end within the limit of ctest.
TEST_F(FullVocabulary, HugeTextsAreLinear) {
  constexpr size_t kTenMegabytes = 10 * 1000 * 1000;
  std::string mixed;
  for (uint32_t state = 1; mixed.size() < kTenMegabytes;) {
    state = state * 1664525 + 1013904223;
    mixed += static_cast<char>('a' + (state >> 24) % 26);
  }
  std::string marks = "e";
  for (int i = 0; i < 1000000; ++i) marks += "\xCC\x81";
  const std::vector<std::string> texts = {std::string(kTenMegabytes, 'a'),
                                          std::string(1000000, '\n'),
                                          std::string(kTenMegabytes, ' '),
                                          std::string(kTenMegabytes, '<'),
                                          mixed,
                                          marks};
  for (const std::string& text : texts) {
    const Ids ids = Encode(tokenizer(), text);
    EXPECT_EQ(tokenizer().Decode(ids), text);
  }
}

TEST(TinyFiles, AllVocabulariesLoadAndAgree) {
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kShared + "models")) {
    const std::string name = entry.path().filename();
    const bool is_tower = name.find("mmproj") != std::string::npos;  // has no vocabulary
    if (!name.starts_with("tiny-") || !name.ends_with(".gguf") || is_tower) continue;
    const Loaded loaded = Load(name);
    EXPECT_EQ(
        CheckVectors(*loaded.tokenizer, RULLAMA_SOURCE_DIR "/tests/data/tokenizer_tiny.jsonl"),
        123u)
        << name;
    EXPECT_THAT(loaded.tokenizer->end_of_generation_ids(), ::testing::ElementsAre(1, 9, 16));
    ++files;
  }
  EXPECT_GE(files, 4u);
}

}  // namespace
}  // namespace rullama
