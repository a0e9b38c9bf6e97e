#include "core/constraint/pattern.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/printable.h"
#include "core/constraint/grammar.h"
#include "core/constraint/pattern_parser.h"

namespace rullama::constraint {
namespace {

// The symbols of the automata here: bytes, and the two ends of the text. A pattern is looked for
// in begin, bytes, end; ^ takes the first, $ the last.
constexpr uint16_t kTextBegin = 256;
constexpr uint16_t kTextEnd = 257;

constexpr size_t kMaxNfaStates = 100'000;
constexpr size_t kMaxWork = 20'000'000;  // states looked at while making the automaton

struct NfaEdge {
  uint16_t first = 0;
  uint16_t last = 0;
  uint32_t target = 0;
};
struct NfaState {
  std::vector<NfaEdge> edges;
  std::vector<uint32_t> epsilons;
};

struct ByteSpan {
  uint8_t first = 0;
  uint8_t last = 0;
};

// The byte of a character's UTF-8 form at a place; `length` bytes.
uint8_t Utf8Byte(uint32_t character, size_t length, size_t at) {
  constexpr auto kLeads = std::to_array<uint32_t>({0, 0, 0xC0, 0xE0, 0xF0});
  const uint32_t bits = character >> (6 * (length - 1 - at));
  if (length == 1) return static_cast<uint8_t>(character);
  return static_cast<uint8_t>(at == 0 ? kLeads[length] | bits : 0x80U | (bits & 0x3FU));
}

class PatternNfa {
 public:
  // States 0 and 1: the search has not begun, and the pattern has been found.
  static constexpr uint32_t kSearching = 0;
  static constexpr uint32_t kFound = 1;

  PatternNfa() : states_(2) {
    AddEdge(kSearching, 0, kTextBegin, kSearching);
    AddEdge(kFound, 0, kTextEnd, kFound);
  }

  // Error schema.too_large.
  Status Add(const PatternNode& pattern) {
    const uint32_t begin = NewState();
    states_[kSearching].epsilons.push_back(begin);
    states_[Emit(pattern, begin)].epsilons.push_back(kFound);
    if (!full_) return OkStatus();
    return MakeError(ErrorKind::kUsage, "schema.too_large",
                     "counted repeats make a pattern too large; expected at most {} states",
                     kMaxNfaStates);
  }
  [[nodiscard]] const std::vector<NfaState>& states() const { return states_; }

 private:
  uint32_t NewState() {
    full_ = full_ || states_.size() >= kMaxNfaStates;
    if (!full_) states_.emplace_back();
    return static_cast<uint32_t>(states_.size() - 1);
  }
  void AddEdge(uint32_t from, uint16_t first, uint16_t last, uint32_t to) {
    states_[from].edges.push_back({first, last, to});
  }
  // Adds a pattern after a state and returns the state after it.
  uint32_t Emit(const PatternNode& node, uint32_t from);
  uint32_t EmitRepeat(const PatternNode& node, uint32_t from);
  void EmitRange(CharacterRange range, uint32_t from, uint32_t to);
  void EmitBytes(uint32_t first, uint32_t last, size_t length, size_t at, uint32_t from,
                 uint32_t to);

