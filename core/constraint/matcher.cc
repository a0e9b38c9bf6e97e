#include "core/constraint/matcher.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace rullama::constraint {
namespace {

// Masks with at most this many tokens are kept as lists.
constexpr size_t kFewTokens = 1024;

// Nodes from which on it pays to ask whether a subtree is allowed as a whole.
constexpr uint32_t kLargeSubtree = 8;

void AddMask(std::span<const uint32_t> mask, std::span<uint32_t> to) {
  for (size_t i = 0; i < mask.size(); ++i) to[i] |= mask[i];
}

// The number of tokens; stops counting beyond `limit`.
size_t CountTokens(std::span<const uint32_t> mask, size_t limit) {
  size_t count = 0;
  for (size_t i = 0; i < mask.size() && count <= limit; ++i) {
    if (mask[i] != 0) count += static_cast<size_t>(std::popcount(mask[i]));
  }
  return count;
}

bool AllowsAll(std::span<const uint32_t> mask, int64_t vocabulary) {
  const auto tokens = static_cast<size_t>(vocabulary);
  const auto is_full = [](uint32_t word) { return word == ~uint32_t{0}; };
  if (!std::ranges::all_of(mask.first(tokens / 32), is_full)) return false;
  return tokens % 32 == 0 || mask.back() == (uint32_t{1} << (tokens % 32)) - 1;
}

std::vector<TokenId> TokensOf(std::span<const uint32_t> mask, size_t count) {
  std::vector<TokenId> tokens;
  tokens.reserve(count);
  for (size_t i = 0; i < mask.size(); ++i) {
    for (uint32_t word = mask[i]; word != 0; word &= word - 1) {
      tokens.push_back(static_cast<TokenId>(i * 32) + std::countr_zero(word));
    }
  }
  return tokens;
}

}  // namespace

// A walk through the vocabulary from one configuration.
struct MaskTable::Walk {
  std::span<uint32_t> mask;
  // Upper bound on symbols to the end after an allowed token.
  uint32_t limit = kUnreachable;
  uint32_t max_symbols = 0;
};

// Texts of a character set inside of which a configuration is.
struct MaskTable::Inside {
  CharacterSet set = CharacterSet::kNone;
  uint32_t room = 0;     // characters by which the text may continue
  uint32_t symbols = 0;  // upper bound on symbols to the end after at least one character
  bool others = false;   // whether there may be other ways to take characters of the set
};

MaskTable::MaskTable(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> trie)
    : grammar_(std::move(grammar)),
      trie_(std::move(trie)),
      automaton_(grammar_),
      loops_(automaton_),
      path_(trie_->max_bytes() + 1) {
  CountBytes();
}

const MaskTable::Entry& MaskTable::Find(ConfigId config) {
  const auto [found, is_new] = entries_.try_emplace(config);
  Entry& entry = found->second;
  if (!is_new) return entry;
  entry.mask.assign(trie_->mask_words(), 0);
  Walk walk{.mask = entry.mask};
  Fill(config, walk);
  entry.max_symbols = walk.max_symbols;
  const size_t count = CountTokens(entry.mask, kFewTokens);
  if (count <= kFewTokens) {
    entry.tokens = TokensOf(entry.mask, count);
    entry.mask = {};
  } else if (AllowsAll(entry.mask, trie_->vocabulary())) {
    entry.all = true;
    entry.mask = {};
  }
  mask_bytes_ += sizeof(Entry) + entry.mask.size() * sizeof(uint32_t) +
                 entry.tokens.capacity() * sizeof(TokenId);
  CountBytes();
  return entry;
}

void MaskTable::CountBytes() {
  bytes_.store(automaton_.bytes() + loops_.bytes() + mask_bytes_, std::memory_order_relaxed);
}

void MaskTable::FindWithin(ConfigId config, uint32_t symbols, TokenMask& mask) {
  mask.assign(trie_->mask_words(), 0);
  Walk walk{.mask = mask, .limit = symbols};
  Fill(config, walk);
  CountBytes();
}

