// (left id, right id) -> (rank, merged id) of every merge: a flat open-addressing table.
//
// Thread safety: immutable after Build.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/tokenizer/token_table.h"

namespace rullama::tokenizer_internal {

inline constexpr uint32_t kNoRank = std::numeric_limits<uint32_t>::max();

struct Merge {
  uint32_t rank = kNoRank;  // lower merges first; kNoRank if the pair does not merge
  TokenId merged = kNoToken;
};

class MergeTable {
 public:
  // Resolves "left right" lines to ids. The lowest rank of several equal pairs counts. Error
  // tokenizer.merge: a line without a separating space, or one whose parts or result are not
  // tokens. A vocabulary in which tokens have the text of others (Google's QAT files of Gemma 4
  // have three) has lost the texts that these should have: the merges of as many texts are left
  // out, so that they are written with their parts. May throw std::bad_alloc.
  Status Build(std::span<const std::string_view> merges, const TokenTable& tokens);
  // The merges of SentencePiece: every pair of tokens whose joined text is a token, ranked by its
  // score, the highest first; equal scores have equal ranks. `is_piece` says which tokens take part
  // (control and byte tokens do not); of equal texts the lowest id does. May throw std::bad_alloc.
  void BuildFromScores(std::span<const std::string_view> texts, std::span<const float> scores,
                       const std::vector<bool>& is_piece, const TokenTable& tokens);

  [[nodiscard]] Merge Find(TokenId left, TokenId right) const {
    const uint32_t slot = slots_[Locate(left, right)];
    if (slot == 0) return {};
    const uint32_t line = (slot & rank_mask_) - 1;
    return {ranks_.empty() ? line : ranks_[line], lines_[line].merged};
  }

 private:
  struct Line {
    TokenId left;
    TokenId right;
    TokenId merged;
  };
  static uint64_t HashOf(TokenId left, TokenId right) {
    return HashWord(uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right));
  }
  [[nodiscard]] uint32_t TagOf(uint64_t hash) const {
    return static_cast<uint32_t>(hash >> 32) & ~rank_mask_;
  }
  // The slot of the pair, or the empty one where it would go.
  [[nodiscard]] size_t Locate(TokenId left, TokenId right) const {
    const uint64_t hash = HashOf(left, right);
    const uint32_t tag = TagOf(hash);
    for (auto at = static_cast<size_t>(hash & mask_);; at = static_cast<size_t>((at + 1) & mask_)) {
      const uint32_t slot = slots_[at];
      if (slot == 0) return at;
      if ((slot & ~rank_mask_) != tag) continue;
      const Line& line = lines_[(slot & rank_mask_) - 1];
      if (line.left == left && line.right == right) return at;
    }
  }
  struct Pending;
  static bool Split(std::string_view line, Pending& merge);
  static void HashAndPrefetch(Pending& merge, const TokenTable& tokens);
  static tl::unexpected<Error> BadMerge(std::string_view line, size_t rank,
                                        const TokenTable& tokens);
  static Result<std::vector<std::string_view>> WithoutLostTexts(
      std::span<const std::string_view> merges, const TokenTable& tokens);
  size_t Resolve(std::span<const std::string_view> merges, size_t begin, size_t end,
                 const TokenTable& tokens);
  static size_t FindPairs(std::string_view text, TokenId merged, const std::vector<bool>& is_piece,
                          const TokenTable& tokens, Line* pairs);
  void FillSlots(size_t count);

  // Two small arrays instead of one table of wide slots: first touches of memory are a third of the
  // time to build it.
  std::unique_ptr<Line[]> lines_;
  std::vector<uint32_t> ranks_;  // of each line; empty: a line's index is its rank
  // Index of a line + 1 in the low bits, bits of the hash above; 0 is empty. At most half of the
  // slots are used.
  ZeroedArray<uint32_t> slots_;
  uint64_t mask_ = 0;
  uint32_t rank_mask_ = 0;
};

}  // namespace rullama::tokenizer_internal