  std::vector<NfaState> states_;
  bool full_ = false;
};

uint32_t PatternNfa::Emit(const PatternNode& node, uint32_t from) {
  switch (node.kind) {
    case PatternNode::Kind::kSequence:
      for (const PatternNode& child : node.children) from = Emit(child, from);
      return from;
    case PatternNode::Kind::kAlternate: {
      const uint32_t to = NewState();
      for (const PatternNode& child : node.children) {
        const uint32_t begin = NewState();
        states_[from].epsilons.push_back(begin);
        states_[Emit(child, begin)].epsilons.push_back(to);
      }
      return to;
    }
    case PatternNode::Kind::kSet: {
      const uint32_t to = NewState();
      for (const CharacterRange& range : node.ranges) EmitRange(range, from, to);
      return to;
    }
    case PatternNode::Kind::kRepeat:
      return EmitRepeat(node, from);
    case PatternNode::Kind::kBegin:
    case PatternNode::Kind::kEnd: {
      const uint32_t to = NewState();
      const uint16_t symbol = node.kind == PatternNode::Kind::kBegin ? kTextBegin : kTextEnd;
      AddEdge(from, symbol, symbol, to);
      return to;
    }
  }
  return from;
}

uint32_t PatternNfa::EmitRepeat(const PatternNode& node, uint32_t from) {
  const PatternNode& child = node.children.front();
  for (uint32_t i = 0; i < node.min && !full_; ++i) {
    const uint32_t after = Emit(child, from);
    if (after == from) break;  // the empty pattern, any number of which are empty too
    from = after;
  }
  if (node.max == kUnlimited) {
    const uint32_t loop = NewState();
    states_[from].epsilons.push_back(loop);
    states_[Emit(child, loop)].epsilons.push_back(loop);
    return loop;
  }
  const uint32_t to = NewState();
  for (uint32_t i = node.min; i < node.max && !full_; ++i) {
    states_[from].epsilons.push_back(to);
    const uint32_t begin = NewState();
    states_[from].epsilons.push_back(begin);
    from = Emit(child, begin);
  }
  states_[from].epsilons.push_back(to);
  return to;
}

// Characters of the same number of bytes, without surrogates.
void PatternNfa::EmitRange(CharacterRange range, uint32_t from, uint32_t to) {
  constexpr auto kBlocks = std::to_array<std::pair<CharacterRange, size_t>>({
      {{0, 0x7F}, 1},
      {{0x80, 0x7FF}, 2},
      {{0x800, 0xD7FF}, 3},
      {{0xE000, 0xFFFF}, 3},
      {{0x10000, 0x10FFFF}, 4},
  });
  for (const auto& [block, length] : kBlocks) {
    const uint32_t first = std::max(range.first, block.first);
    const uint32_t last = std::min(range.last, block.last);
    if (first <= last) EmitBytes(first, last, length, 0, from, to);
  }
}

// The bytes from `at` on of the characters first to last, which agree before it.
void PatternNfa::EmitBytes(uint32_t first, uint32_t last, size_t length, size_t at, uint32_t from,
                           uint32_t to) {
  const uint8_t a = Utf8Byte(first, length, at);
  const uint8_t b = Utf8Byte(last, length, at);
  if (at + 1 == length) {
    AddEdge(from, a, b, to);
    return;
  }
  const size_t shift = 6 * (length - 1 - at);
  const uint32_t below = (uint32_t{1} << shift) - 1;  // the bits of later bytes
  if (a == b) {
    const uint32_t next = NewState();
    AddEdge(from, a, a, next);
    EmitBytes(first, last, length, at + 1, next, to);
    return;
  }
  // A first and a last byte that do not take all that may follow, and those between.
  if ((first & below) != 0) {
    EmitBytes(first, first | below, length, at, from, to);
    first = (first | below) + 1;
  }
  const bool cut = (last & below) != below;
  const uint32_t whole_end = cut ? (last & ~below) : last + 1;
  if (first < whole_end) {
    const uint8_t from_byte = Utf8Byte(first, length, at);
    const uint8_t to_byte = Utf8Byte(whole_end - 1, length, at);
    uint32_t state = NewState();
    AddEdge(from, from_byte, to_byte, state);
    for (size_t i = at + 1; i < length; ++i) {
      const uint32_t next = i + 1 == length ? to : NewState();
      AddEdge(state, 0x80, 0xBF, next);
      state = next;
    }
  }
  if (cut) EmitBytes(last & ~below, last, length, at, from, to);
}

// A state of the deterministic automaton: states of the other and of a UTF-8 decoder.
struct DfaKey {
  std::vector<uint32_t> states;  // ascending; only kFound once it is among them
  int utf8 = 0;

  bool operator<(const DfaKey& other) const {
    return std::tie(states, utf8) < std::tie(other.states, other.utf8);
  }
};

class Determiniser {
 public:
  explicit Determiniser(const PatternNfa& nfa) : nfa_(nfa.states()), seen_(nfa_.size(), 0) {
    std::bitset<257> begins;
    for (const int byte : {0x00, 0x80, 0x90, 0xA0, 0xC0, 0xC2, 0xE0, 0xE1, 0xED, 0xEE, 0xF0, 0xF1,
                           0xF4, 0xF5, 0x100}) {
      begins.set(static_cast<size_t>(byte));
    }
    for (const NfaState& state : nfa_) {
      for (const NfaEdge& edge : state.edges) {
        if (edge.first < 256) begins.set(edge.first);
        if (edge.last < 256) begins.set(size_t{edge.last} + 1);
      }
    }
    for (size_t byte = 0; byte <= 256; ++byte) {
      if (begins.test(byte)) class_begins_.push_back(static_cast<uint16_t>(byte));
    }
  }

