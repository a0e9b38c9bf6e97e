// Schemas as grammars, and grammars on texts, for tests.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/constraint/automaton.h"
#include "core/constraint/schema_compiler.h"

namespace rullama::constraint {

inline constexpr std::string_view kTestQuote = "<|\"|>";

inline ValueSyntax MarkedSyntax() {
  return {.quote = kFirstMarker, .quote_text = kTestQuote, .spaces = false};
}

// More time than any test takes, on any machine.
inline CompileDeadline LongDeadline() { return CompileDeadline(std::chrono::hours(1)); }

inline Result<std::shared_ptr<const Grammar>> CompileSchema(std::string_view text,
                                                            const ValueSyntax& syntax = {}) {
  RL_ASSIGN_OR_RETURN(const Json schema, ParseSchemaText(text, "schema"));
  return GrammarOf(schema, syntax, LongDeadline());
}

// The symbols of a text in which kTestQuote stands for the marker.
inline std::vector<Symbol> SymbolsOfText(std::string_view text, bool marked) {
  std::vector<Symbol> symbols;
  while (!text.empty()) {
    const bool is_marker = marked && text.starts_with(kTestQuote);
    symbols.push_back(is_marker ? kFirstMarker : static_cast<uint8_t>(text[0]));
    text.remove_prefix(is_marker ? kTestQuote.size() : 1);
  }
  return symbols;
}

inline bool AcceptsText(Automaton& automaton, std::string_view text, bool marked = false) {
  ConfigId config = automaton.start();
  for (const Symbol symbol : SymbolsOfText(text, marked)) config = automaton.Step(config, symbol);
  return automaton.may_end(config);
}

// A text that the grammar accepts, drawn symbol by symbol; the nearer to the end the more likely,
// once `budget` symbols have been drawn.
inline std::string RandomText(Automaton& automaton, std::mt19937& random, size_t budget) {
  std::string text;
  ConfigId config = automaton.start();
  while (!automaton.must_end(config)) {
    if (automaton.may_end(config) && (random() % 4 == 0 || text.size() > budget)) break;
    std::vector<std::pair<Symbol, ConfigId>> choices;
    for (Symbol symbol = 0; symbol <= kFirstMarker; ++symbol) {
      const ConfigId next = automaton.Step(config, symbol);
      if (next == Automaton::kNowhere) continue;
      const bool closer = automaton.symbols_to_end(next) < automaton.symbols_to_end(config);
      if (text.size() > budget && !closer) continue;
      choices.emplace_back(symbol, next);
    }
    if (choices.empty()) {
      ADD_FAILURE() << "dead end after " << text;
      return text;
    }
    // Each class of symbols is as likely as any other, so that structure is not drowned by letters.
    const Grammar& grammar = automaton.grammar();
    const uint32_t wanted = grammar.class_of(choices[random() % choices.size()].first);
    const bool structure = random() % 2 == 0;
    auto [symbol, next] = choices[random() % choices.size()];
    for (const auto& choice : choices) {
      if (structure && grammar.class_of(choice.first) == wanted) std::tie(symbol, next) = choice;
    }
    if (symbol == kFirstMarker) {
      text += kTestQuote;
    } else {
      text += static_cast<char>(symbol);
    }
    config = next;
  }
  return text;
}

}  // namespace rullama::constraint
