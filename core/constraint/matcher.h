// Follows an answer through a grammar, and says which tokens may come next.
//
// Each configuration's mask is made once and kept with the automaton, which answers to the same
// grammar share.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/base/status.h"
#include "core/constraint/automaton.h"
#include "core/constraint/character_loops.h"
#include "core/constraint/token_trie.h"

namespace rullama::constraint {

// An automaton with the masks of its configurations.
//
// Ownership: shares the grammar and the trie. Thread safety: one thread at a time.
class MaskTable {
 public:
  struct Entry {
    bool all = false;             // every token of the vocabulary
    uint32_t max_symbols = 0;     // to the end, after the token that leads furthest from it
    std::vector<TokenId> tokens;  // if there are few
    TokenMask mask;               // else
  };

  MaskTable(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> trie);

  [[nodiscard]] Automaton& automaton() { return automaton_; }
  [[nodiscard]] const TokenTrie& trie() const { return *trie_; }
  [[nodiscard]] const std::shared_ptr<const Grammar>& grammar() const { return grammar_; }
  [[nodiscard]] const std::shared_ptr<const TokenTrie>& shared_trie() const { return trie_; }
  // The mask of a configuration. Valid until the table goes.
  const Entry& Find(ConfigId config);
  // The same, without tokens after which the end takes more than `symbols` symbols.
  void FindWithin(ConfigId config, uint32_t symbols, TokenMask& mask);

  // The memory of what has been found so far. From any thread.
  [[nodiscard]] size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  void CountBytes();
  struct Walk;
  struct Inside;
  void Fill(ConfigId config, Walk& walk);
  void WalkNodes(std::span<const TokenTrie::Node> nodes, ConfigId config, Walk& walk);
  [[nodiscard]] bool AllowsAllBelow(const TokenTrie::Node& node, ConfigId config, Walk& walk);
  void WalkText(ConfigId config, Walk& walk);
  [[nodiscard]] bool TakesAllText(ConfigId config);
  // A set whose characters all lead back to the configuration; kNone if there is none.
  [[nodiscard]] CharacterSet LoopOf(ConfigId config);
  [[nodiscard]] Inside InsideOf(ConfigId config);
  void WalkSlice(const TokenTrie::Slice& slice, ConfigId config, const Inside& inside, Walk& walk);

  std::shared_ptr<const Grammar> grammar_;
  std::shared_ptr<const TokenTrie> trie_;
  Automaton automaton_;
  CharacterLoops loops_;
  std::unordered_map<ConfigId, Entry> entries_;
  size_t mask_bytes_ = 0;
  std::atomic<size_t> bytes_ = 0;
  std::vector<ConfigId> path_;  // by depth: where a walk stands
};

class Matcher {
 public:
  // A table that has grown beyond this is left to the others that use it.
  static constexpr size_t kMaxTableBytes = size_t{64} << 20;

  explicit Matcher(std::shared_ptr<MaskTable> table);

  // The tokens that may come next if `left` tokens may still be drawn: a bit for each, valid until
  // the next call; empty if all are allowed. While the least number of bytes to a valid end is in
  // reach it stays so. Error constraint.dead_end (kRuntime): no token is allowed.
  Result<std::span<const uint32_t>> Mask(int64_t left);

  // Takes the token that was drawn. Error constraint.token (kRuntime): it was not allowed.
  Status Accept(TokenId token);

  // Whether the text may end here, and whether it must.
  [[nodiscard]] bool may_end() const { return table_->automaton().may_end(config_); }
  [[nodiscard]] bool must_end() const { return table_->automaton().must_end(config_); }

 private:
  std::shared_ptr<MaskTable> table_;
  ConfigId config_;
  TokenMask mask_;
};

}  // namespace rullama::constraint
