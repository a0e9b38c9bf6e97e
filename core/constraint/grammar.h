// Grammars of the texts that an answer may be: rules over bytes and markers, which call each other.
//
// A rule is a nondeterministic automaton. Its states have edges for symbols and edges for nothing,
// or they run another rule, once or a number of times, before they continue. An Automaton
// (automaton.h) runs a grammar.
//
// Thread safety: a Grammar is immutable; a GrammarBuilder belongs to one thread.
//
// The folder, from a schema to the mask of the next token:
//  - SchemaCompiler makes rules of schemas: schema_node.h reads one schema object, flat_schema.h
//    says what several demand together, text_rules.h, number_rules.h, pattern.h and plain_text.h
//    write values. The families of models add what else belongs to an answer, such as tool calls.
//  - Automaton runs the grammar. Every state knows the least number of bytes to a valid end, so
//    that near the limit of tokens the masks keep only tokens that leave room for it.
//  - MaskTable (matcher.h) walks the TokenTrie from a configuration. Where all characters of a set
//    lead back to it (character_loops.h), tokens of such characters are allowed without a walk.
//  - Matcher follows one answer.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/constraint/character_set.h"

namespace rullama::constraint {

// A byte, or kFirstMarker + i for the i-th marker of the vocabulary (token_trie.h).
using Symbol = uint16_t;
inline constexpr Symbol kFirstMarker = 256;
inline constexpr size_t kMaxMarkers = 15;
// Stands for each special token that is not a marker of the grammar.
inline constexpr Symbol kOtherSpecial = kFirstMarker + kMaxMarkers;
inline constexpr size_t kSymbols = kOtherSpecial + 1;

using StateId = uint32_t;
using RuleId = uint32_t;

inline constexpr uint32_t kUnlimited = std::numeric_limits<uint32_t>::max();
// More than any number of symbols or frames that is counted.
inline constexpr uint32_t kUnreachable = std::numeric_limits<uint32_t>::max() / 4;

class Grammar {
 public:
  struct Edge {
    Symbol first = 0;  // of the symbols first to last
    Symbol last = 0;
    StateId target = 0;
  };
  enum class Kind : uint8_t {
    kPlain,   // edges only
    kAccept,  // ends the rule
    kCall,    // runs `rule`, then continues in `next`
    kRepeat,  // runs `rule` min to max times, then continues in `next`
  };
  struct State {
    Kind kind = Kind::kPlain;
    // In kAccept: where a caller that repeats continues, as an offset to its own state.
    int8_t exit = 0;
    RuleId rule = 0;
    StateId next = 0;
    uint32_t min = 0;
    uint32_t max = 0;
  };
  // The least that is needed from a state to the end of its rule.
  struct Need {
    uint32_t symbols = kUnreachable;
    uint32_t frames = kUnreachable;  // rules that run inside one another at the same time
  };

  [[nodiscard]] const State& state(StateId id) const { return states_[id]; }
  // In ascending order of `first`.
  [[nodiscard]] std::span<const Edge> edges(StateId id) const {
    return std::span(edges_).subspan(edge_begin_[id], edge_begin_[id + 1] - edge_begin_[id]);
  }
  [[nodiscard]] std::span<const StateId> epsilons(StateId id) const {
    return std::span(epsilons_).subspan(epsilon_begin_[id],
                                        epsilon_begin_[id + 1] - epsilon_begin_[id]);
  }
  [[nodiscard]] StateId start(RuleId rule) const { return starts_[rule]; }
  [[nodiscard]] StateId start() const { return starts_[root_]; }
  // The characters that a rule takes one at a time.
  [[nodiscard]] CharacterSet characters(RuleId rule) const { return characters_[rule]; }
  [[nodiscard]] Need need(StateId id) const { return needs_[id]; }
  // The same for a repeating state that has run its rule `count` times.
  [[nodiscard]] Need need(StateId id, uint32_t count) const;

  // Symbols that no edge of the grammar tells apart have the same class.
  [[nodiscard]] uint32_t class_count() const { return class_count_; }
  [[nodiscard]] uint32_t class_of(Symbol symbol) const { return class_of_[symbol]; }
  // The first symbol of a class.
  [[nodiscard]] Symbol representative(uint32_t symbol_class) const {
    return representatives_[symbol_class];
  }
  [[nodiscard]] size_t state_count() const { return states_.size(); }
  [[nodiscard]] size_t bytes() const;

 private:
  friend class GrammarBuilder;
  struct Use;
  void FindClasses();
  void FindNeeds();
  [[nodiscard]] std::vector<Use> Uses() const;
  void FindLeast(uint32_t Need::*what, std::span<const Use> uses);

  std::vector<State> states_;
  std::vector<Edge> edges_;
  std::vector<uint32_t> edge_begin_;
  std::vector<StateId> epsilons_;
  std::vector<uint32_t> epsilon_begin_;
  std::vector<StateId> starts_;  // by rule
  std::vector<CharacterSet> characters_;
  std::vector<Need> needs_;
  RuleId root_ = 0;
  std::array<uint16_t, kSymbols> class_of_ = {};
  std::vector<Symbol> representatives_;
  uint32_t class_count_ = 0;
};

class GrammarBuilder {
 public:
  StateId AddState() { return Add({}); }
  StateId AddAccept(int8_t exit = 0) { return Add({.kind = Grammar::Kind::kAccept, .exit = exit}); }
  // Runs `rule`, then continues in `next`.
  StateId AddCall(RuleId rule, StateId next) {
    return Add({.kind = Grammar::Kind::kCall, .rule = rule, .next = next});
  }
  // A state for each of `rules`, one after the other. Each runs its rule; if that accepts with exit
  // i, execution continues i states further. All together run rules min to max times (kUnlimited:
  // any number), then continue in `next`. Returns the first.
  StateId AddRepeat(std::span<const RuleId> rules, uint32_t min, uint32_t max, StateId next);

  void AddEdge(StateId from, Symbol first, Symbol last, StateId to) {
    edges_.push_back({from, {first, last, to}});
  }
  void AddEdge(StateId from, Symbol symbol, StateId to) { AddEdge(from, symbol, symbol, to); }
  void AddEpsilon(StateId from, StateId to) { epsilons_.push_back({from, to}); }

  // Continues from `from` by the bytes of `text`, and returns the state after them.
  StateId AddText(StateId from, std::string_view text);
  // Leads from `from` to `to` by any of `texts`, which are sorted and distinct.
  void AddTexts(StateId from, std::span<const std::vector<Symbol>> texts, StateId to);

  // A rule whose start is set later. It may be called before.
  RuleId AddRule();
  void SetStart(RuleId rule, StateId start) { starts_[rule] = start; }
  void SetCharacters(RuleId rule, CharacterSet set) { characters_[rule] = set; }
  [[nodiscard]] StateId start(RuleId rule) const { return starts_[rule]; }

  [[nodiscard]] size_t state_count() const { return states_.size(); }

  // All rules that are called have a start. Nothing can be added afterwards.
  Grammar Finish(RuleId root) &&;

 private:
  struct FromEdge {
    StateId from = 0;
    Grammar::Edge edge;
  };
  struct Epsilon {
    StateId from = 0;
    StateId to = 0;
  };

  StateId Add(const Grammar::State& state) {
    states_.push_back(state);
    return static_cast<StateId>(states_.size() - 1);
  }

  std::vector<Grammar::State> states_;
  std::vector<FromEdge> edges_;
  std::vector<Epsilon> epsilons_;
  std::vector<StateId> starts_;
  std::vector<CharacterSet> characters_;
};

}  // namespace rullama::constraint
