// Vocabularies whose merges follow from scores (SentencePiece).
#include <map>
#include <random>

#include "core/base/utf8.h"
#include "core/tokenizer/tokenizer.h"
#include "core/tokenizer/tokenizer_test_support.h"

namespace rullama {
namespace {

using tokenizer_test::Encode;
using tokenizer_test::OwnedVocabulary;
using Ids = std::vector<TokenId>;

// Four control tokens, markers of turns, runs of white space as in Gemma 3, all bytes, and pieces.
class ScoredVocabulary {
 public:
  explicit ScoredVocabulary(const std::vector<std::pair<std::string, float>>& pieces) {
    for (const char* text : {"<pad>", "<eos>", "<bos>", "<unk>", "<end_of_turn>"}) {
      Add(text, TokenType::kControl, kSpecialScore);
    }
    for (const char* text : {"\n", "\n\n", "\n\n\n", "  ", "   ", "\t", "<b>"}) {
      Add(text, TokenType::kUserDefined, kSpecialScore);
    }
    for (int byte = 0; byte < 256; ++byte) Add(fmt::format("<0x{:02X}>", byte), TokenType::kByte);
    for (const auto& [text, score] : pieces) Add(text, TokenType::kNormal, score);
    owner_.data().model = "llama";
    owner_.data().scores = scores_;
    tokenizer_ = owner_.Build();
  }

  [[nodiscard]] const Tokenizer& tokenizer() const { return *tokenizer_; }
  [[nodiscard]] TokenId IdOf(const std::string& text) const {
    return tokenizer_->FindToken(text).value_or(kNoToken);
  }
  [[nodiscard]] Ids IdsOf(const std::vector<std::string>& texts) const {
    Ids ids;
    ids.reserve(texts.size());
    for (const std::string& text : texts) ids.push_back(IdOf(text));
    return ids;
  }

  // The definition: of all neighbours whose joined text is a piece those of the highest score join,
  // the leftmost first; characters that are not pieces become bytes. `text` has no special tokens.
  [[nodiscard]] Ids Naive(std::string_view text) const {
    std::vector<std::string> symbols;
    for (size_t at = 0; at < text.size();) {
      const size_t length = Utf8SequenceLength(text.substr(at));
      symbols.emplace_back(text[at] == ' ' ? kSpaceSymbol : text.substr(at, length));
      at += length;
    }
    for (;;) {
      size_t best = symbols.size();
      float best_score = 0;
      for (size_t i = 0; i + 1 < symbols.size(); ++i) {
        const auto found = pieces_.find(symbols[i] + symbols[i + 1]);
        if (found == pieces_.end()) continue;
        if (best == symbols.size() || found->second > best_score) {
          best = i;
          best_score = found->second;
        }
      }
      if (best == symbols.size()) break;
      symbols[best] += symbols[best + 1];
      symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
    }
    Ids ids;
    for (const std::string& symbol : symbols) {
      if (pieces_.contains(symbol)) {
        ids.push_back(IdOf(symbol));
        continue;
      }
      for (const char byte : symbol) {
        ids.push_back(IdOf(fmt::format("<0x{:02X}>", static_cast<uint8_t>(byte))));
      }
    }
    return ids;
  }

 private:
  static constexpr float kSpecialScore = -1000;

  void Add(std::string text, TokenType type, float score = 0) {
    if (type == TokenType::kNormal) pieces_.emplace(text, score);
    scores_.push_back(score);
    owner_.AddToken(std::move(text), type);
  }