void MaskTable::Fill(ConfigId config, Walk& walk) {
  if (automaton_.may_end(config)) {
    for (const TokenId token : trie_->end_tokens()) AllowToken(walk.mask, token);
  }
  for (const auto& [symbol, tokens] : trie_->specials()) {
    const ConfigId next = automaton_.Step(config, symbol);
    const uint32_t symbols = automaton_.symbols_to_end(next);
    if (next == Automaton::kNowhere || symbols > walk.limit) continue;
    AddMask(tokens, walk.mask);
    walk.max_symbols = std::max(walk.max_symbols, symbols);
  }
  WalkText(config, walk);
}

void MaskTable::WalkText(ConfigId config, Walk& walk) {
  const uint32_t symbols = automaton_.symbols_to_end(config);
  if (symbols <= walk.limit && TakesAllText(config)) {
    AddMask(trie_->text_tokens(), walk.mask);
    walk.max_symbols = std::max(walk.max_symbols, symbols);
    return;
  }
  const Inside inside = InsideOf(config);
  if (inside.set != CharacterSet::kNone && inside.symbols <= walk.limit) {
    const TokenTrie::Slice& slice = trie_->slice(inside.set);
    if (inside.room >= slice.longest || !inside.others) {
      WalkSlice(slice, config, inside, walk);
      return;
    }
  }
  WalkNodes(trie_->nodes(), config, walk);
}

// Whether every byte leads back to the same configuration.
bool MaskTable::TakesAllText(ConfigId config) {
  const uint32_t byte_classes = grammar_->class_of(kFirstMarker);
  for (uint32_t c = 0; c < byte_classes; ++c) {
    if (automaton_.Step(config, grammar_->representative(c)) != config) return false;
  }
  return true;
}

CharacterSet MaskTable::LoopOf(ConfigId config) {
  for (const CharacterSet set : {CharacterSet::kRawPlain, CharacterSet::kJsonPlain}) {
    if (loops_.Has(config, set)) return set;
  }
  return CharacterSet::kNone;
}

MaskTable::Inside MaskTable::InsideOf(ConfigId config) {
  if (const CharacterSet loop = LoopOf(config); loop != CharacterSet::kNone) {
    return {.set = loop, .room = kUnlimited, .symbols = automaton_.symbols_to_end(config)};
  }
  Inside inside;
  bool ends_by_quote = false;
  for (const Automaton::Thread& thread : automaton_.threads(config)) {
    const Automaton::Frame& frame = automaton_.frame(thread.frame);
    const Grammar::State& caller = grammar_->state(frame.state);
    auto set = CharacterSet::kNone;
    if (thread.frame != Automaton::kNoFrame && caller.kind == Grammar::Kind::kRepeat &&
        grammar_->start(caller.rule) == thread.state) {
      set = grammar_->characters(caller.rule);
    }
    if (set != CharacterSet::kNone && (inside.set == CharacterSet::kNone || inside.set == set)) {
      inside.set = set;
      const uint32_t room = caller.max == kUnlimited ? kUnlimited : caller.max - frame.count + 1;
      inside.room = std::max(inside.room, room);
      inside.symbols = std::max(inside.symbols, frame.symbols);
      continue;
    }
    for (const Grammar::Edge& edge : grammar_->edges(thread.state)) {
      const bool is_quote = edge.first == '"' && edge.last == '"';
      ends_by_quote = ends_by_quote || is_quote;
      inside.others = inside.others || (edge.first < kFirstMarker && !is_quote);
    }
  }
  if (ends_by_quote && inside.set == CharacterSet::kRawPlain) inside.others = true;
  return inside;
}

void MaskTable::WalkSlice(const TokenTrie::Slice& slice, ConfigId config, const Inside& inside,
                          Walk& walk) {
  constexpr auto kCounted = static_cast<uint32_t>(TokenTrie::Slice::kCounted);
  const bool has_room = inside.room >= slice.longest;
  AddMask(has_room ? slice.all : slice.at_most[std::min(inside.room, kCounted)], walk.mask);
  walk.max_symbols = std::max(walk.max_symbols, inside.symbols);
  WalkNodes(slice.other_tokens, config, walk);
  if (!has_room && inside.room > kCounted) WalkNodes(slice.long_tokens, config, walk);
}

