// Random schemas: what their grammars accept is valid for a validator that knows nothing of
// grammars, and masks are those of trying each token byte by byte.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/constraint/constraint_test_util.h"
#include "core/constraint/matcher.h"
#include "core/constraint/random_schema_test_util.h"
#include "core/constraint/schema_validator_test_util.h"
#include "core/tokenizer/tokenizer_test_support.h"

namespace rullama::constraint {
namespace {

constexpr std::array<std::string_view, 1> kTestMarkers = {kTestQuote};

// Reasons for which drawn schemas may be refused: they contradict themselves, or mix what cannot be
// merged.
bool IsExpected(const Error& error) {
  return error.id == "schema.invalid" || error.id == "schema.unsupported";
}

TEST(Differential, RandomTextsAreValid) {
  int compiled = 0;
  for (uint32_t seed = 0; seed < 1'000; ++seed) {
    const std::string text = RandomSchema(seed).Draw().dump();
    SCOPED_TRACE(text);
    const auto grammar = CompileSchema(text);
    if (!grammar) {
      EXPECT_TRUE(IsExpected(grammar.error())) << grammar.error().ToString();
      continue;
    }
    ++compiled;
    const SchemaValidator validator(nlohmann::json::parse(text));
    Automaton automaton(*grammar);
    std::mt19937 random(seed);
    for (int i = 0; i < 5; ++i) {
      const std::string answer = RandomText(automaton, random, 60);
      const auto value = nlohmann::json::parse(answer, nullptr, /*allow_exceptions=*/false);
      ASSERT_FALSE(value.is_discarded()) << answer;
      ASSERT_TRUE(validator.IsValid(value)) << answer;
    }
  }
  EXPECT_GT(compiled, 600);
}

class MaskTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    vocabulary_ = tokenizer_test::LoadTinyVocabulary();
    tokenizer_ = vocabulary_->Build();
    trie_ = TokenTrie::Build(*tokenizer_, kTestMarkers, static_cast<int64_t>(tokenizer_->size()));
  }
  static void TearDownTestSuite() {
    trie_.reset();
    tokenizer_.reset();
    vocabulary_.reset();
  }
  static std::shared_ptr<MaskTable> TableOf(std::string_view schema,
                                            const ValueSyntax& syntax = {}) {
    const auto grammar = CompileSchema(schema, syntax);
    return grammar ? std::make_shared<MaskTable>(*grammar, trie_) : nullptr;
  }
  static bool IsAllowed(std::span<const uint32_t> mask, TokenId token) {
    return mask.empty() || IsTokenAllowed(mask, token);
  }

  static TokenId ByteToken(char byte) {
    return *tokenizer_->FindToken(fmt::format("<0x{:02X}>", static_cast<uint8_t>(byte)));
  }

  // The configuration after a token, found symbol by symbol.
  static ConfigId After(Automaton& automaton, ConfigId config, TokenId token) {
    const std::vector<Symbol> symbols = trie_->SymbolsOf(token);
    if (symbols.empty()) return Automaton::kNowhere;
    for (const Symbol symbol : symbols) config = automaton.Step(config, symbol);
    return config;
  }

  static void ExpectMasksOfEachToken(const std::shared_ptr<MaskTable>& table, uint32_t seed);

  static std::unique_ptr<tokenizer_test::OwnedVocabulary> vocabulary_;
  static std::shared_ptr<const Tokenizer> tokenizer_;
  static std::shared_ptr<const TokenTrie> trie_;
};

std::unique_ptr<tokenizer_test::OwnedVocabulary> MaskTest::vocabulary_;
std::shared_ptr<const Tokenizer> MaskTest::tokenizer_;
std::shared_ptr<const TokenTrie> MaskTest::trie_;

// Follows a text that is drawn from the masks, and compares each mask with that of trying every
// token.
void MaskTest::ExpectMasksOfEachToken(const std::shared_ptr<MaskTable>& table, uint32_t seed) {
  Matcher matcher(table);
  Automaton naive(table->grammar());
  ConfigId config = naive.start();
  std::mt19937 random(seed);
  for (int step = 0; step < 12 && !matcher.must_end(); ++step) {
    const int64_t left = step % 4 == 3 ? 1 + random() % 40 : 1'000'000;
    const auto mask = matcher.Mask(left);
    ASSERT_TRUE(mask) << mask.error().ToString();
    std::vector<TokenId> allowed;
    std::vector<TokenId> within;
    for (TokenId token = 0; token < trie_->vocabulary(); ++token) {
      const bool end = tokenizer_->IsEndOfGeneration(token);
      const ConfigId next = end ? Automaton::kNowhere : After(naive, config, token);
      const bool fits = end ? naive.may_end(config) : next != Automaton::kNowhere;
      if (!fits) continue;
      allowed.push_back(token);
      if (end || naive.symbols_to_end(next) < left) within.push_back(token);
    }
    const std::vector<TokenId>& expected = within.empty() ? allowed : within;
    std::vector<TokenId> found;
    for (TokenId token = 0; token < trie_->vocabulary(); ++token) {
      if (IsAllowed(*mask, token)) found.push_back(token);
    }
    ASSERT_EQ(found, expected) << "step " << step;
    const TokenId token = expected[random() % expected.size()];
    if (tokenizer_->IsEndOfGeneration(token)) break;
    ASSERT_TRUE(matcher.Accept(token));
    config = After(naive, config, token);
  }
}