  // Error schema.too_large.
  Result<ContentDfa> Run(const CompileDeadline& deadline) {
    IdOf({Step({PatternNfa::kSearching}, kTextBegin), 0});
    ContentDfa dfa;
    for (uint32_t id = 0; id < keys_.size(); ++id) {
      if (keys_.size() > kMaxPatternStates || work_ > kMaxWork) {
        return MakeError(ErrorKind::kUsage, "schema.too_large",
                         "a pattern needs more than {} states; write a simpler one",
                         kMaxPatternStates);
      }
      RL_RETURN_IF_ERROR(deadline.Check());
      const DfaKey key = keys_[id];
      dfa.states.push_back(StateOf(key));
    }
    Prune(dfa);
    return dfa;
  }

 private:
  ContentDfa::State StateOf(const DfaKey& key) {
    ContentDfa::State state;
    state.accepts = key.utf8 == 0 && IsFound(Step(key.states, kTextEnd));
    for (size_t c = 0; c + 1 < class_begins_.size(); ++c) {
      const auto first = static_cast<uint8_t>(class_begins_[c]);
      const auto last = static_cast<uint8_t>(class_begins_[c + 1] - 1);
      const int utf8 = NextUtf8State(key.utf8, first);
      if (utf8 < 0) continue;
      std::vector<uint32_t> next = Step(key.states, first);
      if (!next.empty()) state.edges.push_back({first, last, IdOf({std::move(next), utf8})});
    }
    return state;
  }
  static bool IsFound(const std::vector<uint32_t>& states) {
    return states.size() == 1 && states[0] == PatternNfa::kFound;
  }

  std::vector<uint32_t> Step(const std::vector<uint32_t>& states, uint16_t symbol) {
    ++generation_;
    std::vector<uint32_t> reached;
    const auto reach = [&](uint32_t id) {
      if (std::exchange(seen_[id], generation_) != generation_) reached.push_back(id);
    };
    // States without a symbol before them are part of the set they are reached from.
    for (const uint32_t from : Closure(states)) {
      for (const NfaEdge& edge : nfa_[from].edges) {
        if (edge.first <= symbol && symbol <= edge.last) reach(edge.target);
      }
      work_ += 1 + nfa_[from].edges.size();
    }
    reached = Closure(reached);
    std::ranges::sort(reached);
    if (std::ranges::binary_search(reached, PatternNfa::kFound)) return {PatternNfa::kFound};
    return reached;
  }

  std::vector<uint32_t> Closure(const std::vector<uint32_t>& states) {
    ++generation_;
    std::vector<uint32_t> reached;
    const auto reach = [&](uint32_t id) {
      if (std::exchange(seen_[id], generation_) != generation_) reached.push_back(id);
    };
    for (const uint32_t id : states) reach(id);
    for (size_t i = 0; i < reached.size(); ++i) {
      for (const uint32_t next : nfa_[reached[i]].epsilons) reach(next);
    }
    work_ += reached.size();
    ++generation_;
    return reached;
  }

  uint32_t IdOf(DfaKey key) {
    const auto [found, is_new] =
        ids_.try_emplace(std::move(key), static_cast<uint32_t>(keys_.size()));
    if (is_new) keys_.push_back(found->first);
    return found->second;
  }

  const std::vector<NfaState>& nfa_;
  std::vector<uint16_t> class_begins_;
  std::vector<uint32_t> seen_;  // by state: the generation in which it was reached
  uint32_t generation_ = 0;
  size_t work_ = 0;
  std::map<DfaKey, uint32_t> ids_;
  std::vector<DfaKey> keys_;
};

Result<ContentDfa> Compile(const PatternNode& node, std::string_view pattern,
                           const CompileDeadline& deadline) {
  PatternNfa nfa;
  RL_RETURN_IF_ERROR(nfa.Add(node));
  RL_ASSIGN_OR_RETURN(ContentDfa dfa, Determiniser(nfa).Run(deadline));
  if (dfa.states.empty()) {
    return MakeError(ErrorKind::kUsage, "schema.invalid", "pattern '{}' matches no text",
                     Printable(pattern, 64));
  }
  return dfa;
}

}  // namespace

Result<ContentDfa> CompilePattern(std::string_view pattern, const CompileDeadline& deadline) {
  RL_ASSIGN_OR_RETURN(const PatternNode node, ParsePattern(pattern));
  return Compile(node, pattern, deadline);
}

Result<ContentDfa> CompileWholePattern(std::string_view pattern, const CompileDeadline& deadline) {
  PatternNode whole;
  whole.children.resize(3);
  whole.children[0].kind = PatternNode::Kind::kBegin;
  RL_ASSIGN_OR_RETURN(whole.children[1], ParsePattern(pattern));
  whole.children[2].kind = PatternNode::Kind::kEnd;
  return Compile(whole, pattern, deadline);
}

}  // namespace rullama::constraint
