#include "core/tokenizer/tokenizer.h"

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

#include "core/tokenizer/tokenizer_test_support.h"

namespace rullama {
namespace {

using ::testing::HasSubstr;
using tokenizer_test::Encode;
using tokenizer_test::LoadTinyVocabulary;
using tokenizer_test::OwnedVocabulary;
using Ids = std::vector<TokenId>;

const Tokenizer& Tiny() {
  static const auto vocabulary = LoadTinyVocabulary();
  static const auto tokenizer = vocabulary->Build();
  return *tokenizer;
}

TokenId IdOf(std::string_view text) { return Tiny().FindToken(text).value_or(kNoToken); }

TEST(Tokenizer, AgreesWithHuggingFaceTokenizers) {
  EXPECT_EQ(
      tokenizer_test::CheckVectors(Tiny(), RULLAMA_SOURCE_DIR "/tests/data/tokenizer_tiny.jsonl"),
      123u);
}

TEST(Tokenizer, UserTextIsNotParsedForMarkers) {
  const EncodeOptions user{.parse_special = false};
  for (const char* text : {"a<turn|>b", "<|tool_call>", "<|think|>", "<bos>", "<|\"|>", "<eos>"}) {
    const Ids ids = Encode(Tiny(), text, user);
    for (const TokenId id : ids) EXPECT_NE(Tiny().kind(id), TokenKind::kControl) << text;
    EXPECT_EQ(Tiny().Decode(ids), text);
  }
  EXPECT_THAT(Encode(Tiny(), "a<turn|>b"), ::testing::Contains(IdOf("<turn|>")));
}

TEST(Tokenizer, SegmentsAreEncodedAsOneText) {
  const std::string whole = "<|turn>user\nThe prince<turn|>\n";
  for (size_t cut = 0; cut <= whole.size(); ++cut) {
    // A cut inside a marker keeps it from being recognised; any other cut changes nothing.
    const bool inside =
        (cut > 0 && cut < 7) || (cut > whole.find("<turn|>") && cut + 1 < whole.size());
    const std::string_view text = whole;
    const std::vector<TextSegment> segments = {{text.substr(0, cut), true},
                                               {text.substr(cut), true}};
    const auto ids = Tiny().EncodeSegments(segments);
    ASSERT_TRUE(ids);
    EXPECT_EQ(*ids == Encode(Tiny(), whole), !inside) << cut;
  }
}

TEST(Tokenizer, MarkersDoNotFormAcrossTheBorderOfUserText) {
  const std::vector<TextSegment> segments = {
      {"<|turn>user\n", true}, {"<turn", false}, {"|>\n", true}};
  const auto ids = Tiny().EncodeSegments(segments);
  ASSERT_TRUE(ids);
  EXPECT_EQ(std::count(ids->begin(), ids->end(), IdOf("<turn|>")), 0);
  EXPECT_EQ(ids->front(), IdOf("<|turn>"));
}

TEST(Tokenizer, NewlineRunsCrossSegmentBorders) {
  const std::vector<TextSegment> segments = {{"a\n", true}, {"\nb", false}};
  const auto ids = Tiny().EncodeSegments(segments);
  ASSERT_TRUE(ids);
  EXPECT_EQ(*ids, Encode(Tiny(), "a\n\nb"));
}

TEST(Tokenizer, ExactlyOneBos) {
  const EncodeOptions with_bos{.add_bos = true};
  const Ids hello = Encode(Tiny(), "Hello");
  Ids expected = hello;
  expected.insert(expected.begin(), 2);
  EXPECT_EQ(Encode(Tiny(), "Hello", with_bos), expected);
  EXPECT_EQ(Encode(Tiny(), "<bos>Hello", with_bos), expected);
  EXPECT_EQ(Encode(Tiny(), "<bos><bos>Hello", with_bos), expected);
  EXPECT_EQ(Encode(Tiny(), "<bos>Hello"), expected);
  EXPECT_EQ(Encode(Tiny(), "", with_bos), Ids{2});
}

TEST(Tokenizer, UnknownCharactersBecomeBytes) {
  const TokenId zero = IdOf("<0x00>");
  EXPECT_EQ(Encode(Tiny(), "\xF0\x9F\xA6\x99"),
            (Ids{zero + 0xF0, zero + 0x9F, zero + 0xA6, zero + 0x99}));
  EXPECT_EQ(Encode(Tiny(), std::string_view("\0", 1)), Ids{zero});
}

TEST(Tokenizer, InvalidUtf8IsRefusedWithItsOffset) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"abc\xFFz", "byte 3"},
      {"\xED\xA0\x80", "byte 0"},                   // a lone surrogate
      {"twelve bytes\xC3", "byte 12"},              // ends inside a sequence
      {std::string("a\0b\xC0\xAF", 5), "byte 3"}};  // overlong
  for (const auto& [text, where] : cases) {
    const auto ids = Tiny().Encode(text);
    ASSERT_FALSE(ids);
    EXPECT_EQ(ids.error().id, "text.utf8");
    EXPECT_EQ(ids.error().kind, ErrorKind::kUsage);
    EXPECT_THAT(ids.error().message, HasSubstr(where));
  }
}

TEST(Tokenizer, EndOfGenerationIsResolvedByName) {
  EXPECT_THAT(Tiny().end_of_generation_ids(),
              ::testing::ElementsAre(IdOf("<eos>"), IdOf("<|tool_response>"), IdOf("<turn|>")));
  const auto vocabulary = LoadTinyVocabulary();
  vocabulary->AddToken("</s>", TokenType::kUserDefined);
  const auto html = static_cast<uint64_t>(vocabulary->data().tokens.size() - 1);
  vocabulary->data().eos_id = html;
  vocabulary->data().eot_id = 400;
  vocabulary->data().extra_eos_ids = {401, static_cast<int64_t>(html)};
  const auto tokenizer = vocabulary->Build();
  EXPECT_TRUE(tokenizer->IsEndOfGeneration(400));
  EXPECT_TRUE(tokenizer->IsEndOfGeneration(401));
  EXPECT_TRUE(tokenizer->IsEndOfGeneration(IdOf("<turn|>")));
  EXPECT_FALSE(tokenizer->IsEndOfGeneration(static_cast<TokenId>(html)));
}

