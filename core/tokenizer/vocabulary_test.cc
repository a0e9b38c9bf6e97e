// Damaged and hostile vocabularies.
#include "core/tokenizer/vocabulary.h"

#include <limits>

#include "core/base/must_test_util.h"
#include "core/tokenizer/tokenizer_test_support.h"

namespace rullama {
namespace {

using ::testing::HasSubstr;
using tokenizer_test::Encode;
using tokenizer_test::LoadTinyVocabulary;
using tokenizer_test::OwnedVocabulary;

void ExpectRefused(const VocabularyData& data, std::string_view id, std::string_view message) {
  const auto tokenizer = Tokenizer::Build(data);
  ASSERT_FALSE(tokenizer);
  EXPECT_EQ(tokenizer.error().id, id);
  EXPECT_EQ(tokenizer.error().kind, ErrorKind::kModelFile);
  EXPECT_THAT(tokenizer.error().message, HasSubstr(message));
}

class DamagedVocabulary : public ::testing::Test {
 protected:
  DamagedVocabulary() : owner_(LoadTinyVocabulary()), data_(owner_->data()) {}
  std::unique_ptr<OwnedVocabulary> owner_;
  VocabularyData& data_;
};

TEST_F(DamagedVocabulary, ArraysOfOtherLength) {
  data_.embedding_rows = 2047;
  ExpectRefused(data_, "tokenizer.size", "embedding matrix has 2047 entries");
  data_.embedding_rows = 2048;
  data_.scores.emplace(2049);
  ExpectRefused(data_, "tokenizer.size", "scores has 2049");
  data_.scores.reset();
  data_.types.pop_back();
  ExpectRefused(data_, "tokenizer.size", "token_type has 2047");
}

TEST_F(DamagedVocabulary, NoTokens) {
  data_.tokens.clear();
  data_.types.clear();
  ExpectRefused(data_, "tokenizer.size", "0 tokens");
}

TEST_F(DamagedVocabulary, IdsOutsideTheVocabulary) {
  data_.eos_id = 2048;
  ExpectRefused(data_, "tokenizer.vocabulary_id", "eos_token_id is 2048");
  data_.eos_id = 1;
  data_.bos_id = ~uint64_t{0};
  ExpectRefused(data_, "tokenizer.vocabulary_id", "bos_token_id");
  data_.bos_id = 2;
  data_.extra_eos_ids = {-1};
  ExpectRefused(data_, "tokenizer.vocabulary_id", "eos_token_ids is -1");
  data_.extra_eos_ids.clear();
  data_.suppress_ids = {1, 99999};
  ExpectRefused(data_, "tokenizer.vocabulary_id", "suppress_tokens is 99999");
}

TEST_F(DamagedVocabulary, UnknownTokenType) {
  data_.types[7] = 7;
  ExpectRefused(data_, "tokenizer.type", "token 7 has type 7");
}

TEST_F(DamagedVocabulary, Merges) {
  const std::string too_long(5000, 'a');
  for (const std::string& line :
       {std::string("ab"), std::string("a "), std::string(" "), std::string(), too_long + " b"}) {
    data_.merges[100] = line;
    ExpectRefused(data_, "tokenizer.merge", "merge 100 ");
  }
  data_.merges[100] = "nonsuchtoken a";
  ExpectRefused(data_, "tokenizer.merge", "'nonsuchtoken' is not a token");
  data_.merges[100] = "a nonsuchtoken";
  ExpectRefused(data_, "tokenizer.merge", "'nonsuchtoken' is not a token");
  data_.merges[100] = "▁the ▁the";
  ExpectRefused(data_, "tokenizer.merge", "'▁the▁the' is not a token");
  data_.merges.clear();
  ExpectRefused(data_, "tokenizer.merge", "0 merges");
}

// As in Google's QAT files of Gemma 4: three tokens have the text of another one, so that the
// merges of their own texts name what is not there.
TEST_F(DamagedVocabulary, TextsThatOccurTwiceLeaveOutTheirMerges) {
  constexpr size_t kLost = 3, kOther = 350;
  const auto whole = Must(Tokenizer::Build(data_));
  std::vector<std::string> texts;
  for (size_t i = data_.tokens.size() - kLost; i < data_.tokens.size(); ++i) {
    texts.push_back(Must(whole->Decode(std::vector{static_cast<TokenId>(i)})));
    data_.tokens[i] = data_.tokens[kOther];
  }
  const auto tokenizer = Must(Tokenizer::Build(data_));
  for (const std::string& text : texts) {
    EXPECT_EQ(Encode(*whole, text).size(), 1u) << text;
    const std::vector<TokenId> parts = Encode(*tokenizer, text);
    EXPECT_GT(parts.size(), 1u) << text;
    EXPECT_EQ(Must(tokenizer->Decode(parts)), text);
  }
  EXPECT_EQ(Encode(*tokenizer, "The prince went out"), Encode(*whole, "The prince went out"));

  // That explains the loss of three texts, not of four.
  data_.merges[0] = "nonsuchtoken a";
  data_.merges[1] = "a nonsuchtoken";
  data_.merges[2] = "b nonsuchtoken";
  ExpectRefused(data_, "tokenizer.merge", "merge 2 ('b nonsuchtoken'): 'nonsuchtoken' is not a");
}

TEST_F(DamagedVocabulary, TheFirstBadMergeIsNamed) {
  data_.merges[1001] = "x";
  data_.merges[1000] = "nonsuchtoken a";
  ExpectRefused(data_, "tokenizer.merge", "merge 1000 ");
}

TEST_F(DamagedVocabulary, OtherTokenizerModels) {
  data_.model = "gpt2";
  ExpectRefused(data_, "tokenizer.model", "'gpt2'");
  // Ollama's name for a list of merges.
  data_.model = "llama";
  data_.pre = "gemma4";
  EXPECT_TRUE(Tokenizer::Build(data_));
}

TEST_F(DamagedVocabulary, Scores) {
  data_.model = "llama";
  ExpectRefused(data_, "tokenizer.score", "tokenizer.ggml.scores is missing");
  data_.scores.emplace(2047);
  ExpectRefused(data_, "tokenizer.size", "scores has 2047");
  data_.scores.emplace(2048);
  EXPECT_TRUE(Tokenizer::Build(data_));
  data_.scores->at(9) = std::numeric_limits<float>::quiet_NaN();
  ExpectRefused(data_, "tokenizer.score", "token 9 has score nan");
  data_.scores->at(9) = std::numeric_limits<float>::infinity();
  ExpectRefused(data_, "tokenizer.score", "token 9 has score inf");
  data_.scores->at(9) = 0;
  data_.add_space_prefix = true;
  ExpectRefused(data_, "tokenizer.space_prefix", "expected false");
}

TEST(Vocabulary, TextThatCannotBeEncodedIsRefusedAtLoad) {
  OwnedVocabulary vocabulary;
  for (const char* text : {"a", "b", "ab", "c"}) vocabulary.AddToken(text, TokenType::kNormal);
  vocabulary.AddMerge("a b");
  vocabulary.data().unknown_id.reset();
  ExpectRefused(vocabulary.data(), "tokenizer.bytes", "unknown token");
}

// Equal tokens: the lowest id encodes. Equal merges: the lowest rank counts. An empty token and
// tokens that are not UTF-8 are never met in text but can be decoded.
TEST(Vocabulary, OddButUsable) {
  OwnedVocabulary vocabulary;
  for (const char* text : {"<pad>", "<eos>", "<bos>", "<unk>"}) {
    vocabulary.AddToken(text, TokenType::kControl);
  }
  for (const char* text : {"a", "b", "c", "ab", "bc", "ab", "", "\xFF"}) {
    vocabulary.AddToken(text, TokenType::kNormal);
  }
  for (const char* merge : {"a b", "b c", "a b"}) vocabulary.AddMerge(merge);
  const auto tokenizer = vocabulary.Build();
  EXPECT_EQ(tokenizer_test::Encode(*tokenizer, "abc"), (std::vector<TokenId>{7, 6}));
  EXPECT_EQ(tokenizer_test::Encode(*tokenizer, "?"), (std::vector<TokenId>{3}));
  const std::vector<TokenId> odd = {10, 11};
  EXPECT_EQ(tokenizer->Decode(odd), "\xEF\xBF\xBD");
}

// Special tokens whose bytes cut a character of the text in two.
TEST(Vocabulary, SpecialTokensThatAreNotUtf8) {
  OwnedVocabulary vocabulary;
  for (const char* text : {"<pad>", "<eos>", "<bos>", "<unk>"}) {
    vocabulary.AddToken(text, TokenType::kControl);
  }
  for (const char* text : {"a", "b", "ab"}) vocabulary.AddToken(text, TokenType::kNormal);
  vocabulary.AddToken("\xA9", TokenType::kUserDefined);
  vocabulary.AddMerge("a b");
  const auto tokenizer = vocabulary.Build();
  EXPECT_EQ(tokenizer_test::Encode(*tokenizer, "ab\xC3\xA9"), (std::vector<TokenId>{6, 3, 7}));
}

TEST(Vocabulary, ByteTokens) {
  EXPECT_EQ(ParseByteToken("<0x0A>"), 10);
  EXPECT_EQ(ParseByteToken("<0xFF>"), 255);
  for (const char* text : {"<0xff>", "<0x0>", "<0x000>", "0x0A", "<0xG0>", ""}) {
    EXPECT_EQ(ParseByteToken(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace rullama
