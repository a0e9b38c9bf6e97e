#include "core/constraint/content_dfa.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "core/constraint/grammar.h"

namespace rullama::constraint {
namespace {

// The transitions of a byte of 0x80 to 0xFF in each state after the first byte of a sequence.
struct Continuation {
  uint8_t first;
  uint8_t last;
  int next;
};
constexpr auto kContinuations = std::to_array<Continuation>({
    {0, 0, -1},       // 0: between characters
    {0x80, 0xBF, 0},  // 1: one byte is missing
    {0x80, 0xBF, 1},  // 2: two
    {0x80, 0xBF, 2},  // 3: three
    {0xA0, 0xBF, 1},  // 4: after E0, without overlong forms
    {0x80, 0x9F, 1},  // 5: after ED, without surrogates
    {0x90, 0xBF, 2},  // 6: after F0, without overlong forms
    {0x80, 0x8F, 2},  // 7: after F4, up to U+10FFFF
});

// Finds the states of a product of automata, and its edges. `Key` is a state of the product.
template <typename Key>
class ProductBuilder {
 public:
  explicit ProductBuilder(const CompileDeadline& deadline) : deadline_(deadline) {}

  uint32_t IdOf(const Key& key) {
    const auto [found, is_new] = ids_.try_emplace(key, static_cast<uint32_t>(keys_.size()));
    if (is_new) keys_.push_back(key);
    return found->second;
  }
  // Calls `expand` with each state and its key. Error schema.too_large.
  Result<ContentDfa> Build(const Key& start,
                           const std::function<void(const Key&, ContentDfa::State&)>& expand) {
    IdOf(start);
    ContentDfa dfa;
    for (size_t i = 0; i < keys_.size(); ++i) {
      if (keys_.size() > kMaxContentStates) {
        return MakeError(ErrorKind::kUsage, "schema.too_large",
                         "the conditions of a string need more than {} states; loosen its "
                         "length or pattern",
                         kMaxContentStates);
      }
      RL_RETURN_IF_ERROR(deadline_.Check());
      ContentDfa::State state;
      const Key key = keys_[i];
      expand(key, state);
      dfa.states.push_back(std::move(state));
    }
    Prune(dfa);
    return dfa;
  }

 private:
  CompileDeadline deadline_;
  std::map<Key, uint32_t> ids_;
  std::vector<Key> keys_;
};

// Adds a byte's edge, or extends the one before if it leads to the same target.
void AddByte(ContentDfa::State& state, uint8_t byte, uint32_t target) {
  if (!state.edges.empty() && state.edges.back().target == target &&
      state.edges.back().last + 1 == byte) {
    state.edges.back().last = byte;
  } else {
    state.edges.push_back({byte, byte, target});
  }
}

const ContentDfa::Edge* EdgeOf(const ContentDfa::State& state, uint8_t byte) {
  for (const ContentDfa::Edge& edge : state.edges) {
    if (edge.first <= byte && byte <= edge.last) return &edge;
  }
  return nullptr;
}

// A set of texts as a tree of their bytes.
class TextTree {
 public:
  static constexpr int32_t kOutside = -1;

  explicit TextTree(std::span<const std::string> texts) : nodes_(1) {
    for (const std::string& text : texts) {
      size_t at = 0;
      for (const char byte : text) {
        const auto [found, is_new] =
            nodes_[at].next.try_emplace(static_cast<uint8_t>(byte), nodes_.size());
        at = found->second;
        if (is_new) nodes_.emplace_back();
      }
      nodes_[at].ends = true;
    }
  }
  [[nodiscard]] int32_t Next(int32_t node, uint8_t byte) const {
    if (node == kOutside) return kOutside;
    const auto& next = nodes_[static_cast<size_t>(node)].next;
    const auto found = next.find(byte);
    return found == next.end() ? kOutside : static_cast<int32_t>(found->second);
  }
  [[nodiscard]] bool Contains(int32_t node) const {
    return node != kOutside && nodes_[static_cast<size_t>(node)].ends;
  }