TEST_F(MaskTest, IsThatOfTryingEachToken) {
  for (uint32_t seed = 0; seed < 120; ++seed) {
    const std::string text = RandomSchema(seed).Draw().dump();
    SCOPED_TRACE(text);
    const auto table = TableOf(text, seed % 3 == 0 ? MarkedSyntax() : ValueSyntax{});
    if (table) ExpectMasksOfEachToken(table, seed);
  }
}

// In these schemas most characters lead back to the same configuration, but not all.
TEST_F(MaskTest, TellsLoopsApart) {
  const auto is_taken_as_a_whole = [](const TokenTrie::Node& node) {
    return node.size >= 8 && node.GoesOnBy(CharacterSet::kJsonPlain);
  };
  ASSERT_TRUE(std::ranges::any_of(trie_->nodes(), is_taken_as_a_whole));
  for (const std::string_view schema : {
           R"({"type":"string","pattern":"^[^0-9]*[0-9]?$"})",
           R"({"type":"string","pattern":"^[^ ]*$"})",
           R"({"type":"string","pattern":"a.*e"})",
           R"({"type":"string","pattern":"^[\\u0000-\\u007f]*$"})",
           R"({"type":"object","properties":{"the":{},"a":{}},"additionalProperties":{}})",
       }) {
    SCOPED_TRACE(schema);
    for (uint32_t seed = 0; seed < 20; ++seed) {
      const auto table = TableOf(schema, seed % 2 == 0 ? MarkedSyntax() : ValueSyntax{});
      ASSERT_TRUE(table);
      ExpectMasksOfEachToken(table, seed);
    }
  }
}

// Whatever is drawn, the text ends within the limit if the shortest one does.
TEST_F(MaskTest, EndsWithinTheLimit) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const std::string text = RandomSchema(seed).Draw().dump();
    SCOPED_TRACE(text);
    const auto table = TableOf(text);
    if (!table) continue;
    Automaton& automaton = table->automaton();
    const int64_t limit = automaton.symbols_to_end(automaton.start()) + seed % 20;
    Matcher matcher(table);
    std::mt19937 random(seed);
    std::string answer;
    for (int64_t left = limit; left > 0 && !matcher.must_end(); --left) {
      const auto mask = matcher.Mask(left);
      ASSERT_TRUE(mask) << mask.error().ToString();
      std::vector<TokenId> allowed;
      for (TokenId token = 0; token < trie_->vocabulary(); ++token) {
        if (IsAllowed(*mask, token)) allowed.push_back(token);
      }
      ASSERT_FALSE(allowed.empty());
      const TokenId token = allowed[random() % allowed.size()];
      if (tokenizer_->IsEndOfGeneration(token)) break;
      ASSERT_TRUE(matcher.Accept(token));
      answer += *tokenizer_->Decode(std::span(&token, 1));
    }
    EXPECT_TRUE(matcher.may_end()) << answer;
  }
}

// Other answers that used the same table before change nothing.
TEST_F(MaskTest, DoesNotDependOnEarlierAnswers) {
  constexpr std::string_view kSchema =
      R"({"anyOf":[{"type":"array","items":{"$ref":"#"},"maxItems":2},)"
      R"({"type":"array","items":{"$ref":"#"},"maxItems":3},{"type":"string","maxLength":9}]})";
  const auto used = TableOf(kSchema);
  Matcher other(used);
  for (const char byte : std::string_view("[\"a\",[[")) {
    ASSERT_TRUE(other.Mask(100));
    ASSERT_TRUE(other.Accept(ByteToken(byte))) << byte;
  }
  Matcher shared(used);
  Matcher alone(TableOf(kSchema));
  for (int step = 0; step < 40; ++step) {
    const auto mask = shared.Mask(200);
    const auto expected = alone.Mask(200);
    ASSERT_TRUE(mask);
    ASSERT_TRUE(expected);
    ASSERT_TRUE(std::ranges::equal(*mask, *expected)) << step;
    ASSERT_TRUE(shared.Accept(ByteToken('[')));
    ASSERT_TRUE(alone.Accept(ByteToken('[')));
  }
}

TEST_F(MaskTest, GoesOnInAFreshTable) {
  const auto table = TableOf(R"({"type":"array","items":{"type":"string","maxLength":5}})");
  Automaton& old = table->automaton();
  ConfigId config = old.start();
  for (const char byte : std::string_view("[\"abc"))
    config = old.Step(config, static_cast<uint8_t>(byte));
  Automaton fresh(table->grammar());
  ConfigId imported = fresh.Import(old, config);
  EXPECT_EQ(fresh.symbols_to_end(imported), old.symbols_to_end(config));
  for (const char byte : std::string_view("de\",\"")) {
    config = old.Step(config, static_cast<uint8_t>(byte));
    imported = fresh.Step(imported, static_cast<uint8_t>(byte));
    ASSERT_NE(imported, Automaton::kNowhere);
  }
  EXPECT_EQ(fresh.Step(fresh.Step(imported, 'f'), '"') != Automaton::kNowhere, true);
  EXPECT_EQ(fresh.symbols_to_end(imported), old.symbols_to_end(config));
}

TEST_F(MaskTest, RefusesATokenThatIsBanned) {
  Matcher matcher(TableOf(R"({"type":"null"})"));
  const Status status = matcher.Accept(ByteToken('t'));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().id, "constraint.token");
}

}  // namespace
}  // namespace rullama::constraint
