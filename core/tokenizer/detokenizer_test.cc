#include "core/tokenizer/detokenizer.h"

#include "core/base/utf8.h"
#include "core/tokenizer/tokenizer_test_support.h"

namespace rullama {
namespace {

using tokenizer_test::Encode;

class DetokenizerTest : public ::testing::Test {
 protected:
  DetokenizerTest() : vocabulary_(tokenizer_test::LoadTinyVocabulary()) {
    tokenizer_ = vocabulary_->Build();
  }
  TokenId Id(std::string_view text) const { return tokenizer_->FindToken(text).value_or(kNoToken); }
  std::unique_ptr<tokenizer_test::OwnedVocabulary> vocabulary_;
  std::shared_ptr<const Tokenizer> tokenizer_;
};

TEST_F(DetokenizerTest, NeverSplitsASequence) {
  const std::string text = " Князь 🦙 e\xCC\x81 你好\n\n  x";
  Detokenizer detokenizer(*tokenizer_);
  std::string streamed;
  for (const TokenId id : Encode(*tokenizer_, text)) {
    const auto piece = detokenizer.Push(id);
    ASSERT_TRUE(piece);
    EXPECT_EQ(FindInvalidUtf8(*piece), std::nullopt);
    streamed += *piece;
  }
  EXPECT_EQ(detokenizer.Flush(), "");
  EXPECT_EQ(streamed, text);
}

TEST_F(DetokenizerTest, ControlTokensAreHiddenUnlessAskedFor) {
  const auto ids = Encode(*tokenizer_, "<bos><|turn>model\nyes<turn|>");
  EXPECT_EQ(tokenizer_->Decode(ids), "model\nyes");
  EXPECT_EQ(tokenizer_->Decode(ids, /*show_control=*/true), "<bos><|turn>model\nyes<turn|>");
}

TEST_F(DetokenizerTest, BytesThatFormNoSequence) {
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  Detokenizer detokenizer(*tokenizer_);
  EXPECT_EQ(*detokenizer.Push(Id("<0xE2>")), "");
  EXPECT_EQ(*detokenizer.Push(Id("<0x80>")), "");
  EXPECT_EQ(detokenizer.Flush(), kReplacement);
  EXPECT_EQ(detokenizer.Flush(), "");
  // A lead byte that the next token does not continue.
  EXPECT_EQ(*detokenizer.Push(Id("<0xC3>")), "");
  EXPECT_EQ(*detokenizer.Push(Id("a")), std::string(kReplacement) + "a");
  EXPECT_EQ(*detokenizer.Push(Id("<0xFF>")), kReplacement);
  EXPECT_EQ(*detokenizer.Push(Id("<0x00>")), std::string_view("\0", 1));
}

TEST_F(DetokenizerTest, IdsOutsideTheVocabularyAreErrors) {
  Detokenizer detokenizer(*tokenizer_);
  for (const TokenId id : {-1, 2048}) {
    const auto piece = detokenizer.Push(id);
    ASSERT_FALSE(piece);
    EXPECT_EQ(piece.error().id, "tokenizer.id");
  }
}

}  // namespace
}  // namespace rullama