 private:
  struct Node {
    std::map<uint8_t, size_t> next;
    bool ends = false;
  };
  std::vector<Node> nodes_;
};

}  // namespace

int NextUtf8State(int state, uint8_t byte) {
  if (state != 0) {
    const Continuation& continuation = kContinuations[static_cast<size_t>(state)];
    const bool fits = continuation.first <= byte && byte <= continuation.last;
    return fits ? continuation.next : -1;
  }
  if (byte < 0x80) return 0;
  if (byte < 0xC2 || byte > 0xF4) return -1;
  if (byte < 0xE0) return 1;
  if (byte < 0xF0) return byte == 0xE0 ? 4 : byte == 0xED ? 5 : 2;
  return byte == 0xF0 ? 6 : byte == 0xF4 ? 7 : 3;
}

bool ContentDfa::Accepts(std::string_view text) const {
  if (states.empty()) return false;
  uint32_t at = 0;
  for (const char byte : text) {
    const Edge* edge = EdgeOf(states[at], static_cast<uint8_t>(byte));
    if (edge == nullptr) return false;
    at = edge->target;
  }
  return states[at].accepts;
}

Result<ContentDfa> Intersection(const ContentDfa& a, const ContentDfa& b,
                                const CompileDeadline& deadline) {
  if (a.states.empty() || b.states.empty()) return ContentDfa{};
  using Key = std::pair<uint32_t, uint32_t>;
  ProductBuilder<Key> builder(deadline);
  return builder.Build({0, 0}, [&](const Key& key, ContentDfa::State& state) {
    const ContentDfa::State& in_a = a.states[key.first];
    const ContentDfa::State& in_b = b.states[key.second];
    state.accepts = in_a.accepts && in_b.accepts;
    for (const ContentDfa::Edge& x : in_a.edges) {
      for (const ContentDfa::Edge& y : in_b.edges) {
        const uint8_t first = std::max(x.first, y.first);
        const uint8_t last = std::min(x.last, y.last);
        if (first <= last) {
          state.edges.push_back({first, last, builder.IdOf({x.target, y.target})});
        }
      }
    }
  });
}

Result<ContentDfa> WithLength(const ContentDfa& dfa, uint32_t min, uint32_t max,
                              const CompileDeadline& deadline) {
  if (dfa.states.empty() || (min == 0 && max == kUnlimited)) return dfa;
  using Key = std::pair<uint32_t, uint32_t>;  // a state, and the number of characters so far
  ProductBuilder<Key> builder(deadline);
  return builder.Build({0, 0}, [&](const Key& key, ContentDfa::State& state) {
    const ContentDfa::State& from = dfa.states[key.first];
    state.accepts = from.accepts && key.second >= min;
    const uint32_t more = max == kUnlimited ? std::min(key.second + 1, min) : key.second + 1;
    for (const ContentDfa::Edge& edge : from.edges) {
      // Edges of the first bytes of characters are apart from those of later bytes.
      const bool is_later = edge.first >= 0x80 && edge.last < 0xC0;
      if (!is_later && max != kUnlimited && more > max) continue;
      const uint32_t count = is_later ? key.second : more;
      state.edges.push_back({edge.first, edge.last, builder.IdOf({edge.target, count})});
    }
  });
}

Result<ContentDfa> AllBut(std::span<const std::string> texts, const CompileDeadline& deadline) {
  const TextTree tree(texts);
  using Key = std::pair<int, int32_t>;  // a state of the UTF-8 decoder and a node
  ProductBuilder<Key> builder(deadline);
  return builder.Build({0, 0}, [&](const Key& key, ContentDfa::State& state) {
    state.accepts = key.first == 0 && !tree.Contains(key.second);
    for (int byte = 0; byte < 256; ++byte) {
      const auto b = static_cast<uint8_t>(byte);
      const int next = NextUtf8State(key.first, b);
      if (next >= 0) AddByte(state, b, builder.IdOf({next, tree.Next(key.second, b)}));
    }
  });
}

Result<ContentDfa> Without(std::string_view text, const CompileDeadline& deadline) {
  using Key = std::pair<int, size_t>;  // a state of the UTF-8 decoder, and bytes of `text` so far
  ProductBuilder<Key> builder(deadline);
  return builder.Build({0, 0}, [&](const Key& key, ContentDfa::State& state) {
    state.accepts = key.first == 0;
    for (int byte = 0; byte < 256; ++byte) {
      const auto b = static_cast<uint8_t>(byte);
      const int next = NextUtf8State(key.first, b);
      size_t spelled = static_cast<uint8_t>(text[0]) == b ? 1 : 0;
      if (static_cast<uint8_t>(text[key.second]) == b) spelled = key.second + 1;
      if (next >= 0 && spelled < text.size()) AddByte(state, b, builder.IdOf({next, spelled}));
    }
  });
}

Result<ContentDfa> BareKeysBut(std::span<const std::string> texts,
                               const CompileDeadline& deadline) {
  const TextTree tree(texts);
  using Key = std::pair<bool, int32_t>;  // whether there is a character, and a node
  ProductBuilder<Key> builder(deadline);
  return builder.Build({false, 0}, [&](const Key& key, ContentDfa::State& state) {
    state.accepts = key.first && !tree.Contains(key.second);
    for (int byte = 0; byte < 128; ++byte) {
      const auto b = static_cast<uint8_t>(byte);
      const bool letter = (b | 0x20) >= 'a' && (b | 0x20) <= 'z';
      const bool other = (b >= '0' && b <= '9') || b == '_' || b == '.' || b == '-';
      if (letter || other) AddByte(state, b, builder.IdOf({true, tree.Next(key.second, b)}));
    }
  });
}

void Prune(ContentDfa& dfa) {
  std::vector<std::vector<uint32_t>> sources(dfa.states.size());
  std::vector<uint32_t> alive;
  for (uint32_t i = 0; i < dfa.states.size(); ++i) {
    for (const ContentDfa::Edge& edge : dfa.states[i].edges) sources[edge.target].push_back(i);
    if (dfa.states[i].accepts) alive.push_back(i);
  }
  std::vector<char> is_alive(dfa.states.size(), 0);
  for (const uint32_t i : alive) is_alive[i] = 1;
  while (!alive.empty()) {
    const uint32_t i = alive.back();
    alive.pop_back();
    for (const uint32_t source : sources[i]) {
      if (std::exchange(is_alive[source], 1) == 0) alive.push_back(source);
    }
  }
  if (dfa.states.empty() || is_alive[0] == 0) {
    dfa.states.clear();
    return;
  }
  std::vector<uint32_t> new_ids(dfa.states.size(), 0);
  std::vector<ContentDfa::State> kept;
  for (uint32_t i = 0; i < dfa.states.size(); ++i) {
    if (is_alive[i] == 0) continue;
    new_ids[i] = static_cast<uint32_t>(kept.size());
    std::erase_if(dfa.states[i].edges,
                  [&](const ContentDfa::Edge& edge) { return is_alive[edge.target] == 0; });
    kept.push_back(std::move(dfa.states[i]));
  }
  for (ContentDfa::State& state : kept) {
    for (ContentDfa::Edge& edge : state.edges) edge.target = new_ids[edge.target];
  }
  dfa.states = std::move(kept);
}

}  // namespace rullama::constraint
