// The rules for writing values: as JSON, or with strings between markers, as models write arguments
// of tool calls.
//
// Every value has one spelling only: JSON strings escape what they must, with the short form where
// there is one; \u stands for other control characters.
#pragma once

#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/constraint/compile_deadline.h"
#include "core/constraint/content_dfa.h"
#include "core/constraint/grammar.h"
#include "core/constraint/json_text.h"

namespace rullama::constraint {

struct ValueSyntax {
  // The marker on both sides of a string, between which nothing is escaped. Keys are bare, unless
  // they would be read differently then: those stand between markers. None: JSON.
  std::optional<Symbol> quote = {};
  // The text of the marker, which must not be inside a string or a key.
  std::string_view quote_text = {};
  bool spaces = true;  // one may follow : and ,
};

// Adds the rules of strings to a grammar, each once. Ownership: borrows the builder.
class TextRules {
 public:
  TextRules(GrammarBuilder& builder, const ValueSyntax& syntax, const CompileDeadline& deadline)
      : builder_(builder), syntax_(syntax), deadline_(deadline) {}

  [[nodiscard]] const ValueSyntax& syntax() const { return syntax_; }

  // A string of min to max characters (kUnlimited: any number).
  RuleId String(uint32_t min, uint32_t max);
  // A string that `content` accepts. Error schema.too_large.
  Result<RuleId> StringOf(const ContentDfa& content);
  // A key that is not in `names`; between markers only of letters, digits, _, . and -. Error
  // schema.too_large.
  Result<RuleId> KeyBut(std::span<const std::string> names);
  // Continues with a separator and the space that may follow it.
  StateId AddSeparator(StateId from, char separator);
  // Adds a key to the state `from`, and returns the state after it.
  StateId AddKey(StateId from, std::string_view name);
  // A value as symbols.
  [[nodiscard]] std::vector<Symbol> Spell(const Json& value) const;

 private:
  void Spell(const Json& value, std::vector<Symbol>& symbols) const;
  // The rules that take one character: one for JSON; with markers one for each part of a marker
  // that may have been spelled out so far.
  const std::vector<RuleId>& Characters();
  RuleId JsonCharacter();
  RuleId MarkedCharacter(size_t spelled);
  void AddUtf8(StateId from, StateId to);
  StateId AddEscapes(std::span<const uint8_t> bytes, StateId to);
  // Leads from one state to another by the bytes first to last of a string's content.
  void AddContent(StateId from, uint8_t first, uint8_t last, StateId to);
  Result<RuleId> Content(const ContentDfa& content, bool quoted);
  StateId AddQuote(StateId from);

  GrammarBuilder& builder_;
  ValueSyntax syntax_;
  CompileDeadline deadline_;
  std::vector<RuleId> characters_;
  std::map<std::pair<uint32_t, uint32_t>, RuleId> strings_;
  // Within one call of Content(): where escapes of these bytes begin that lead to a state.
  std::map<std::pair<StateId, std::vector<uint8_t>>, StateId> escapes_;
};

}  // namespace rullama::constraint
