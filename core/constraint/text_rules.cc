#include "core/constraint/text_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

namespace rullama::constraint {
namespace {

struct ShortEscape {
  char byte;
  char letter;
};
constexpr auto kShortEscapes = std::to_array<ShortEscape>(
    {{'"', '"'}, {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'}, {'\n', 'n'}, {'\r', 'r'}, {'\t', 't'}});

// The spelling of a byte inside a JSON string.
std::string Escaped(uint8_t byte) {
  for (const ShortEscape& escape : kShortEscapes) {
    if (static_cast<uint8_t>(escape.byte) == byte) return {'\\', escape.letter};
  }
  if (byte < 0x20) return fmt::format("\\u{:04x}", byte);
  return {static_cast<char>(byte)};
}

// Whether a key is read as it is without markers: up to the colon, without the space around it.
bool IsBareKey(std::string_view key) {
  const auto is_bare = [](char c) {
    return static_cast<unsigned char>(c) >= 0x20 &&
           std::string_view(":,{}").find(c) == std::string_view::npos;
  };
  return !key.empty() && key.front() != '"' && key.front() != ' ' && key.back() != ' ' &&
         std::ranges::all_of(key, is_bare);
}

}  // namespace

StateId TextRules::AddQuote(StateId from) {
  const StateId to = builder_.AddState();
  builder_.AddEdge(from, syntax_.quote.value_or('"'), to);
  return to;
}

StateId TextRules::AddSeparator(StateId from, char separator) {
  const StateId after = builder_.AddState();
  builder_.AddEdge(from, static_cast<uint8_t>(separator), after);
  if (!syntax_.spaces) return after;
  const StateId next = builder_.AddState();
  builder_.AddEpsilon(after, next);
  builder_.AddEdge(after, ' ', next);
  return next;
}

StateId TextRules::AddKey(StateId from, std::string_view name) {
  if (syntax_.quote) {
    if (IsBareKey(name)) return builder_.AddText(from, name);
    return AddQuote(builder_.AddText(AddQuote(from), name));
  }
  std::string text = "\"";
  for (const char byte : name) text += Escaped(static_cast<uint8_t>(byte));
  return builder_.AddText(from, text + '"');
}

std::vector<Symbol> TextRules::Spell(const Json& value) const {
  std::vector<Symbol> symbols;
  Spell(value, symbols);
  return symbols;
}

void TextRules::Spell(const Json& value, std::vector<Symbol>& symbols) const {
  const auto add = [&symbols](std::string_view text) {
    for (const char byte : text) symbols.push_back(static_cast<uint8_t>(byte));
  };
  const auto add_quoted = [&](std::string_view text) {
    symbols.push_back(*syntax_.quote);
    add(text);
    symbols.push_back(*syntax_.quote);
  };
  const bool has_quotes = value.is_string() || value.is_structured();
  if (!syntax_.quote || !has_quotes) {
    add(value.dump());
  } else if (value.is_string()) {
    add_quoted(value.get_ref<const std::string&>());
  } else {
    add(value.is_object() ? "{" : "[");
    bool first = true;
    for (const auto& [key, member] : value.items()) {
      if (!first) add(",");
      first = false;
      if (value.is_object()) {
        IsBareKey(key) ? add(key) : add_quoted(key);
        add(":");
      }
      Spell(member, symbols);
    }
    add(value.is_object() ? "}" : "]");
  }
}

RuleId TextRules::String(uint32_t min, uint32_t max) {
  const auto [found, is_new] = strings_.try_emplace({min, max}, 0);
  if (!is_new) return found->second;
  const RuleId rule = found->second = builder_.AddRule();
  const StateId start = builder_.AddState();
  builder_.SetStart(rule, start);
  const StateId inside = AddQuote(start);
  const StateId after = builder_.AddState();
  builder_.AddEpsilon(inside, builder_.AddRepeat(Characters(), min, max, after));
  builder_.AddEpsilon(AddQuote(after), builder_.AddAccept());
  return rule;
}

const std::vector<RuleId>& TextRules::Characters() {
  if (!characters_.empty()) return characters_;
  if (!syntax_.quote) {
    characters_ = {JsonCharacter()};
    return characters_;
  }
  for (size_t spelled = 0; spelled < syntax_.quote_text.size(); ++spelled) {
    characters_.push_back(MarkedCharacter(spelled));
  }
  builder_.SetCharacters(characters_.front(), CharacterSet::kRawPlain);
  return characters_;
}

RuleId TextRules::JsonCharacter() {
  const RuleId rule = builder_.AddRule();
  builder_.SetCharacters(rule, CharacterSet::kJsonPlain);
  const StateId start = builder_.AddState();
  builder_.SetStart(rule, start);
  const StateId accept = builder_.AddAccept();
  builder_.AddEdge(start, ' ', '!', accept);
  builder_.AddEdge(start, '#', '[', accept);
  builder_.AddEdge(start, ']', 0x7F, accept);
  AddUtf8(start, accept);
  std::vector<uint8_t> escaped;
  for (int byte = 0; byte < 0x80; ++byte) {
    if (Escaped(static_cast<uint8_t>(byte)).size() > 1) {
      escaped.push_back(static_cast<uint8_t>(byte));
    }
  }
  builder_.AddEdge(start, '\\', AddEscapes(escaped, accept));
  return rule;
}

// A state after a backslash, from which the rest of any of these bytes' escapes leads to `to`.
StateId TextRules::AddEscapes(std::span<const uint8_t> bytes, StateId to) {
  const StateId start = builder_.AddState();
  std::optional<StateId> digits;  // after u00
  std::array<std::optional<StateId>, 2> low;
  for (const uint8_t byte : bytes) {
    const std::string escaped = Escaped(byte);
    if (escaped.size() == 2) {
      builder_.AddEdge(start, static_cast<uint8_t>(escaped[1]), to);
      continue;
    }
    if (!digits) digits = builder_.AddText(start, "u00");
    auto& high = low[byte / 16];
    if (!high) {
      high = builder_.AddState();
      builder_.AddEdge(*digits, static_cast<uint8_t>(escaped[4]), *high);
    }
    builder_.AddEdge(*high, static_cast<uint8_t>(escaped[5]), to);
  }
  return start;
}

// A character between markers. The text must not spell the marker: a rule accepts with the number
// of bytes that the text now ends in and a marker begins with. The first byte of a marker occurs
// nowhere else in it, so a byte that neither begins nor continues the marker spells nothing.
RuleId TextRules::MarkedCharacter(size_t spelled) {
  const std::string_view marker = syntax_.quote_text;
  const RuleId rule = builder_.AddRule();
  const StateId start = builder_.AddState();
  builder_.SetStart(rule, start);
  const auto accept = [&](size_t now_spelled) {
    return builder_.AddAccept(
        static_cast<int8_t>(static_cast<int>(now_spelled) - static_cast<int>(spelled)));
  };
  const StateId plain = accept(0);
  const auto first = static_cast<uint8_t>(marker[0]);
  const auto next = static_cast<uint8_t>(marker[spelled]);
  uint8_t begin = 0;
  for (int byte = 0; byte <= 0x80; ++byte) {
    if (byte != first && byte != next && byte != 0x80) continue;
    if (begin < byte) builder_.AddEdge(start, begin, static_cast<Symbol>(byte - 1), plain);
    begin = static_cast<uint8_t>(byte + 1);
  }
  if (next != first) builder_.AddEdge(start, first, accept(1));
  if (spelled + 1 < marker.size()) {
    builder_.AddEdge(start, next, accept(spelled + 1));
  }
  AddUtf8(start, plain);
  return rule;
}

// A character of two bytes or more.
void TextRules::AddUtf8(StateId from, StateId to) {
  std::array<StateId, kUtf8States> states;
  states[0] = to;
  for (size_t i = 1; i < states.size(); ++i) states[i] = builder_.AddState();
  const auto add = [&](int state, StateId source) {
    for (int byte = 0x80; byte < 0x100; ++byte) {
      const int next = NextUtf8State(state, static_cast<uint8_t>(byte));
      if (next < 0) continue;
      const int first = byte;
      while (byte < 0xFF && NextUtf8State(state, static_cast<uint8_t>(byte + 1)) == next) ++byte;
      builder_.AddEdge(source, static_cast<Symbol>(first), static_cast<Symbol>(byte),
                       states[static_cast<size_t>(next)]);
    }
  };
  add(0, from);
  for (int state = 1; state < kUtf8States; ++state) add(state, states[static_cast<size_t>(state)]);
}

Result<RuleId> TextRules::StringOf(const ContentDfa& content) {
  if (!syntax_.quote) return Content(content, /*quoted=*/true);
  RL_ASSIGN_OR_RETURN(const ContentDfa unmarked, Without(syntax_.quote_text, deadline_));
  RL_ASSIGN_OR_RETURN(const ContentDfa allowed, Intersection(content, unmarked, deadline_));
  return Content(allowed, /*quoted=*/true);
}

Result<RuleId> TextRules::KeyBut(std::span<const std::string> names) {
  if (!syntax_.quote && names.empty()) return String(0, kUnlimited);
  RL_ASSIGN_OR_RETURN(const ContentDfa keys,
                      syntax_.quote ? BareKeysBut(names, deadline_) : AllBut(names, deadline_));
  return Content(keys, /*quoted=*/!syntax_.quote);
}

Result<RuleId> TextRules::Content(const ContentDfa& content, bool quoted) {
  const RuleId rule = builder_.AddRule();
  const StateId start = builder_.AddState();
  builder_.SetStart(rule, start);
  if (content.states.empty()) return rule;
  std::vector<StateId> states;
  states.reserve(content.states.size());
  for (size_t i = 0; i < content.states.size(); ++i) states.push_back(builder_.AddState());
  builder_.AddEpsilon(quoted ? AddQuote(start) : start, states[0]);
  const StateId end = builder_.AddState();
  builder_.AddEpsilon(quoted ? AddQuote(end) : end, builder_.AddAccept());
  escapes_.clear();
  for (size_t i = 0; i < content.states.size(); ++i) {
    RL_RETURN_IF_ERROR(deadline_.Check());
    for (const ContentDfa::Edge& edge : content.states[i].edges) {
      AddContent(states[i], edge.first, edge.last, states[edge.target]);
    }
    if (content.states[i].accepts) builder_.AddEpsilon(states[i], end);
  }
  return rule;
}

void TextRules::AddContent(StateId from, uint8_t first, uint8_t last, StateId to) {
  if (syntax_.quote) {
    builder_.AddEdge(from, first, last, to);
    return;
  }
  int begin = first;  // of the bytes that stand for themselves
  std::vector<uint8_t> escaped;
  for (int byte = first; byte <= last; ++byte) {
    if (Escaped(static_cast<uint8_t>(byte)).size() == 1) continue;
    escaped.push_back(static_cast<uint8_t>(byte));
    if (begin < byte) {
      builder_.AddEdge(from, static_cast<Symbol>(begin), static_cast<Symbol>(byte - 1), to);
    }
    begin = byte + 1;
  }
  if (begin <= last) builder_.AddEdge(from, static_cast<Symbol>(begin), last, to);
  if (escaped.empty()) return;
  const auto [found, is_new] = escapes_.try_emplace({to, escaped}, 0);
  if (is_new) found->second = AddEscapes(escaped, to);
  builder_.AddEdge(from, '\\', found->second);
}

}  // namespace rullama::constraint
