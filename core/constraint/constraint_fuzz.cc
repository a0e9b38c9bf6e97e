// Schemas and patterns from arbitrary bytes; a schema that is refused is read leniently. A compiled
// grammar must have no dead ends: from every state
// on the way of a walk that the input steers, the end is as near as the automaton says, the text is
// JSON, and the mask is that of trying each token of a small vocabulary.
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/constraint/automaton.h"
#include "core/constraint/compile_deadline.h"
#include "core/constraint/matcher.h"
#include "core/constraint/pattern.h"
#include "core/constraint/schema_compiler.h"
#include "core/tokenizer/tokenizer.h"

namespace {

using rullama::TokenId;
using rullama::constraint::Automaton;
using rullama::constraint::CompileDeadline;
using rullama::constraint::ConfigId;
using rullama::constraint::Grammar;
using rullama::constraint::IsTokenAllowed;
using rullama::constraint::Json;
using rullama::constraint::MaskTable;
using rullama::constraint::Symbol;
using rullama::constraint::TokenMask;
using rullama::constraint::TokenTrie;

void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "violated: %s\n", what);
  std::abort();
}

std::shared_ptr<const Grammar> Compile(std::string_view text) {
  const auto schema = rullama::constraint::ParseSchemaText(text, "schema");
  if (!schema) return nullptr;
  const auto grammar = rullama::constraint::GrammarOf(*schema);
  if (grammar) return *grammar;
  return rullama::constraint::GrammarOf(*schema, {}, CompileDeadline(),
                                        rullama::constraint::Strictness::kLenient)
      .value_or(nullptr);
}

// Continues with symbols that bring the end nearer.
void Finish(Automaton& automaton, ConfigId config, std::string text) {
  for (uint32_t left = automaton.symbols_to_end(config); left > 0; --left) {
    ConfigId next = Automaton::kNowhere;
    Symbol symbol = 0;
    for (; symbol < 256; ++symbol) {
      next = automaton.Step(config, symbol);
      if (next != Automaton::kNowhere && automaton.symbols_to_end(next) < left) break;
    }
    Require(symbol < 256, "a symbol brings the end nearer");
    config = next;
    text += static_cast<char>(symbol);
  }
  Require(automaton.may_end(config), "the end is where it was said to be");
  Require(Json::accept(text), "the text is JSON");
}

// All bytes, and all texts of up to two and some of three of a few characters, so that the trie has
// large subtrees.
std::shared_ptr<const TokenTrie> MakeTrie() {
  constexpr auto kCharacters = std::to_array<std::string_view>(
      {"a", "b", "e", "t", "1", "0", " ", "\"", "\\",     ",",     ":",
       "{", "}", "[", "]", "-", ".", "<", "\n", "\u00e9", "\u20ac"});
  std::deque<std::string> texts;
  rullama::VocabularyData vocabulary;
  vocabulary.model = "gemma4";
  vocabulary.bos_id = 2;
  vocabulary.eos_id = 1;
  vocabulary.unknown_id = 3;
  const auto add = [&](std::string text, rullama::TokenType type) {
    vocabulary.tokens.push_back(texts.emplace_back(std::move(text)));
    vocabulary.types.push_back(static_cast<int32_t>(type));
  };
  for (const char* name : {"<pad>", "<eos>", "<bos>", "<unk>"}) {
    add(name, rullama::TokenType::kControl);
  }
  for (int byte = 0; byte < 256; ++byte) {
    std::array<char, 8> text{};
    std::snprintf(text.data(), text.size(), "<0x%02X>", byte);
    add(text.data(), rullama::TokenType::kByte);
  }
  for (const std::string_view first : kCharacters) {
    add(std::string(first), rullama::TokenType::kNormal);
    for (const std::string_view second : kCharacters) {
      const std::string two = std::string(first) + std::string(second);
      add(two, rullama::TokenType::kNormal);
      if (first != "a") continue;
      for (const std::string_view third : kCharacters) {
        add(two + std::string(third), rullama::TokenType::kNormal);
      }
    }
  }
  vocabulary.merges.emplace_back("a b");
  const auto tokenizer = rullama::Tokenizer::Build(vocabulary);
  Require(tokenizer.has_value(), "the vocabulary is one");
  return TokenTrie::Build(**tokenizer, {}, static_cast<int64_t>((*tokenizer)->size()));
}

struct Token {
  TokenId id = 0;
  std::vector<Symbol> symbols;
};

const std::vector<Token>& TextTokens(const TokenTrie& trie) {
  static const std::vector<Token> tokens = [&trie] {
    std::vector<Token> found;
    for (TokenId id = 0; id < trie.vocabulary(); ++id) {
      if (IsTokenAllowed(trie.text_tokens(), id)) found.push_back({id, trie.SymbolsOf(id)});
    }
    return found;
  }();
  return tokens;
}

// `limit`: of the symbols to the end after a token.
void CheckMask(MaskTable& table, ConfigId config, uint32_t limit) {
  TokenMask mask;
  table.FindWithin(config, limit, mask);
  if (limit == rullama::constraint::kUnreachable) {
    const MaskTable::Entry& entry = table.Find(config);
    TokenMask kept = entry.mask;
    if (kept.empty()) kept.assign(mask.size(), 0);
    for (const TokenId id : entry.tokens) rullama::constraint::AllowToken(kept, id);
    Require(entry.all || kept == mask, "the mask that is kept is the same");
  }
  for (const Token& token : TextTokens(table.trie())) {
    ConfigId after = config;
    for (const Symbol symbol : token.symbols) after = table.automaton().Step(after, symbol);
    const bool fits =
        after != Automaton::kNowhere && table.automaton().symbols_to_end(after) <= limit;
    Require(IsTokenAllowed(mask, token.id) == fits, "the mask is that of trying each token");
  }
}

void Walk(MaskTable& table, std::string_view steps) {
  constexpr uint32_t kFarAway = 4'096;
  Automaton& automaton = table.automaton();
  ConfigId config = automaton.start();
  std::string text;
  for (const char step : steps) {
    const uint32_t to_end = automaton.symbols_to_end(config);
    if (to_end > kFarAway) return;
    Finish(automaton, config, text);
    auto byte = static_cast<uint8_t>(step);
    if (byte % 4 == 0) CheckMask(table, config, to_end + byte / 16);
    if (byte % 8 == 1) CheckMask(table, config, rullama::constraint::kUnreachable);
    // The first symbol from the given byte on that is allowed.
    ConfigId next = Automaton::kNowhere;
    for (int i = 0; i < 256 && next == Automaton::kNowhere; ++i, ++byte) {
      next = automaton.Step(config, byte);
      if (next != Automaton::kNowhere) text += static_cast<char>(byte);
    }
    if (next == Automaton::kNowhere) return;
    config = next;
  }
}

}  // namespace

// The input is a schema, a zero byte, and the steps of a walk.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = input.find('\0');
  const std::string_view schema = input.substr(0, zero);
  (void)rullama::constraint::CompilePattern(schema, CompileDeadline());
  const auto grammar = Compile(schema);
  if (grammar == nullptr) return 0;
  static const std::shared_ptr<const TokenTrie> trie = MakeTrie();
  MaskTable table(grammar, trie);
  const size_t begin = zero == std::string_view::npos ? size : zero + 1;
  Walk(table, input.substr(begin).substr(0, 64));
  return 0;
}
