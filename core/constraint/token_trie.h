// The tokens of a vocabulary as a trie of their bytes, for finding the tokens that a grammar
// allows.
//
// Ownership: independent of the tokenizer it was built from. Thread safety: immutable.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/constraint/grammar.h"
#include "core/tokenizer/tokenizer.h"

namespace rullama::constraint {

// A bit for each token, from the lowest bit of the first word on.
using TokenMask = std::vector<uint32_t>;

inline void AllowToken(std::span<uint32_t> mask, TokenId token) {
  mask[static_cast<size_t>(token) / 32] |= uint32_t{1} << (static_cast<uint32_t>(token) % 32);
}
inline bool IsTokenAllowed(std::span<const uint32_t> mask, TokenId token) {
  return (mask[static_cast<size_t>(token) / 32] >> (static_cast<uint32_t>(token) % 32) & 1) != 0;
}

class TokenTrie {
 public:
  // Nodes are in depth-first order: those below a node follow it. Tokens of the same bytes have
  // nodes of their own.
  struct Node {
    uint32_t byte : 8;
    uint32_t token_plus_1 : 24;             // of the token that ends here; 0: none
    uint32_t size : 32 - kCharacterSets;    // nodes from this one to the last below it
    uint32_t whole_below : kCharacterSets;  // a bit for each set (GoesOnBy)
    uint32_t depth;                         // bytes before this one

    [[nodiscard]] TokenId token() const { return static_cast<TokenId>(token_plus_1) - 1; }
    // Whether every token below continues from this node by whole characters of the set.
    [[nodiscard]] bool GoesOnBy(CharacterSet set) const {
      return (whole_below >> static_cast<unsigned>(set) & 1) != 0;
    }
  };

  // The tokens seen from inside a text of a CharacterSet. Tokens of whole characters of the set are
  // known by their number of characters.
  struct Slice {
    static constexpr size_t kCounted = 16;
    // [n]: the tokens of at most n characters.
    std::array<TokenMask, kCounted + 1> at_most;
    TokenMask all;                   // tokens of any number of characters
    uint32_t longest = 0;            // characters of the longest of them
    std::vector<Node> long_tokens;   // of `all`, those with more than kCounted characters
    std::vector<Node> other_tokens;  // with anything else in them
  };

  // `markers`: the special tokens that grammars name, in the order of their symbols; those that the
  // vocabulary lacks are never allowed. `vocabulary`: the number of logits.
  static std::shared_ptr<const TokenTrie> Build(const Tokenizer& tokenizer,
                                                std::span<const std::string_view> markers,
                                                int64_t vocabulary);

  [[nodiscard]] std::span<const Node> nodes() const { return nodes_; }
  // Bytes of the longest token.
  [[nodiscard]] size_t max_bytes() const { return max_bytes_; }
  [[nodiscard]] const Slice& slice(CharacterSet set) const {
    return slices_[static_cast<size_t>(set)];
  }
  // The special tokens of each symbol, without those that end the generation.
  [[nodiscard]] std::span<const std::pair<Symbol, TokenMask>> specials() const { return specials_; }
  [[nodiscard]] std::span<const TokenId> end_tokens() const { return end_tokens_; }
  // The tokens that have bytes.
  [[nodiscard]] const TokenMask& text_tokens() const { return text_tokens_; }

  // The symbols of a token: its bytes, or a marker. Empty for tokens that end the generation and
  // for tokens without any bytes.
  [[nodiscard]] std::vector<Symbol> SymbolsOf(TokenId token) const;
  [[nodiscard]] size_t mask_words() const { return text_tokens_.size(); }
  [[nodiscard]] int64_t vocabulary() const { return vocabulary_; }
  [[nodiscard]] size_t bytes() const;

 private:
  struct Text {
    std::string bytes;
    TokenId token = 0;
  };
  void AddSpecial(Symbol symbol, TokenId token);
  void AddSlice(CharacterSet set, std::span<const Text> texts);
  static std::vector<Node> NodesOf(std::span<const Text> texts);

  int64_t vocabulary_ = 0;
  std::vector<Node> nodes_;
  size_t max_bytes_ = 0;
  std::array<Slice, kCharacterSets> slices_;
  std::vector<std::pair<Symbol, TokenMask>> specials_;
  std::vector<TokenId> end_tokens_;
  TokenMask text_tokens_;
  std::vector<uint32_t> text_begin_;  // by token: offsets into text_bytes_
  std::string text_bytes_;
};

}  // namespace rullama::constraint
