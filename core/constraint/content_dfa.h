// Deterministic automata over the content of strings: what a pattern, a format or a length allows.
//
// Value types and pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/constraint/compile_deadline.h"

namespace rullama::constraint {

// The texts are UTF-8. From every state an accepting one can be reached; without any state no text
// is accepted.
struct ContentDfa {
  struct Edge {
    uint8_t first = 0;  // of the bytes first to last
    uint8_t last = 0;
    uint32_t target = 0;
  };
  struct State {
    std::vector<Edge> edges;
    bool accepts = false;
  };
  std::vector<State> states;  // the first one is the start

  [[nodiscard]] bool Accepts(std::string_view text) const;
};

inline constexpr size_t kMaxPatternStates = 20'000;
inline constexpr size_t kMaxContentStates = 100'000;

// The state of a UTF-8 decoder after a byte, or -1 if no valid sequence continues like this. 0 is
// the state between characters.
int NextUtf8State(int state, uint8_t byte);
inline constexpr int kUtf8States = 8;

// The functions that follow have one error, schema.too_large (kUsage): more than kMaxContentStates,
// or no time left.

// Texts that both accept.
Result<ContentDfa> Intersection(const ContentDfa& a, const ContentDfa& b,
                                const CompileDeadline& deadline);
// Texts of at least `min` and at most `max` characters (kUnlimited: any number).
Result<ContentDfa> WithLength(const ContentDfa& dfa, uint32_t min, uint32_t max,
                              const CompileDeadline& deadline);
// All texts but these.
Result<ContentDfa> AllBut(std::span<const std::string> texts, const CompileDeadline& deadline);
// Texts without `text` in them, which begins with a byte that it does not have twice.
Result<ContentDfa> Without(std::string_view text, const CompileDeadline& deadline);
// Texts of at least one character, all of which are ASCII letters, digits, _, . or -, but these.
Result<ContentDfa> BareKeysBut(std::span<const std::string> texts, const CompileDeadline& deadline);

// Drops states from which no text is accepted.
void Prune(ContentDfa& dfa);

}  // namespace rullama::constraint