// Whether all tokens below a node that leads to `config` lead back to it. They are then allowed,
// and as far from the end.
bool MaskTable::AllowsAllBelow(const TokenTrie::Node& node, ConfigId config, Walk& walk) {
  const uint32_t symbols = automaton_.symbols_to_end(config);
  if (symbols > walk.limit) return false;
  for (const CharacterSet set : {CharacterSet::kRawPlain, CharacterSet::kJsonPlain}) {
    if (!node.GoesOnBy(set) || !loops_.Has(config, set)) continue;
    walk.max_symbols = std::max(walk.max_symbols, symbols);
    return true;
  }
  return false;
}

void MaskTable::WalkNodes(std::span<const TokenTrie::Node> nodes, ConfigId config, Walk& walk) {
  path_[0] = config;
  for (size_t i = 0; i < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    const ConfigId next = automaton_.Step(path_[node.depth], static_cast<Symbol>(node.byte));
    if (next == Automaton::kNowhere) {
      i += node.size;
      continue;
    }
    path_[node.depth + 1] = next;
    // Without a branch, since no processor can foresee which nodes end a token.
    const uint32_t symbols = automaton_.symbols_to_end(next);
    const uint32_t ends = uint32_t{node.token_plus_1 != 0} & uint32_t{symbols <= walk.limit};
    const uint32_t token = node.token_plus_1 - uint32_t{node.token_plus_1 != 0};
    walk.mask[token / 32] |= ends << (token % 32);
    walk.max_symbols = std::max(walk.max_symbols, ends * symbols);
    if (node.size >= kLargeSubtree && AllowsAllBelow(node, next, walk)) {
      for (const TokenTrie::Node& below : nodes.subspan(i + 1, node.size - 1)) {
        if (below.token_plus_1 != 0) AllowToken(walk.mask, below.token());
      }
      i += node.size;
    } else {
      ++i;
    }
  }
}

Matcher::Matcher(std::shared_ptr<MaskTable> table)
    : table_(std::move(table)), config_(table_->automaton().start()) {}

Result<std::span<const uint32_t>> Matcher::Mask(int64_t left) {
  if (table_->bytes() > kMaxTableBytes) {
    auto fresh = std::make_shared<MaskTable>(table_->grammar(), table_->shared_trie());
    config_ = fresh->automaton().Import(table_->automaton(), config_);
    table_ = std::move(fresh);
  }
  const MaskTable::Entry& entry = table_->Find(config_);
  const int64_t after = left - 1;  // tokens that may follow the next one
  if (after < entry.max_symbols && after >= 0) {
    table_->FindWithin(config_, static_cast<uint32_t>(after), mask_);
    const auto is_zero = [](uint32_t word) { return word == 0; };
    if (!std::ranges::all_of(mask_, is_zero)) return mask_;
  }
  if (entry.all) return std::span<const uint32_t>();
  if (entry.mask.empty()) {
    if (entry.tokens.empty()) {
      return MakeError(ErrorKind::kRuntime, "constraint.dead_end",
                       "no token of the vocabulary continues the answer as its schema demands; "
                       "report this with the schema");
    }
    mask_.assign(table_->trie().mask_words(), 0);
    for (const TokenId token : entry.tokens) AllowToken(mask_, token);
    return mask_;
  }
  return entry.mask;
}

Status Matcher::Accept(TokenId token) {
  ConfigId config = config_;
  const std::vector<Symbol> symbols = table_->trie().SymbolsOf(token);
  for (const Symbol symbol : symbols) config = table_->automaton().Step(config, symbol);
  if (symbols.empty() || config == Automaton::kNowhere) {
    return MakeError(ErrorKind::kRuntime, "constraint.token",
                     "token {} was drawn, which the mask of this step bans; the backend may not "
                     "compute token_mask correctly (compare with `--backend reference`)",
                     token);
  }
  config_ = config;
  return OkStatus();
}

}  // namespace rullama::constraint
