// Ends the thoughts of an answer that have used up their tokens: then the marker that ends a
// thought is the only token that may be drawn.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <span>

#include "core/constraint/token_trie.h"
#include "core/tokenizer/tokenizer.h"

namespace rullama {

class ThoughtBudget {
 public:
  struct Options {
    TokenId begin = 0;  // the markers around a thought
    TokenId end = 0;
    int64_t tokens = 0;      // of all thoughts together, markers that begin them included
    bool inside = false;     // the prompt has begun a thought
    int64_t vocabulary = 0;  // tokens of the model
  };
  explicit ThoughtBudget(const Options& options);

  // Takes a token that was drawn.
  void Accept(TokenId token);
  // The tokens that may come next, a bit for each; empty: any. Valid as long as this.
  [[nodiscard]] std::span<const uint32_t> Mask() const;

 private:
  TokenId begin_;
  TokenId end_;
  int64_t left_;
  bool inside_;
  constraint::TokenMask end_alone_;
};

}  // namespace rullama
