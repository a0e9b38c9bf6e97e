#include "core/constraint/grammar.h"

#include <algorithm>
#include <bitset>
#include <functional>
#include <queue>
#include <utility>

namespace rullama::constraint {
namespace {

uint32_t CappedAdd(uint32_t a, uint32_t b) { return std::min(a + b, kUnreachable); }

// `times` may be large, `a` at most kUnreachable.
uint32_t CappedMul(uint32_t times, uint32_t a) {
  return static_cast<uint32_t>(std::min<uint64_t>(uint64_t{times} * a, kUnreachable));
}

// The need of running a rule once inside.
Grammar::Need Inside(Grammar::Need rule) { return {rule.symbols, CappedAdd(rule.frames, 1)}; }

// The need of running `count` times `rule` and then `rest`.
Grammar::Need InFront(uint32_t count, Grammar::Need rule, Grammar::Need rest) {
  if (count == 0) return rest;
  const Grammar::Need inside = Inside(rule);
  return {CappedAdd(CappedMul(count, inside.symbols), rest.symbols),
          std::max(inside.frames, rest.frames)};
}

// Offsets of the entries of each key in a list that is sorted by key; `keys` + 1 of them.
template <typename Entries, typename KeyOf>
std::vector<uint32_t> BeginsOf(const Entries& entries, size_t keys, const KeyOf& key_of) {
  std::vector<uint32_t> begin(keys + 1, 0);
  for (const auto& entry : entries) ++begin[key_of(entry) + 1];
  for (size_t i = 0; i < keys; ++i) begin[i + 1] += begin[i];
  return begin;
}

}  // namespace

Grammar::Need Grammar::need(StateId id, uint32_t count) const {
  const State& state = states_[id];
  if (state.kind != Kind::kRepeat) return needs_[id];
  const uint32_t missing = state.min > count ? state.min - count : 0;
  return InFront(missing, needs_[starts_[state.rule]], needs_[state.next]);
}

size_t Grammar::bytes() const {
  return states_.size() * (sizeof(State) + sizeof(Need) + 2 * sizeof(uint32_t)) +
         edges_.size() * sizeof(Edge) + epsilons_.size() * sizeof(StateId);
}

void Grammar::FindClasses() {
  std::bitset<kSymbols + 1> begins;
  begins.set(0);
  begins.set(kFirstMarker);
  for (const Edge& edge : edges_) {
    begins.set(edge.first);
    begins.set(size_t{edge.last} + 1);
  }
  for (size_t symbol = 0; symbol < kSymbols; ++symbol) {
    if (begins.test(symbol)) representatives_.push_back(static_cast<Symbol>(symbol));
    class_of_[symbol] = static_cast<uint16_t>(representatives_.size() - 1);
  }
  class_count_ = static_cast<uint32_t>(representatives_.size());
}

// A state whose need follows from that of another: by an edge of a number of symbols, or as a call
// does.
struct Grammar::Use {
  StateId used = 0;
  StateId user = 0;
  uint32_t symbols = 0;
};

std::vector<Grammar::Use> Grammar::Uses() const {
  std::vector<Use> uses;
  for (StateId id = 0; id < states_.size(); ++id) {
    for (const Edge& edge : edges(id)) uses.push_back({edge.target, id, 1});
    for (const StateId target : epsilons(id)) uses.push_back({target, id, 0});
    const State& state = states_[id];
    if (state.kind != Kind::kCall && state.kind != Kind::kRepeat) continue;
    uses.push_back({starts_[state.rule], id, 0});
    uses.push_back({state.next, id, 0});
  }
  std::ranges::sort(uses, {}, &Use::used);
  return uses;
}

// Knuth's generalisation of Dijkstra's algorithm: the least remaining value is final, since no
// state needs less than the states that follow it.
void Grammar::FindLeast(uint32_t Need::*what, std::span<const Use> uses) {
  const auto begin = BeginsOf(uses, states_.size(), [](const Use& use) { return use.used; });
  using Entry = std::pair<uint32_t, StateId>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> waiting;
  for (StateId id = 0; id < states_.size(); ++id) {
    if (states_[id].kind == Kind::kAccept) waiting.emplace(0, id);
  }
  while (!waiting.empty()) {
    const auto [value, id] = waiting.top();
    waiting.pop();
    if (needs_[id].*what != kUnreachable) continue;
    needs_[id].*what = value;
    for (const Use& use : uses.subspan(begin[id], begin[id + 1] - begin[id])) {
      if (needs_[use.user].*what != kUnreachable) continue;
      const State& user = states_[use.user];
      uint32_t next = value;
      if (user.kind == Kind::kPlain) {
        if (what == &Need::symbols) next = CappedAdd(value, use.symbols);
      } else {
        const uint32_t count = user.kind == Kind::kCall ? 1 : user.min;
        next = InFront(count, needs_[starts_[user.rule]], needs_[user.next]).*what;
      }
      if (next < kUnreachable) waiting.emplace(next, use.user);
    }
  }
}

void Grammar::FindNeeds() {
  needs_.assign(states_.size(), {});
  const std::vector<Use> uses = Uses();
  FindLeast(&Need::symbols, uses);
  FindLeast(&Need::frames, uses);
}

StateId GrammarBuilder::AddRepeat(std::span<const RuleId> rules, uint32_t min, uint32_t max,
                                  StateId next) {
  const auto first = static_cast<StateId>(states_.size());
  for (const RuleId rule : rules) {
    Add({.kind = Grammar::Kind::kRepeat, .rule = rule, .next = next, .min = min, .max = max});
  }
  return first;
}

StateId GrammarBuilder::AddText(StateId from, std::string_view text) {
  for (const char byte : text) {
    const StateId to = AddState();
    AddEdge(from, static_cast<uint8_t>(byte), to);
    from = to;
  }
  return from;
}

// Texts that begin alike share states. The last symbol of a text leads to a state that ends here or
// continues, so every text ends in a state of its own.
void GrammarBuilder::AddTexts(StateId from, std::span<const std::vector<Symbol>> texts,
                              StateId to) {
  std::vector<StateId> path = {from};  // the states of the last text
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::vector<Symbol>& text = texts[i];
    size_t common = 0;
    if (i > 0) {
      const auto ends = std::ranges::mismatch(text, texts[i - 1]);
      common = static_cast<size_t>(ends.in1 - text.begin());
    }
    path.resize(common + 1);
    for (size_t at = common; at < text.size(); ++at) {
      path.push_back(AddState());
      AddEdge(path[at], text[at], path[at + 1]);
    }
    AddEpsilon(path.back(), to);
  }
}