TEST(Tokenizer, RequestedStopCancels) {
  std::stop_source source;
  source.request_stop();
  const EncodeOptions options{.stop = source.get_token()};
  std::string one_word;
  std::string many_words;
  for (int i = 0; i < 20000; ++i) {
    one_word += "the";
    many_words += " the";
  }
  for (const std::string& text : {one_word, many_words}) {
    const auto ids = Tiny().Encode(text, options);
    ASSERT_FALSE(ids);
    EXPECT_EQ(ids.error().id, "tokenizer.cancelled");
  }
}

TEST(Tokenizer, MegabytesWithoutAWordBorder) {
  constexpr size_t kBytes = 1 << 20;
  std::string marks = "e";
  while (marks.size() < kBytes) marks += "\xCC\x81";
  std::string period;
  while (period.size() < kBytes) period += "theandin";
  const std::vector<std::string> texts = {marks, period, std::string(kBytes, '\n'),
                                          std::string(kBytes, ' '), std::string(kBytes, '<')};
  for (const std::string& text : texts) {
    EXPECT_EQ(Tiny().Decode(Encode(Tiny(), text)), text) << text.substr(0, 8);
  }
}

TEST(Tokenizer, ThreadsMayShareIt) {
  const std::string text = "The prince said nothing to Rostov.\n\n";
  const Ids expected = Encode(Tiny(), text);
  std::vector<std::jthread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) wrong += *Tiny().Encode(text) != expected;
    });
  }
  threads.clear();
  EXPECT_EQ(wrong, 0);
}

// The definition of the algorithm, word for word: join the best pair of the whole text, again and
// again.
Ids EncodeByDefinition(const VocabularyData& data, const std::string& text) {
  std::vector<std::string> symbols;
  for (const char c : text) symbols.push_back(c == ' ' ? "▁" : std::string(1, c));
  for (;;) {
    size_t best_rank = data.merges.size();
    size_t best = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const std::string line = symbols[i] + " " + symbols[i + 1];
      const auto rank = static_cast<size_t>(
          std::find(data.merges.begin(), data.merges.end(), line) - data.merges.begin());
      if (rank < best_rank) {
        best_rank = rank;
        best = i;
      }
    }
    if (best_rank == data.merges.size()) break;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
  Ids ids;
  for (const std::string& symbol : symbols) {
    ids.push_back(static_cast<TokenId>(std::find(data.tokens.begin(), data.tokens.end(), symbol) -
                                       data.tokens.begin()));
  }
  return ids;
}

// Random vocabularies with merges in arbitrary order (a merge may enable one of lower rank, tokens
// may join a letter and a following space), texts long enough for each queue.
TEST(Tokenizer, AgreesWithTheDefinitionOnRandomVocabularies) {
  std::mt19937 random(12345);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  for (int round = 0; round < 60; ++round) {
    OwnedVocabulary vocabulary;
    std::vector<std::string> texts = {"<pad>", "<eos>", "<bos>", "<unk>", "a", "b", "c", "▁"};
    std::vector<std::string> merges;
    while (merges.size() < 24) {
      const std::string left = texts[4 + below(texts.size() - 4)];
      const std::string right = texts[4 + below(texts.size() - 4)];
      if (left.size() + right.size() > 24) continue;
      merges.push_back(left + " " + right);
      if (std::find(texts.begin(), texts.end(), left + right) == texts.end()) {
        texts.push_back(left + right);
      }
    }
    std::shuffle(merges.begin(), merges.end(), random);
    for (size_t i = 0; i < texts.size(); ++i) {
      vocabulary.AddToken(texts[i], i < 4 ? TokenType::kControl : TokenType::kNormal);
    }
    for (const std::string& merge : merges) vocabulary.AddMerge(merge);
    const auto tokenizer = vocabulary.Build();
    for (const size_t length : {1, 7, 40, 200}) {
      std::string text;
      for (size_t i = 0; i < length; ++i) text += "abc a"[below(5)];
      EXPECT_EQ(Encode(*tokenizer, text), EncodeByDefinition(vocabulary.data(), text)) << text;
    }
  }
}

// The three merge loops must agree where one hands over to the next; 40,000 symbols reach the
// third.
TEST(Tokenizer, LongWordsEncodeLikeTheirPeriod) {
  OwnedVocabulary vocabulary;
  for (const char* text : {"<pad>", "<eos>", "<bos>", "<unk>"}) {
    vocabulary.AddToken(text, TokenType::kControl);
  }
  for (const char* text : {"a", "b", "c", "ab", "abc", "abcabc"}) {
    vocabulary.AddToken(text, TokenType::kNormal);
  }
  for (const char* merge : {"abc abc", "ab c", "a b"}) vocabulary.AddMerge(merge);
  const auto tokenizer = vocabulary.Build();
  std::string text;
  for (const size_t periods : {2, 16, 1000, 20000}) {
    text.clear();
    for (size_t i = 0; i < periods; ++i) text += "abc";
    // "abc abc" has the lowest rank, so every second "abc" is taken up as soon as it exists.
    const Ids expected(periods / 2, *tokenizer->FindToken("abcabc"));
    EXPECT_EQ(Encode(*tokenizer, text), expected) << periods;
  }
}

}  // namespace
}  // namespace rullama
