// (left id, right id) -> (rank, merged id) of every merge: a flat open-addressing table.
//
// Thread safety: immutable after Build.
#pragma once

#include <cstdint>
#include <limits>
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
  // Resolves "left right" lines to ids. Of repeated pairs the lowest rank counts. Error
  // tokenizer.merge: a line without a separating space, or one whose parts or result are no tokens.
  // May throw std::bad_alloc.
  Status Build(std::span<const std::string_view> merges, const TokenTable& tokens);

  [[nodiscard]] Merge Find(TokenId left, TokenId right) const {
    const auto l = static_cast<uint32_t>(left);
    const auto r = static_cast<uint32_t>(right);
    const uint64_t key = KeyOf(l, r);
    for (uint64_t at = HashPair(l, r) & mask_;; at = (at + 1) & mask_) {
      if (slots_[at].key == key) return Unpack(slots_[at].value);
      if (slots_[at].key == 0) return {};
    }
  }

 private:
  struct Slot {
    uint64_t key;  // left + 1 and right + 1; 0 is empty
    uint64_t
        value;  // complement of rank << 32 | merged, so that the larger value has the lower rank
  };
  // Ids are below 2^31 - 1, so adding 1 to each half cannot carry; 0 cannot be a key.
  static uint64_t KeyOf(uint32_t left, uint32_t right) {
    return uint64_t{left + 1} << 32 | (right + 1);
  }
  static Merge Unpack(uint64_t value) {
    return {static_cast<uint32_t>(~value >> 32),
            static_cast<TokenId>(static_cast<uint32_t>(~value))};
  }
  void BuildRange(std::span<const std::string_view> merges, size_t begin, size_t end,
                  const TokenTable& tokens, size_t* first_bad);
  void Insert(TokenId left, TokenId right, uint32_t rank, TokenId merged);

  ZeroedArray<Slot> slots_;
  uint64_t mask_ = 0;
};

}  // namespace rullama::tokenizer_internal