RuleId GrammarBuilder::AddRule() {
  starts_.push_back(0);
  characters_.push_back(CharacterSet::kNone);
  return static_cast<RuleId>(starts_.size() - 1);
}

Grammar GrammarBuilder::Finish(RuleId root) && {
  Grammar grammar;
  std::ranges::stable_sort(
      edges_, {}, [](const FromEdge& e) { return (uint64_t{e.from} << 16) | e.edge.first; });
  std::ranges::stable_sort(epsilons_, {}, &Epsilon::from);
  grammar.edge_begin_ =
      BeginsOf(edges_, states_.size(), [](const FromEdge& edge) { return edge.from; });
  grammar.epsilon_begin_ =
      BeginsOf(epsilons_, states_.size(), [](const Epsilon& epsilon) { return epsilon.from; });
  grammar.edges_.reserve(edges_.size());
  for (const FromEdge& edge : edges_) grammar.edges_.push_back(edge.edge);
  grammar.epsilons_.reserve(epsilons_.size());
  for (const Epsilon& epsilon : epsilons_) grammar.epsilons_.push_back(epsilon.to);
  grammar.states_ = std::move(states_);
  grammar.starts_ = std::move(starts_);
  grammar.characters_ = std::move(characters_);
  grammar.root_ = root;
  grammar.FindClasses();
  grammar.FindNeeds();
  return grammar;
}

}  // namespace rullama::constraint
