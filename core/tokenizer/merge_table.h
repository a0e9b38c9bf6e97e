// (left id, right id) -> (rank, merged id) of every merge: a flat open-addressing table.
//
// Thread safety: immutable after Build.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string_view>

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
  // tokenizer.merge: a line without a separating space, or one whose parts or result are no tokens.
  // May throw std::bad_alloc.
  Status Build(std::span<const std::string_view> merges, const TokenTable& tokens);

  [[nodiscard]] Merge Find(TokenId left, TokenId right) const {
    const uint32_t slot = slots_[Locate(left, right)];
    if (slot == 0) return {};
    const uint32_t rank = (slot & rank_mask_) - 1;
    return {rank, lines_[rank].merged};
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
  [[nodiscard]] uint64_t Locate(TokenId left, TokenId right) const {
    const uint64_t hash = HashOf(left, right);
    const uint32_t tag = TagOf(hash);
    for (uint64_t at = hash & mask_;; at = (at + 1) & mask_) {
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
  static Status BadMerge(std::string_view line, size_t rank, const TokenTable& tokens);
  size_t Resolve(std::span<const std::string_view> merges, size_t begin, size_t end,
                 const TokenTable& tokens);
  void FillSlots(size_t count);

  // Two small arrays instead of one table of wide slots: first touches of memory are a third of the
  // time to build it.
  std::unique_ptr<Line[]> lines_;  // by rank
  // rank + 1 in the low bits, bits of the hash above; 0 is empty. At most half of the slots are
  // used.
  ZeroedArray<uint32_t> slots_;
  uint64_t mask_ = 0;
  uint32_t rank_mask_ = 0;
};

}  // namespace rullama::tokenizer_internal