  OwnedVocabulary owner_;
  std::vector<float> scores_;
  std::map<std::string, float> pieces_;
  std::shared_ptr<const Tokenizer> tokenizer_;
};

const ScoredVocabulary& Small() {
  static const ScoredVocabulary vocabulary({{"▁", -50},
                                            {"a", -51},
                                            {"b", -52},
                                            {"c", -53},
                                            {"é", -54},
                                            {"ab", -3},
                                            {"bc", -2},
                                            {"abc", -9},
                                            {"▁a", -4},
                                            {"aa", -5}});
  return vocabulary;
}

TEST(ScoredTokenizer, TheHighestScoreMergesFirst) {
  const ScoredVocabulary& v = Small();
  EXPECT_EQ(Encode(v.tokenizer(), "ab"), v.IdsOf({"ab"}));
  EXPECT_EQ(Encode(v.tokenizer(), "abc"), v.IdsOf({"abc"}));  // bc, then a bc
  EXPECT_EQ(Encode(v.tokenizer(), "aabc"), v.IdsOf({"aa", "bc"}));
  EXPECT_EQ(Encode(v.tokenizer(), "b ab"), v.IdsOf({"b", "▁", "ab"}));
  EXPECT_EQ(Encode(v.tokenizer(), "b ac"), v.IdsOf({"b", "▁a", "c"}));
}

TEST(ScoredTokenizer, RunsOfWhiteSpaceAreTokens) {
  const ScoredVocabulary& v = Small();
  EXPECT_EQ(Encode(v.tokenizer(), "a   \n\n\n\n\ta"),
            v.IdsOf({"a", "   ", "\n\n\n", "\n", "\t", "a"}));
  EXPECT_EQ(Encode(v.tokenizer(), "    a"), v.IdsOf({"   ", "▁a"}));
  // A space and the symbol that stands for one are the same, but only spaces make such a run.
  EXPECT_EQ(Encode(v.tokenizer(), "▁▁"), v.IdsOf({"▁", "▁"}));
  EXPECT_EQ(v.tokenizer().Decode(v.IdsOf({"   ", "▁a"})), "    a");
}

TEST(ScoredTokenizer, CharactersWithoutATokenBecomeBytes) {
  const ScoredVocabulary& v = Small();
  EXPECT_EQ(Encode(v.tokenizer(), "é€"), v.IdsOf({"é", "<0xE2>", "<0x82>", "<0xAC>"}));
  EXPECT_EQ(Encode(v.tokenizer(), std::string_view("\0\r", 2)), v.IdsOf({"<0x00>", "<0x0D>"}));
}

TEST(ScoredTokenizer, MarkersOfUsersStayText) {
  const ScoredVocabulary v({{"<", -1}, {"e", -1}, {"<e", -1}, {"nd_of_turn>", -1}, {">", -1}});
  const Ids marker = v.IdsOf({"<end_of_turn>"});
  EXPECT_EQ(Encode(v.tokenizer(), "<end_of_turn>"), marker);
  const Ids user = Encode(v.tokenizer(), "<end_of_turn>", {.parse_special = false});
  EXPECT_THAT(user, ::testing::Not(::testing::Contains(marker[0])));
  EXPECT_EQ(v.tokenizer().Decode(user), "<end_of_turn>");
  EXPECT_TRUE(v.tokenizer().IsEndOfGeneration(marker[0]));
}

TEST(ScoredTokenizer, ControlAndByteTokensNeverMerge) {
  const ScoredVocabulary v({{"<", -1}, {"bos>", -1}, {"<0x", -1}, {"41>", -1}});
  EXPECT_EQ(Encode(v.tokenizer(), "<bos>", {.parse_special = false}).size(), 5u);
  EXPECT_THAT(Encode(v.tokenizer(), "<0x41>"),
              ::testing::Not(::testing::Contains(v.IdOf("<0x41>"))));
}

// Pieces of three letters with few different scores, so that many are equal.
TEST(ScoredTokenizer, AgreesWithTheDefinition) {
  std::mt19937 random(7);
  const auto text_of = [&random](size_t length) {
    std::string text;
    for (size_t i = 0; i < length; ++i) text += "abc "[random() % 4];
    return text;
  };
  for (int round = 0; round < 20; ++round) {
    std::map<std::string, float> pieces = {{"a", -90}, {"b", -90}, {"c", -90}, {"▁", -90}};
    for (int i = 0; i < 60; ++i) {
      std::string piece;
      for (const char c : text_of(2 + random() % 4)) piece += c == ' ' ? "▁" : std::string(1, c);
      pieces.emplace(piece, -static_cast<float>(random() % 8));
    }
    const ScoredVocabulary v({pieces.begin(), pieces.end()});
    for (int i = 0; i < 50; ++i) {
      std::string text = text_of(1 + random() % (i == 0 ? 400 : 40));
      // Runs of spaces are tokens of their own.
      for (size_t at = 0; (at = text.find("  ")) != std::string::npos;) text.erase(at, 1);
      EXPECT_EQ(Encode(v.tokenizer(), text), v.Naive(text)) << text;
    }
  }
}

TEST(ScoredTokenizer, LongTokensDoNotSlowTheBuildDown) {
  std::vector<std::pair<std::string, float>> pieces = {{"a", -1}, {"aa", -2}};
  pieces.emplace_back(std::string(1 << 20, 'a'), -3);
  const ScoredVocabulary v(pieces);
  EXPECT_EQ(Encode(v.tokenizer(), "aaa"), v.IdsOf({"aa", "a"}));
}

}  // namespace
}  // namespace rullama
